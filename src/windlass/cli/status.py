"""Shows one kickoff: its progress or its result, what explains its state, and with --full all that is known of it."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import click

from windlass.cli.crew_options import Access, KickoffAt, client_at, kickoff_options, watch_options
from windlass.cli.exit_codes import FAILED
from windlass.cli.printing import notify, print_json, print_result
from windlass.cli.progress import changes, did_fail, ending, file_count, final_output, has_ended, task_changes
from windlass.cli.show_text import describe
from windlass.cli.why_text import explain

if TYPE_CHECKING:
    from windlass.cli.crew_session import CrewClient
    from windlass.cli.progress import Status
    from windlass.cli.why_text import Command


@click.command
@kickoff_options
@click.option("--full", is_flag=True, help="Print all that is known, with the times of tasks and each attempt.")
@watch_options
def status(kickoff: KickoffAt, access: Access, patience: float, *, full: bool, watch: bool, json_output: bool) -> int:
    """Show the result of a kickoff, or why it waits or failed.

    The final output goes to standard output, everything else to standard error. Exits with 1 when the kickoff failed.
    With --full, everything goes to standard output: the state with the reason, the tasks with their times, and the
    tokens that it used. For each attempt, it has when and where it ran, how it ended, and which steps it took from the
    journal instead of paying for them again. Without URL, the kickoff is looked up on the chosen server.
    """
    with client_at(kickoff, access) as crew:
        found = _followed(crew, kickoff.id, patience) if watch else crew.status(kickoff.id)
        attempts = crew.attempts(kickoff.id).get("attempts") or [] if full else []
        command = partial(_for_kickoff, crew, kickoff.id)
        known = {**found, **crew.actors}
    if full and json_output:
        print_json({**known, "attempts": attempts})
    elif full:
        for line in describe(known, attempts, datetime.now(UTC), command):
            print_result(line)
    elif json_output or watch:
        return print_status(found, command("files"), json_output=json_output)
    else:
        _print_once(known, command)
    return FAILED if did_fail(found) else 0


def _followed(crew: CrewClient, kickoff_id: str, patience: float) -> Status:
    from windlass.cli.follow import follow

    return follow(crew, kickoff_id, patience=patience)


def _for_kickoff(crew: CrewClient, kickoff_id: str, command: str, *options: str) -> str:
    return crew.command(command, kickoff_id, *options)


def _print_once(status: Status, command: Command) -> None:
    """Prints the tasks, and then the result or the explanation of what the kickoff does, waits for or failed with."""
    if has_ended(status) and not did_fail(status):
        for line in changes(None, status):
            notify(line)
        print_status(status, command("files"), json_output=False)
        return
    for line in (*task_changes({}, status), *explain(status, datetime.now(UTC), command)):
        notify(line)
    _notify_files(status, command("files"))


def print_status(status: Status, files: str, *, json_output: bool) -> int:
    """Prints how the kickoff ended, and its final output. Returns the exit code. `files` is the command that lists its
    files.
    """
    if json_output:
        print_json(status)
        return FAILED if did_fail(status) else 0
    notify(ending(status))
    if not did_fail(status):
        print_result(final_output(status))
    _notify_files(status, files)
    return FAILED if did_fail(status) else 0


def _notify_files(status: Status, command: str) -> None:
    if count := file_count(status):
        notify(f"{count}: {command}")
