"""Shows one kickoff: its progress or result, what explains its state, and all that is known of it."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import click

from windlass.cli.crew_options import Access, KickoffAt, client_at, kickoff_options, watch_options
from windlass.cli.exit_codes import FAILED
from windlass.cli.printing import notify, print_json, print_result
from windlass.cli.progress import changes, did_fail, ending, file_count, final_output, has_ended, now
from windlass.cli.show_text import describe
from windlass.cli.why_text import explain

if TYPE_CHECKING:
    from windlass.cli.crew_session import CrewClient
    from windlass.cli.progress import Status


@click.command
@kickoff_options
@watch_options
def status(kickoff: KickoffAt, access: Access, patience: float, *, watch: bool, json_output: bool) -> int:
    """Show the progress of a kickoff, or its result.

    The final output goes to standard output, everything else to standard error. Exits with 1 when the kickoff failed.
    Without URL, the kickoff is looked up on the chosen server.
    """
    with client_at(kickoff, access) as crew:
        found = _followed(crew, kickoff.id, patience) if watch else _once(crew, kickoff.id, quiet=json_output)
        command = crew.command("files", kickoff.id)
    return print_status(found, command, json_output=json_output)


def _followed(crew: CrewClient, kickoff_id: str, patience: float) -> Status:
    from windlass.cli.follow import follow

    return follow(crew, kickoff_id, patience=patience)


def _once(crew: CrewClient, kickoff_id: str, *, quiet: bool) -> Status:
    status = crew.status(kickoff_id)
    for line in () if quiet else changes(None, status):
        notify(line)
    return status


def print_status(status: Status, files: str, *, json_output: bool) -> int:
    """Prints the progress of the kickoff, or its end and its final output. Returns the exit code. `files` is the
    command that lists its files.
    """
    if json_output:
        print_json(status)
    elif not has_ended(status):
        notify(now(status, datetime.now(UTC)))
    else:
        notify(ending(status))
        if not did_fail(status):
            print_result(final_output(status))
        if count := file_count(status):
            notify(f"{count}: {files}")
    return FAILED if did_fail(status) else 0


@click.command
@kickoff_options
def why(kickoff: KickoffAt, access: Access, *, json_output: bool) -> None:
    """Explain why a kickoff waits, what it does, or why it ended.

    Also prints what to do next. Without URL, the kickoff is looked up on the chosen server.
    """
    with client_at(kickoff, access) as crew:
        status = {**crew.status(kickoff.id), **crew.actors}
        command = partial(_for_kickoff, crew, kickoff.id)
    if json_output:
        print_json(status)
        return
    for line in explain(status, datetime.now(UTC), command):
        print_result(line)


@click.command
@kickoff_options
def show(kickoff: KickoffAt, access: Access, *, json_output: bool) -> None:
    """Show a kickoff in full, with its tasks and attempts.

    Prints its state with the reason, its tasks with their times, and the tokens that it used. For each attempt, prints
    when and where it ran, how it ended, and which steps it took from the journal instead of paying for them again.
    Without URL, the kickoff is looked up on the chosen server.
    """
    with client_at(kickoff, access) as crew:
        status = {**crew.status(kickoff.id), **crew.actors}
        attempts = crew.attempts(kickoff.id).get("attempts") or []
        command = partial(_for_kickoff, crew, kickoff.id)
    if json_output:
        print_json({**status, "attempts": attempts})
        return
    for line in describe(status, attempts, datetime.now(UTC), command):
        print_result(line)


def _for_kickoff(crew: CrewClient, kickoff_id: str, command: str) -> str:
    return crew.command(command, kickoff_id)
