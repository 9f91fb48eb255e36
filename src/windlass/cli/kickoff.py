from __future__ import annotations

from typing import Any, BinaryIO, TextIO

import click

from windlass.cli.crew_options import client_for, crew_options, give_json
from windlass.cli.each_options import check_together, each_options
from windlass.cli.given_inputs import given_inputs, json_object
from windlass.cli.printing import give, say
from windlass.cli.queue_options import given_members, queue_options
from windlass.cli.watch_options import show, watch_options


@click.command
@crew_options
@click.option(
    "-i", "pairs", multiple=True, metavar="NAME=VALUE", help="An input as text; NAME:=JSON for any other value."
)
@click.option(
    "--inputs",
    "file",
    type=click.File(encoding="utf-8"),
    metavar="FILE",
    help="Read inputs from a JSON file, or from standard input (-).",
)
@click.option("--json", "text", metavar="JSON", help="The inputs as one JSON object.")
@click.option("--meta", metavar="JSON", help="A JSON object that the status and webhooks return unchanged.")
@click.option(
    "--idempotency-key", metavar="KEY", help="Within 24 h the same key starts nothing new, but names the same kickoff."
)
@queue_options
@each_options
@watch_options
def command(  # noqa: PLR0913 - one for each option
    *,
    url: str,
    token: str | None,
    token_file: Any,
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

    Prints the kickoff's id; with --watch, follows it and prints its final output. What -i gives takes the place of what
    --json gives, and that of what the file gives. `windlass inputs URL` tells what the crew wants to know.

    With --each, starts it for each line of a file, follows all to their ends, and ends with 1 when one of them failed.
    Inputs that are given otherwise hold for the lines that do not have them.
    """
    body: dict[str, Any] = {"inputs": given_inputs(_text_of(file), text, pairs)}
    body |= {"meta": json_object(meta, "--meta")} if meta is not None else {}
    body |= given_members(members)
    check_together(
        each=each is not None, out=out is not None, retry_failed=retry_failed, watch=watch, json_output=json_output
    )
    if each is not None:
        from windlass.cli.each import Job, run_each

        job = Job(each.read(), each.name, body, idempotency_key, concurrency, out, patience, retry_failed=retry_failed)
        with client_for(url, token, token_file) as crew:
            return run_each(crew, job)
    body |= {"idempotencyKey": idempotency_key} if idempotency_key is not None else {}
    with client_for(url, token, token_file) as crew:
        answer = crew.kickoff(body)
        kickoff_id = str(answer.get("kickoff_id"))
        if watch:
            from windlass.cli.follow import follow

            say(f"kickoff {kickoff_id}")
            return show(follow(crew, kickoff_id, patience=patience), json_output=json_output)
    if json_output:
        give_json(answer)
    else:
        give(kickoff_id)
        say(f"Follow it with: {crew.command('status', kickoff_id, '--watch')}")
    return 0


def _text_of(file: TextIO | None) -> str | None:
    try:
        return None if file is None else file.read()
    except UnicodeDecodeError:
        raise click.UsageError(f"--inputs {file.name if file else ''}: this file is not UTF-8.") from None
