"""Shows the inputs of a crew, and starts it."""

from __future__ import annotations

import json
from dataclasses import replace
from textwrap import shorten
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

import click

from windlass.cli.crew_options import Access, answer_option, client_for, crew_options, watch_options
from windlass.cli.kickoff_options import (
    check_together,
    each_options,
    fitted,
    given_inputs,
    given_members,
    has_texts,
    json_object,
    queue_options,
)
from windlass.cli.printing import columns, notify, notify_streams, print_json, print_result
from windlass.cli.status import print_status

if TYPE_CHECKING:
    from collections.abc import Mapping

    from windlass.cli.crew_session import CrewClient


LONGEST_DESCRIPTION = 80


@click.command
@crew_options
@answer_option
def inputs(url: str | None, access: Access, *, json_output: bool) -> None:
    """Show the inputs of a crew.

    Prints one line per input: its name, whether it is required, its type or values, and a short description from the
    project. The lines go to standard output, everything else to standard error. URL is the crew's base URL, as
    `windlass tokens show` prints it. Without URL, it is a crew of the chosen server: that of --deployment, or the only
    one.
    """
    with client_for(url, access) as crew:
        answer = crew.inputs()
        start = crew.command("kickoff", *example(answer))
    if json_output:
        print_json(answer)
        return
    for line in input_lines(answer) or ["This crew takes no inputs."]:
        print_result(line)
    notify_streams("The table of inputs")
    notify(f"Start it with: {start}")


def input_lines(answer: Mapping[str, Any]) -> list[str]:
    required = list(answer.get("inputs") or ())
    schemas: dict[str, Any] = (answer.get("schema") or {}).get("properties") or {}
    names = required + [name for name in schemas if name not in required]
    return columns([_line(name, schemas.get(name), required=name in required) for name in names])


def example(answer: Mapping[str, Any]) -> list[str]:
    """Returns the arguments of `windlass kickoff` that give each required input."""
    given = (part for name in answer.get("inputs") or () for part in ("-i", f"{name}=..."))
    return [*given, "--watch"]


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


@click.command
@crew_options
@click.option(
    "-i",
    "pairs",
    multiple=True,
    metavar="NAME=VALUE",
    help="An input: a text, or a number and so on where the crew's schema demands it; NAME:=JSON for any JSON value.",
)
@click.option(
    "--inputs",
    "file",
    type=click.File(encoding="utf-8-sig"),
    metavar="FILE",
    help="Read inputs from a JSON file, or from standard input (-).",
)
@click.option("--inputs-json", "text", metavar="JSON", help="The inputs as one JSON object.")
@click.option("--meta", metavar="JSON", help="A JSON object that the status and webhooks return unchanged.")
@click.option(
    "--idempotency-key",
    metavar="KEY",
    help="A key for 24 h: a second request with it starts nothing and returns the same kickoff.",
)
@queue_options
@each_options
@watch_options
@answer_option
def kickoff(  # noqa: PLR0913 - one for each option
    *,
    url: str | None,
    access: Access,
    pairs: tuple[str, ...],
    file: TextIO | None,
    text: str | None,
    meta: str | None,
    idempotency_key: str | None,
    each: BinaryIO | None,
    concurrency: int,
    out: str | None,
    retry_failed: bool,
    patience: float,
    watch: bool,
    json_output: bool,
    **members: Any,
) -> int:
    """Start a crew.

    Prints the kickoff's id. With --watch, follows the kickoff and prints its final output. This result goes to standard
    output, everything else to standard error. Inputs of -i override --inputs-json, which overrides the file.
    -i sentences=3 gives a number where the crew's schema demands one, and a text where it accepts a text.
    `windlass inputs URL` lists the inputs of the crew. Without URL, it is a crew of the chosen server: that of
    --deployment, or the only one.

    With --each, starts a kickoff for each line of a file and follows all of them to their ends. Exits with 1 when one
    of them failed. Inputs from other options are defaults for the lines.
    """
    body: dict[str, Any] = {"inputs": given_inputs(_text_of(file), text, pairs)}
    body |= {"meta": json_object(meta, "--meta")} if meta is not None else {}
    body |= given_members(members)
    check_together(
        each=each is not None, out=out is not None, retry_failed=retry_failed, watch=watch, json_output=json_output
    )
    if each is not None:
        from windlass.cli.batch.run import Job, run_each

        job = Job(each.read(), each.name, body, idempotency_key, concurrency, out, patience, retry_failed=retry_failed)
        with client_for(url, access) as crew:
            return run_each(crew, replace(job, common={**body, "inputs": _fitted(crew, body["inputs"], pairs)}))
    body |= {"idempotencyKey": idempotency_key} if idempotency_key is not None else {}
    with client_for(url, access) as crew:
        answer = crew.kickoff({**body, "inputs": _fitted(crew, body["inputs"], pairs)})
        kickoff_id = str(answer.get("kickoff_id"))
        if watch:
            from windlass.cli.follow import follow

            notify(f"kickoff {kickoff_id}")
            notify_streams("The final output")
            ended = follow(crew, kickoff_id, patience=patience)
            return print_status(ended, crew.command("files", kickoff_id), json_output=json_output)
    if json_output:
        print_json(answer)
    else:
        print_result(kickoff_id)
        notify_streams("The id")
        notify(f"Follow it with: {crew.command('status', kickoff_id, '--watch')}")
    return 0


def _fitted(crew: CrewClient, inputs: dict[str, Any], pairs: tuple[str, ...]) -> dict[str, Any]:
    if not has_texts(pairs):
        return inputs
    return fitted(inputs, pairs, crew.inputs().get("schema") or {})


def _text_of(file: TextIO | None) -> str | None:
    try:
        return None if file is None else file.read()
    except UnicodeDecodeError:
        raise click.UsageError(f"--inputs {file.name if file else ''}: this file is not UTF-8.") from None
