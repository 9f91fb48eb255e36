from __future__ import annotations

import click

from windlass.cli.printing import say

LONGEST_NAME = 100


def user_name(_: click.Context, __: click.Parameter, value: str) -> str:
    if not (value.strip() == value != "" and value.isprintable() and len(value) <= LONGEST_NAME):
        raise click.BadParameter(f"a user's name has 1 to {LONGEST_NAME} characters that can be printed.")
    return value


@click.group
def command() -> None:
    """Add the users whose tokens see only their own kickoffs."""


@command.command
@click.argument("name", callback=user_name)
def add(name: str) -> None:
    """Add a user."""
    import shlex

    from windlass.cli.administering import administer
    from windlass.config import load

    administer(load(), lambda opened: opened.tokens.add_user(name))
    say(f"The user {name} is added. Make a token with: windlass tokens create --user {shlex.quote(name)}")
