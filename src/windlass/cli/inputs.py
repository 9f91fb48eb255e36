from __future__ import annotations

import json
import shlex
from textwrap import shorten
from typing import TYPE_CHECKING, Any

import click

from windlass.cli.crew_options import answer_option, client_for, crew_options
from windlass.cli.printing import columns, notify, notify_streams, print_json, print_result

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST_DESCRIPTION = 80


@click.command
@crew_options
@answer_option
def command(url: str, token: str | None, token_file: Any, *, json_output: bool) -> None:
    """Show the inputs of a crew.

    Prints one line per input: its name, whether it is required, its type or values, and a short description from the
    project. The lines go to standard output, everything else to standard error. URL is the crew's base URL, as
    `windlass tokens show` prints it.
    """
    with client_for(url, token, token_file) as crew:
        answer = crew.inputs()
    if json_output:
        print_json(answer)
        return
    for line in input_lines(answer) or ["This crew takes no inputs."]:
        print_result(line)
    notify_streams("The table of inputs")
    notify(f"Start it with: {shlex.join(example(url, answer))}")


def input_lines(answer: Mapping[str, Any]) -> list[str]:
    required = list(answer.get("inputs") or ())
    schemas: dict[str, Any] = (answer.get("schema") or {}).get("properties") or {}
    names = required + [name for name in schemas if name not in required]
    return columns([_line(name, schemas.get(name), required=name in required) for name in names])


def example(url: str, answer: Mapping[str, Any]) -> list[str]:
    given = (part for name in answer.get("inputs") or () for part in ("-i", f"{name}=..."))
    return ["windlass", "kickoff", url, *given, "--watch"]


def _line(name: str, schema: object, *, required: bool) -> list[str]:
    schema = schema if isinstance(schema, dict) else {}
    default = f"default {_json(schema['default'])}" if "default" in schema else "optional"
    description = shorten(str(schema.get("description") or ""), LONGEST_DESCRIPTION, placeholder="...")
    return [name, "required" if required else default, _kind(schema), description]


def _kind(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return "one of " + ", ".join(map(_json, schema["enum"]))
    if isinstance(alternatives := schema.get("anyOf"), list):
        return " or ".join(_kind(one) for one in alternatives)
    kind = schema.get("type", "any JSON")
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
