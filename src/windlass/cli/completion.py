"""Completes the names of crews, kickoffs, credentials and secrets in a shell, from the chosen server."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterable

    from click.shell_completion import CompletionItem

SECONDS = 2.0
"""How long a shell waits for the server. A later answer is dropped."""
MOST = 100


def complete_crew(context: click.Context, _: click.Parameter, start: str) -> list[CompletionItem]:
    names = (row["slug"] for row in _asked(context, "deployments", limit=MOST))
    return _completions((name, "") for name in names if name.startswith(start))


def complete_kickoff(context: click.Context, _: click.Parameter, start: str) -> list[CompletionItem]:
    """Completes the id of one of the newest kickoffs. Shells that can show it add its state and its crew."""
    rows = _asked(context, "kickoffs", limit=MOST)
    found = ((row["kickoff_id"], f"{row['state']} {row['deployment']}") for row in rows)
    return _completions((name, words) for name, words in found if name.startswith(start))


def complete_crew_or_kickoff(context: click.Context, parameter: click.Parameter, start: str) -> list[CompletionItem]:
    return complete_crew(context, parameter, start) + complete_kickoff(context, parameter, start)


def complete_credential(context: click.Context, _: click.Parameter, start: str) -> list[CompletionItem]:
    names = (row["name"] for row in _asked(context, "credentials"))
    return _completions((name, "") for name in names if name.startswith(start))


def complete_secret(context: click.Context, _: click.Parameter, start: str) -> list[CompletionItem]:
    """Completes the name of a secret from the provider of the credential that the command names."""
    name = context.params.get("credential") or context.params.get("name")
    return _completions((one, "") for one in _asked(context, "credentials", name, "secrets", prefix=start) if name)


def _asked(context: click.Context, *path: Any, **query: Any) -> list[Any]:
    """Returns the items of an answer of the control API, [] for each error and after SECONDS: a shell shows no errors.

    The thread that asks does not keep the process alive.
    """
    found: list[Any] = []

    def ask() -> None:
        from windlass.cli.servers import chosen_server, control_of
        from windlass.errors import WindlassError

        try:
            with control_of(chosen_server(context.params.get("profile"))) as control:
                answer = control.get(*path, **query)
            found.extend(answer["items"])
        except (WindlassError, click.ClickException):
            return

    thread = threading.Thread(target=ask, name="completion", daemon=True)
    if None not in path:
        thread.start()
        thread.join(SECONDS)
    return list(found)


def _completions(found: Iterable[tuple[str, str]]) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(name, help=words or None) for name, words in found]
