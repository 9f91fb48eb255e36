"""Parses and checks the lines of `kickoff --each`, without input or output."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from windlass.cli.kickoff_options import json_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

MOST_REPORTED = 20


@dataclass(frozen=True, slots=True)
class InputLine:
    """One line of the input file.

    `members` are the members of its kickoff request: the inputs, and the members that all lines have in common. `retry`
    is how often the line was started again.
    """

    number: int
    members: Mapping[str, Any]
    retry: int = 0

    @property
    def inputs(self) -> Mapping[str, Any]:
        inputs: Mapping[str, Any] = self.members["inputs"]
        return inputs

    def key(self, batch: str) -> str:
        """Returns the idempotency key, made of the batch, the number of the line, its members and its retry."""
        content = json.dumps(self.members, sort_keys=True)
        retry = f" {self.retry}" if self.retry else ""
        return hashlib.sha256(f"{batch} {self.number} {content}{retry}".encode()).hexdigest()

    def again(self) -> InputLine:
        return replace(self, retry=self.retry + 1)


def read_lines(raw: bytes, name: str, common: Mapping[str, Any]) -> list[InputLine]:
    """Returns the lines that are not empty. A line's inputs override the inputs of `common`.

    Raises click.UsageError, which lists all lines that can't be read.
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
            found.append(InputLine(number, {**common, "inputs": {**common["inputs"], **inputs}}))
    if bad and (form := _whole_form(raw) or ("" if found else _table_form(raw))):
        raise click.UsageError(f"--each {name}: nothing was started, because the file is {form}.")
    refuse(name, bad)
    if not found:
        raise click.UsageError(
            f'--each {name}: the file has no lines. Write a JSON object such as {{"topic": "tea"}} in each line.'
        )
    return found


def _inputs(text: bytes, where: str) -> dict[str, Any]:
    try:
        inputs = json_object(text.decode("utf-8"), where)
        json.dumps(inputs, allow_nan=False)
    except UnicodeDecodeError:
        raise click.UsageError(f"{where}: the line is not UTF-8.") from None
    except ValueError:
        raise click.UsageError(f"{where}: a number is too large for JSON. Write it as a string.") from None
    return inputs


def _whole_form(raw: bytes) -> str:
    """Describes a file that is one JSON value, and how to convert it to lines. Returns "" for any other file."""
    try:
        whole = json.loads(raw)
    except (ValueError, RecursionError):
        return ""
    if isinstance(whole, list):
        return "one JSON array. Convert each of its items to a line: `jq -c '.[]'`"
    return "one JSON object over several lines. Join them to one line: `jq -c .`" if isinstance(whole, dict) else ""


def _table_form(raw: bytes) -> str:
    first = raw.lstrip().partition(b"\n")[0]
    is_table = b"," in first and first[:1] not in {b"{", b"["}
    return "CSV, it seems. Convert each line to a JSON object: `mlr --icsv --ojsonl cat`" if is_table else ""


def without_inputs(lines: Iterable[InputLine], required: Sequence[str]) -> list[str]:
    """Describes the inputs that the crew requires and that lines do not have, one text per line."""
    missing = ((line.number, [name for name in required if name not in line.inputs]) for line in lines)
    return [f"line {number}: inputs are missing: {', '.join(names)}" for number, names in missing if names]


def refuse(name: str, bad: Sequence[str]) -> None:
    """Raises click.UsageError with the errors of `bad`, if there are any, so that no kickoff is started."""
    if not bad:
        return
    more = [f"and {len(bad) - MOST_REPORTED} more"] if len(bad) > MOST_REPORTED else []
    message = "\n  ".join([f"--each {name}: nothing was started, because of", *bad[:MOST_REPORTED], *more])
    raise click.UsageError(message)
