"""Encodes the outputs of crew tasks for the journal, and decodes them in a later attempt."""

# See docs/decisions/journal.md#finished-tasks-are-skipped-where-they-are-executed

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from crewai.tasks.output_format import OutputFormat
from crewai.tasks.task_output import TaskOutput

from windlass_child.crewai.features import has_fields
from windlass_child.journal import value_codec

if TYPE_CHECKING:
    from windlass_child.journal.journal import FinishedStep

SKIPPED = {"skipped": True}
AS_RAW = "as raw"
"""Stands for JSON output that equals the parsed text of the same entry, so that it is not stored twice."""


def kept(task: Any, output: Any, *, without_raw: bool) -> dict[str, Any]:
    """Returns the entry of a task. `without_raw` is for a text that is stored elsewhere: the entry has only its digest.

    The agent's messages to the model are omitted, because they contain the outputs of all earlier tasks. Raises
    TypeError or ValueError for structured output that can't be decoded again, and every exception of the project's
    classes.
    """
    text = {"digest": digest(output.raw)} if without_raw else {"raw": output.raw}
    return text | {
        "agent": output.agent,
        "format": output.output_format.value,
        "json": as_raw(value_codec.encoded(output.json_dict), output.raw),
        "pydantic": None if output.pydantic is None else kept_model(task, output.pydantic),
        "tool_failures": [failure.model_dump(mode="json") for failure in getattr(output, "tool_failures", ())],
    }


def kept_model(task: Any, model: Any) -> Any:
    """Encodes the attributes of a model. A dump is not used, because a model can't always be made from its dump.

    The class in `output_pydantic` is not encoded with it, so it need not be importable.
    """
    if type(model) is task.output_pydantic:
        return value_codec.encoded_dict(value_codec.parts_of(model))
    if not isinstance(model, task.output_pydantic or ()):
        raise TypeError(f"its output is a {type(model).__name__}, which its output_pydantic does not name")
    return value_codec.encoded(model)


def as_raw(structured: Any, raw: str) -> Any:
    if structured is None:
        return None
    try:
        same = json.dumps(json.loads(raw)) == json.dumps(structured)  # compares texts: as values, 1 equals 1.0 and true
    except ValueError:
        same = False
    return AS_RAW if same else structured


def restored(task: Any, entry: FinishedStep) -> Any:
    """Returns the journaled output of a task, without the task's own texts. `named` adds those.

    Raises ValueError or LookupError for an entry that does not fit, and every exception of the project's classes.
    """
    value = entry.value
    raw = value.get("raw", entry.output)
    if raw is None or ("digest" in value and digest(raw) != value["digest"]):
        raise ValueError("its output is not the one that was journaled")
    return TaskOutput(
        description=task.description,
        raw=raw,
        json_dict=value_codec.decoded(json.loads(raw) if value["json"] == AS_RAW else value["json"]),
        pydantic=None if value["pydantic"] is None else model(task, value["pydantic"]),
        agent=value["agent"],
        output_format=OutputFormat(value["format"]),
        **({"tool_failures": value["tool_failures"]} if has_fields(TaskOutput, "tool_failures") else {}),
    )


def model(task: Any, value: Any) -> Any:
    kind = task.output_pydantic
    if kind is None:
        raise ValueError("the task has no output_pydantic any more")
    found = value_codec.decoded(value)
    if value_codec.TAG in value and isinstance(found, kind):
        return found
    if value_codec.TAG in value or not found["__dict__"].keys() >= kind.model_fields.keys():
        raise ValueError(f"its output_pydantic is another {kind.__name__} than it was")
    return value_codec.made(kind, found)


def named(task: Any, output: Any) -> Any:
    """Sets the task's own texts on an output.

    It is called when the task would run, because crewai has filled in the inputs by then.
    """
    output.name = task.name or task.description
    output.description = task.description
    output.expected_output = task.expected_output
    output.set_summary()
    return output


def write_file(task: Any, output: Any) -> None:
    """Writes the file of a task again, because the folder of the earlier attempt is gone."""
    if task.output_file:
        model = output.pydantic.model_dump_json() if output.pydantic else output.raw
        task._save_file(output.json_dict or model)  # noqa: SLF001 - as crewai does at the end of a task


def digest(text: str) -> str:
    return hashlib.md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()
