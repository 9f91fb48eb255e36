from __future__ import annotations

from typing import Any, BinaryIO, TextIO

import click

from windlass.cli.batch.options import check_together, each_options
from windlass.cli.crew_options import client_for, crew_options
from windlass.cli.input_options import given_inputs, json_object
from windlass.cli.printing import notify, notify_streams, print_json, print_result
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
    "--idempotency-key",
    metavar="KEY",
    help="A key for 24 h: a second request with it starts nothing and returns the same kickoff.",
)
@queue_options
@each_options
@watch_options
@click.option("--json-output", is_flag=True, help="Print the server's whole answer, as JSON.")
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

    Prints the kickoff's id. With --watch, follows the kickoff and prints its final output. This result goes to standard
    output, everything else to standard error. Inputs of -i override those of --json, which override those of the file.
    `windlass inputs URL` lists the inputs of the crew.

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
        with client_for(url, token, token_file) as crew:
            return run_each(crew, job)
    body |= {"idempotencyKey": idempotency_key} if idempotency_key is not None else {}
    with client_for(url, token, token_file) as crew:
        answer = crew.kickoff(body)
        kickoff_id = str(answer.get("kickoff_id"))
        if watch:
            from windlass.cli.follow import follow

            notify(f"kickoff {kickoff_id}")
            notify_streams("The final output")
            return show(follow(crew, kickoff_id, patience=patience), json_output=json_output)
    if json_output:
        print_json(answer)
    else:
        print_result(kickoff_id)
        notify_streams("The id")
        notify(f"Follow it with: {crew.command('status', kickoff_id, '--watch')}")
    return 0


def _text_of(file: TextIO | None) -> str | None:
    try:
        return None if file is None else file.read()
    except UnicodeDecodeError:
        raise click.UsageError(f"--inputs {file.name if file else ''}: this file is not UTF-8.") from None
