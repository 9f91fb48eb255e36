"""Tasks of crews in the journal: what a finished task gave, and that again in a later attempt."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from crewai.tasks.output_format import OutputFormat
from crewai.tasks.task_output import TaskOutput

from windlass_crewside.frameworks import values

if TYPE_CHECKING:
    from windlass_crewside.journal import Entry

SKIPPED = {"skipped": True}
AS_RAW = "as raw"
"""For JSON output that is that of the text beside it, and need not be kept twice."""


def kept(task: Any, output: Any, *, without_raw: bool) -> dict[str, Any]:
    """The entry of a task. Of a text that is kept elsewhere it has the digest.

    What the agent said to the model is left out: it holds the outputs of all tasks before it. Raises TypeError or
    ValueError for structured output that could not be made again, and whatever classes of the project raise.
    """
    text = {"digest": digest(output.raw)} if without_raw else {"raw": output.raw}
    return text | {
        "agent": output.agent,
        "format": output.output_format.value,
        "json": as_raw(values.encoded(output.json_dict), output.raw),
        "pydantic": None if output.pydantic is None else kept_model(task, output.pydantic),
        "tool_failures": [failure.model_dump(mode="json") for failure in output.tool_failures],
    }


def kept_model(task: Any, model: Any) -> Any:
    """Not its dump, which need not be what it was made from. A class that the task names may be anywhere."""
    if type(model) is task.output_pydantic:
        return values.encoded_dict(values.parts_of(model))
    if not isinstance(model, task.output_pydantic or ()):
        raise TypeError(f"its output is a {type(model).__name__}, which its output_pydantic does not name")
    return values.encoded(model)


def as_raw(structured: Any, raw: str) -> Any:
    if structured is None:
        return None
    try:
        same = json.dumps(json.loads(raw)) == json.dumps(structured)  # as text, where 1 is not 1.0 and not true
    except ValueError:
        same = False
    return AS_RAW if same else structured


def restored(task: Any, entry: Entry) -> Any:
    """The output of a task as it was, but for the words of the task, which `named` adds.

    Raises ValueError or LookupError for an entry that does not fit, and whatever classes of the project raise.
    """
    value = entry.value
    raw = value.get("raw", entry.output)
    if raw is None or ("digest" in value and digest(raw) != value["digest"]):
        raise ValueError("its output is not the one that was journaled")
    return TaskOutput(
        description=task.description,
        raw=raw,
        json_dict=values.decoded(json.loads(raw) if value["json"] == AS_RAW else value["json"]),
        pydantic=None if value["pydantic"] is None else model(task, value["pydantic"]),
        agent=value["agent"],
        output_format=OutputFormat(value["format"]),
        tool_failures=value["tool_failures"],
    )


def model(task: Any, value: Any) -> Any:
    kind = task.output_pydantic
    if kind is None:
        raise ValueError("the task has no output_pydantic any more")
    found = values.decoded(value)
    if values.TAG in value and isinstance(found, kind):
        return found
    if values.TAG in value or not found["__dict__"].keys() >= kind.model_fields.keys():
        raise ValueError(f"its output_pydantic is another {kind.__name__} than it was")
    return values.made(kind, found)


def named(task: Any, output: Any) -> Any:
    """With the task's words as they are when it would be run: by then crewai has filled in the inputs."""
    output.name = task.name or task.description
    output.description = task.description
    output.expected_output = task.expected_output
    return output.set_summary()


def write_file(task: Any, output: Any) -> None:
    """The file of a task: the folder that it was written to is gone."""
    if task.output_file:
        model = output.pydantic.model_dump_json() if output.pydantic else output.raw
        task._save_file(output.json_dict or model)  # noqa: SLF001 - as crewai does at the end of a task


def digest(text: str) -> str:
    return hashlib.md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()
