"""Converts the return value of a crew or a function to text, and to JSON if it is structured."""

from __future__ import annotations

import dataclasses
import inspect
import json
from typing import TYPE_CHECKING, Any

from windlass_child.process.error_text import ProjectFault, text_of
from windlass_child.process.messages import Succeeded
from windlass_child.process.redaction import nameless

if TYPE_CHECKING:
    from windlass_child.process.report import Report


def of_any(value: Any, report: Report) -> Succeeded:
    """Returns text unchanged, and JSON values, models and dataclasses as JSON with its text.

    Takes `str(value)` of any other value, with a warning. Raises ProjectFault for a generator, and for a value whose
    `str` fails.
    """
    if value is None:
        return Succeeded("")
    if isinstance(value, str):
        return Succeeded(value)
    if inspect.isgenerator(value) or inspect.isasyncgen(value):
        raise ProjectFault("the crew's code returned a generator, which is no result", "Return a list, for example.")
    try:
        found = structure(value)
        structured, text = as_json(found), json.dumps(found, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        words = made_text(value)
        report.warn("result_not_json", f"the result is a {type(value).__name__}, which is not JSON: its text was taken")
        return Succeeded(words)
    return Succeeded(text, structured)


def text_of_any(value: Any) -> str:
    """Returns the text of a step's output, as `of_any` or `of_a_crew` would make it. A step may return any value."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(raw := getattr(value, "raw", None), str):
        return raw
    try:
        return json.dumps(structure(value), ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return nameless(value)


def text_of_output(output: Any) -> str:
    try:
        return text_of_any(output)
    except Exception:  # noqa: BLE001 - runs code of the project; the run does not depend on its result
        return nameless(output)


def as_json(value: Any) -> str:
    """Returns JSON as it is stored and sent. Raises TypeError, ValueError or RecursionError for other values."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def made_text(value: Any) -> str:
    try:
        return str(value)
    except Exception as error:
        reason = f"{type(error).__name__}: {text_of(error)}"
        raise ProjectFault(
            f"the result is a {type(value).__name__}, which is not JSON, and has no text: {reason}",
            "Return text, JSON values, a model or a dataclass.",
        ) from error


def structure(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return value


def of_a_crew(output: Any, report: Report) -> Succeeded:
    """Converts a CrewOutput, or the value that an @after_kickoff method of the crew returned in its place."""
    if not isinstance(getattr(output, "raw", None), str):
        return of_any(output, report)
    found = structure(output.pydantic) if output.json_dict is None else output.json_dict
    return Succeeded(output.raw, None if found is None else as_json(found))


def exhausted(output: Any) -> Any:
    """Reads a stream to its end, because a crew or a flow with `stream=True` runs while its output is read."""
    if not is_stream(output):
        return output
    for _ in output:
        pass
    return output.result


async def exhausted_meanwhile(output: Any) -> Any:
    """Reads a stream that runs in the event loop. It must be read in the same loop."""
    if not is_stream(output) or output._async_iterator is None:  # noqa: SLF001 - each stream has both iterators, and one of them works
        return output
    async for _ in output:
        pass
    return output.result


def is_stream(output: Any) -> bool:
    return any(base.__module__ == "crewai.types.streaming" for base in type(output).__mro__)
