"""The table of commands, each in the module of its name, as `command`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from windlass.cli.ending import ReaderGone

COMMANDS = {
    "dev": "Serve the crew of one project, everything in one process.",
    "check": "Find what is wrong with a project, all of it at once.",
    "init": "Make a project that runs at once on the offline model.",
    "api": "Serve the API of every crew, as one of many processes.",
    "worker": "Run kickoffs, as one of many processes.",
    "inputs": "Show what a crew wants to know.",
    "kickoff": "Start a crew.",
    "status": "Show how far a kickoff is, and what came of it.",
    "why": "Tell what a kickoff waits for, what it does, or why it ended.",
    "show": "Tell all about a kickoff: its tasks, and each attempt.",
    "stop": "Stop a kickoff.",
    "deployments": "List the crews of the server, pause and resume them.",
    "tokens": "Make, show, list, rotate and revoke API tokens.",
    "users": "Add the users whose tokens see only their own kickoffs.",
    "db": "Look into the database.",
    "backup": "Write the embedded database to FILE.",
    "restore": "Make the embedded database from FILE, a backup.",
    "demo-llm": "Serve the offline model, for crews without an API key.",
    "doctor": "Check what Windlass needs, and tell how to mend it.",
}
"""Name -> the first sentence of the command's help, known here so that listing all commands imports none."""


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
        except BrokenPipeError:  # click would end with 1, which is a kickoff that failed
            raise ReaderGone from None


@click.group(name="windlass", cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="windlass", message="%(prog)s %(version)s")
def windlass() -> None:
    """Windlass serves crews of AI agents as a durable HTTP service.

    Begin with `windlass dev PATH`. Settings are WINDLASS_* variables: docs/settings.md lists them, docs/cli.md the
    commands.
    """
