"""The table of commands. Each command is the object `command` of the module with its name."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from windlass.cli.exit_codes import ReaderGone

COMMANDS = {
    "dev": "Serve the crew of one project, everything in one process.",
    "check": "Find all errors of a project in one run.",
    "init": "Create a project that runs on the offline model.",
    "api": "Serve the API of every crew, as one of many processes.",
    "worker": "Run kickoffs, as one of many processes.",
    "inputs": "Show the inputs of a crew.",
    "kickoff": "Start a crew.",
    "status": "Show the progress of a kickoff, or its result.",
    "why": "Explain why a kickoff waits, what it does, or why it ended.",
    "show": "Show a kickoff in full, with its tasks and attempts.",
    "stop": "Stop a kickoff, or all open ones with --all.",
    "kickoffs": "Delete kickoffs for good.",
    "deployments": "List the crews of the server, pause and resume them.",
    "tokens": "Create, show, list, rotate and revoke API tokens.",
    "users": "Add, list, disable, enable and delete users.",
    "db": "Open the database in psql, or print its URL.",
    "backup": "Write the embedded database to FILE.",
    "restore": "Restore the embedded database from FILE, a backup.",
    "demo-llm": "Serve the offline model, for crews without an API key.",
    "doctor": "Check what Windlass needs, and show how to fix it.",
}
"""Maps a command to the first sentence of its help. With this table, `windlass --help` imports no command."""


class Commands(click.Group):
    def list_commands(self, _: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        found: click.Command = import_module(f"windlass.cli.{cmd_name.replace('-', '_')}").command
        return found

    def format_commands(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # click would exit with 1, the code of a failed kickoff
            raise ReaderGone from None


@click.group(name="windlass", cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="windlass", message="%(prog)s %(version)s")
def windlass() -> None:
    """Windlass serves crews of AI agents as a durable HTTP service.

    Start with `windlass dev PATH`. Settings are WINDLASS_* variables, which docs/settings.md lists. docs/cli.md
    describes the commands.
    """
