"""The options of a kickoff for its queue and its limits. Each one is a member of the request."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

Command = TypeVar("Command", bound="Callable[..., Any]")
STRATEGIES = ("enqueue", "reject", "cancel_running")


def limits_given(_: click.Context, __: click.Parameter, pairs: Iterable[str]) -> dict[str, Any] | None:
    return dict(map(limit, pairs)) or None


def limit(given: str) -> tuple[str, Any]:
    """Parses `token_limit=1000` to a number and `memory_limit=512 MB` to a text. The server checks the types."""
    name, equals, value = given.partition("=")
    if not (equals and name and value):
        raise click.BadParameter(f"{given!r}: give NAME=VALUE, such as timeout=600 or 'memory_limit=512 MB'.")
    try:
        number = json.loads(value)
    except ValueError:
        return name, value
    if not isinstance(number, int | float):
        return name, value
    if not math.isfinite(number):
        raise click.BadParameter(f"{given!r}: a limit is a finite number. Leave the option out to set no limit.")
    return name, number


def finite(_: click.Context, __: click.Parameter, seconds: float | None) -> float | None:
    if seconds is not None and not math.isfinite(seconds):
        raise click.BadParameter(
            f"{seconds} is no number of seconds. Without this option the crew's own timeout applies."
        )
    return seconds


def queue_options(command: Command) -> Command:
    """Adds an option for each of these members of the request to the command. Its name is that of the member."""
    for decorate in (
        click.option(
            "--concurrency-strategy",
            "concurrencyStrategy",
            type=click.Choice(STRATEGIES),
            help="What to do when another kickoff with the same key is open, in place of the crew's own strategy.",
        ),
        click.option(
            "--concurrency-key",
            "concurrencyKey",
            metavar="KEY",
            help="Of the crew's kickoffs with the same key, one runs at a time.",
        ),
        click.option(
            "--limit",
            "limits",
            multiple=True,
            metavar="NAME=VALUE",
            callback=limits_given,
            help="A limit of the run, such as token_limit=100000 or 'memory_limit=512 MB'; the option can be repeated.",
        ),
        click.option(
            "--timeout",
            type=click.FloatRange(min=0, min_open=True),
            callback=finite,
            metavar="SECONDS",
            help="Longest time of the kickoff from its first start.",
        ),
        click.option(
            "--run-at",
            "runAt",
            metavar="TIME",
            help="Time before which it does not start, such as 2026-01-15T09:30:00Z.",
        ),
        click.option(
            "--priority",
            type=click.IntRange(-100, 100),
            metavar="NUMBER",
            help="From -100 to 100. Kickoffs of the crew with a higher priority start first.",
        ),
    ):
        command = decorate(command)
    return command


def given_members(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}
