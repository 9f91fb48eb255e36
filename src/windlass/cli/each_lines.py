"""The lines of `kickoff --each`: pure, from text to kickoffs and back to what is wrong with it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from windlass.cli.given_inputs import json_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

MOST_TOLD = 20


@dataclass(frozen=True, slots=True)
class Line:
    """`members` are those of its kickoff: the inputs, and all that holds for every line. `retry` says how often it was
    started again.
    """

    number: int
    members: Mapping[str, Any]
    retry: int = 0

    @property
    def inputs(self) -> Mapping[str, Any]:
        inputs: Mapping[str, Any] = self.members["inputs"]
        return inputs

    def key(self, batch: str) -> str:
        """The same for the same retry of the same line with the same content, of the same batch."""
        content = json.dumps(self.members, sort_keys=True)
        retry = f" {self.retry}" if self.retry else ""
        return hashlib.sha256(f"{batch} {self.number} {content}{retry}".encode()).hexdigest()

    def again(self) -> Line:
        return replace(self, retry=self.retry + 1)


def read_lines(raw: bytes, name: str, common: Mapping[str, Any]) -> list[Line]:
    """One for each that is not empty. What `common` has of inputs holds where a line does not say otherwise.

    Raises click.UsageError, which tells all that can't be read.
    """
    found, bad = [], []
    raw = raw.removeprefix(b"\xef\xbb\xbf")
    for number, text in enumerate(raw.split(b"\n"), 1):
        if not text.strip():
            continue
        try:
            inputs = _inputs(text, f"line {number}")
        except click.UsageError as error:
            bad.append(error.message)
        else:
            found.append(Line(number, {**common, "inputs": {**common["inputs"], **inputs}}))
    if bad and (form := _whole_form(raw) or ("" if found else _table_form(raw))):
        raise click.UsageError(f"--each {name}: nothing was started, because this is {form}.")
    refuse(name, bad)
    if not found:
        raise click.UsageError(
            f'--each {name}: there are no lines in it. Give a JSON object such as {{"topic": "tea"}} in each.'
        )
    return found


def _inputs(text: bytes, where: str) -> dict[str, Any]:
    try:
        inputs = json_object(text.decode("utf-8"), where)
        json.dumps(inputs, allow_nan=False)
    except UnicodeDecodeError:
        raise click.UsageError(f"{where}: this is not UTF-8.") from None
    except ValueError:
        raise click.UsageError(f"{where}: a number in it is too large; give it as a string.") from None
    return inputs


def _whole_form(raw: bytes) -> str:
    """What a file is that is JSON as a whole, and how it becomes lines; empty where it is not."""
    try:
        whole = json.loads(raw)
    except (ValueError, RecursionError):
        return ""
    if isinstance(whole, list):
        return "one JSON array. Make a line of each of its items: `jq -c '.[]'`"
    return "one JSON object over several lines. Make one of them: `jq -c .`" if isinstance(whole, dict) else ""


def _table_form(raw: bytes) -> str:
    first = raw.lstrip().partition(b"\n")[0]
    is_table = b"," in first and first[:1] not in {b"{", b"["}
    return "CSV, it seems. Make a JSON object of each line: `mlr --icsv --ojsonl cat`" if is_table else ""


def without_inputs(lines: Iterable[Line], required: Sequence[str]) -> list[str]:
    """What the lines lack of what the crew wants to know, in words."""
    lacking = ((line.number, [name for name in required if name not in line.inputs]) for line in lines)
    return [f"line {number}: inputs are missing: {', '.join(names)}" for number, names in lacking if names]


def refuse(name: str, bad: Sequence[str]) -> None:
    """Raises click.UsageError when there is anything bad: nothing is to be started then."""
    if not bad:
        return
    more = [f"and {len(bad) - MOST_TOLD} more"] if len(bad) > MOST_TOLD else []
    told = "\n  ".join([f"--each {name}: nothing was started, because of", *bad[:MOST_TOLD], *more])
    raise click.UsageError(told)
