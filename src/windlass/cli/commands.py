"""The table of commands. A command is the object with its name in the module of its group."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from windlass.cli.exit_codes import ReaderGone

if TYPE_CHECKING:
    from collections.abc import Mapping

SECTIONS = {
    "Projects": {
        "init": ("project", "Create a project that runs on the offline model."),
        "check": ("project", "Find all errors of a project in one run."),
        "setup": ("project", "Make the environment of a project from its files."),
        "dev": ("serving", "Serve the crews of projects, everything in one process."),
    },
    "Servers": {
        "serve": ("serving", "Serve many deployed crews, everything in one process."),
        "api": ("serving", "Serve the API of every crew, as one of many processes."),
        "worker": ("serving", "Run kickoffs, as one of many processes."),
        "migrate": ("migrate", "Bring the tables of the database up to date."),
        "doctor": ("doctor", "Check what Windlass needs, and show how to fix it."),
        "admin": ("commands", "Administer a server: people, backups, keys and the database."),
        "demo-llm": ("demo_llm", "Serve the offline model, for crews without an API key."),
    },
    "Deployments": {
        "deploy": ("deploy", "Deploy a project to a server."),
        "deployments": ("deployments", "List the crews of the server, and manage one."),
        "env": ("variables", "List, set and remove the variables of a deployment."),
        "webhooks": ("webhooks", "Set the webhooks that all kickoffs of a deployment have."),
        "credentials": ("credentials", "Manage the credentials for secret managers."),
    },
    "Kickoffs": {
        "inputs": ("kickoff", "Show the inputs of a crew."),
        "kickoff": ("kickoff", "Start a crew."),
        "status": ("status", "Show the result of a kickoff, or why it waits or failed."),
        "logs": ("logs", "Show what a kickoff did: its events, oldest first."),
        "files": ("files", "List the files that a run wrote, or download them."),
        "stop": ("stop", "Stop a kickoff, or all open ones with --all."),
        "kickoffs": ("kickoffs", "List kickoffs, or delete some for good."),
        "approvals": ("approvals", "List the questions that crews ask people, and answer them."),
        "deliveries": ("webhooks", "List the webhooks that were sent, and send one again."),
        "open": ("dashboard", "Open the dashboard, or the page of a crew or a kickoff."),
    },
    "Access": {
        "login": ("login", "Log in to a server, so that commands use it."),
        "logout": ("login", "Log out of a server: forget its address and token."),
        "profiles": ("login", "List the servers that you are logged in to, and choose one."),
        "login-crewai": ("login_crewai", "Let `crewai deploy` deploy to a server."),
        "tokens": ("tokens", "Create, show, list, rotate and revoke API tokens."),
    },
}
"""Maps a command to its module and the first sentence of its help, by sections. `windlass --help` imports none."""
COMMANDS = {name: found for section in SECTIONS.values() for name, found in section.items()}
ADMIN = {
    "People": {
        "first-owner": ("users", "Make the first owner of a server, and print a token."),
        "users": ("users", "Manage users, their roles and their sign-in to the dashboard."),
        "audit": ("audit", "Show who changed what on the server."),
    },
    "Data": {
        "backup": ("backups", "Write the embedded database to FILE."),
        "restore": ("backups", "Restore the embedded database from FILE, a backup."),
        "db": ("db", "Open the database in psql, or print its URL."),
    },
    "Keys": {
        "keys": ("keys", "Show and rotate the master keys, which encrypt what is stored."),
        "identity": ("identity", "Show who the server is to cloud providers and Vault."),
    },
}
"""The commands of `windlass admin`, in the same form."""
OF_ADMIN = {name: found for section in ADMIN.values() for name, found in section.items()}

LONGEST_NAME = 40
"""Characters of an unknown command that are compared with the known ones."""


class Commands(click.Group):
    """A group whose commands are in a table. A module is imported when its command is used."""

    sections: Mapping[str, Mapping[str, tuple[str, str]]] = SECTIONS

    @property
    def table(self) -> dict[str, tuple[str, str]]:
        return {name: found for section in self.sections.values() for name, found in section.items()}

    def list_commands(self, _: click.Context) -> list[str]:
        return list(self.table)

    def get_command(self, _: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.table:
            return None
        module = import_module(f"windlass.cli.{self.table[cmd_name][0]}")
        found: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self.table and not name.startswith("-"):
            similar = get_close_matches(name[:LONGEST_NAME], self.table, 1)
            if name in OF_ADMIN:
                similar = [f"admin {name}"]
            question = f" Did you mean {similar[0]!r}?" if similar else ""
            ctx.fail(f"No such command {name!r}.{question}")
        return super().resolve_command(ctx, args)

    def format_commands(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.table))
        for title, section in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:{width}}", sentence) for name, (_, sentence) in section.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # click would exit with 1, the code of a failed kickoff
            raise ReaderGone from None


class AdminCommands(Commands):
    sections = ADMIN


@click.group(cls=AdminCommands)
def admin() -> None:
    """Administer a server: people, backups, keys and the database."""


@click.group(name="windlass", cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="windlass", message="%(prog)s %(version)s")
def windlass() -> None:
    """Windlass serves crews of AI agents as a durable HTTP service.

    `windlass dev PATH` serves one project while you work on it. `windlass serve` serves many crews, which `windlass
    deploy PATH` deploys to it. Settings are WINDLASS_* variables, which docs/reference/settings.md lists.
    docs/reference/cli.md describes the commands.
    """
