"""Reads the inputs of a kickoff from the command line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NoReturn

import click

if TYPE_CHECKING:
    from collections.abc import Iterable

Inputs = dict[str, Any]


def given_inputs(file: str | None, text: str | None, pairs: Iterable[str]) -> Inputs:
    """Returns the inputs of the file, overridden by the JSON text, overridden by NAME=VALUE pairs.

    Raises click.UsageError, which names the option that can't be read.
    """
    inputs = json_object(file, "--inputs") if file is not None else {}
    inputs |= json_object(text, "--json") if text is not None else {}
    return inputs | dict(map(pair, pairs))


def pair(given: str) -> tuple[str, Any]:
    """Parses `name=text`, or `name:=json` for a value that is no text."""
    name, equals, value = given.partition("=")
    if not equals or not name.removesuffix(":"):
        raise click.UsageError(f"-i {given}: give NAME=VALUE, or NAME:=JSON for a number, a list and so on.")
    if not name.endswith(":"):
        return name, value
    return name[:-1], json_value(value, f"-i {given}")


def json_object(text: str, where: str) -> Inputs:
    value = json_value(text, where)
    if not isinstance(value, dict):
        raise click.UsageError(f'{where}: give a JSON object such as {{"topic": "tea"}}.')
    return value


def json_value(text: str, where: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"{where}: this is not JSON: {error}.") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")
