"""Tasks of crews in the journal: what a finished task gave, and that again in a later attempt."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from crewai.tasks.output_format import OutputFormat
from crewai.tasks.task_output import TaskOutput

if TYPE_CHECKING:
    from windlass_crewside.journal import Entry

SKIPPED = {"skipped": True}
AS_RAW = "as raw"
"""For structured output that is the JSON of the text beside it, and need not be kept twice."""


def kept(task: Any, output: Any, *, without_raw: bool) -> dict[str, Any]:
    """The entry of a task. Of a text that is kept elsewhere it has the digest.

    What the agent said to the model is left out: it holds the outputs of all tasks before it. Raises TypeError or
    ValueError for structured output that could not be made again.
    """
    text = {"digest": digest(output.raw)} if without_raw else {"raw": output.raw}
    return text | {
        "agent": output.agent,
        "format": output.output_format.value,
        "json": as_raw(output.json_dict, output.raw),
        "pydantic": as_raw(plain(task, output.pydantic), output.raw),
        "tool_failures": [failure.model_dump(mode="json") for failure in output.tool_failures],
    }


def plain(task: Any, model: Any) -> Any:
    if model is None:
        return None
    if not isinstance(model, task.output_pydantic or ()):
        raise TypeError(f"its output is a {type(model).__name__}, which its output_pydantic does not name")
    return model.model_dump(mode="json")


def as_raw(structured: Any, raw: str) -> Any:
    if structured is None:
        return None
    try:
        same = json.loads(raw) == structured
    except ValueError:
        same = False
    return AS_RAW if same else structured


def restored(task: Any, entry: Entry) -> Any:
    """The output of a task as it was. Raises ValueError or LookupError for an entry that does not fit."""
    value = entry.value
    raw = value.get("raw", entry.output)
    if raw is None or ("digest" in value and digest(raw) != value["digest"]):
        raise ValueError("its output is not the one that was journaled")
    return TaskOutput(
        name=task.name or task.description,
        description=task.description,
        expected_output=task.expected_output,
        raw=raw,
        json_dict=structured(value["json"], raw),
        pydantic=model(task, structured(value["pydantic"], raw)),
        agent=value["agent"],
        output_format=OutputFormat(value["format"]),
        tool_failures=value["tool_failures"],
    )


def structured(value: Any, raw: str) -> Any:
    return json.loads(raw) if value == AS_RAW else value


def model(task: Any, value: Any) -> Any:
    if value is None:
        return None
    if task.output_pydantic is None:
        raise ValueError("the task has no output_pydantic any more")
    return task.output_pydantic.model_validate(value)


def write_file(task: Any, output: Any) -> None:
    """The file of a task: the folder that it was written to is gone."""
    if task.output_file:
        model = output.pydantic.model_dump_json() if output.pydantic else output.raw
        task._save_file(output.json_dict or model)  # noqa: SLF001 - as crewai does at the end of a task


def digest(text: str) -> str:
    return hashlib.md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()
