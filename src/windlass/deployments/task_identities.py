"""Finds tasks that depend on the values of secret variables, by loading a project with made-up values."""

from __future__ import annotations

import re
import secrets
import string
from contextlib import suppress
from typing import TYPE_CHECKING

from windlass.errors import ProjectError, WindlassError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from windlass.kickoffs.manifest import Manifest

    Load = Callable[[Mapping[str, str]], Awaitable[Manifest]]

MOST_TRIED = 20
"""The variables that are tried one by one, to name the one that a task depends on."""
SCHEME = re.compile(r"[A-Za-z][\w+.-]*://")


async def check_identities(manifest: Manifest, real: Mapping[str, str], load: Load) -> str | None:
    """Raises ProjectError if a task has another identity when the secret variables have other values.

    The journal finds the results of tasks by this identity, so a new password would make other tasks of them. `real`
    are the values of the variables, with which the project has this manifest. `load` loads the project with other
    values. Returns a warning when the tasks can't be compared.
    """
    others = {name: made_up(value) for name, value in real.items()}
    try:
        changed = changed_tasks(manifest, await load(others))
        if changed and changed_tasks(manifest, await load({})):
            return f"each load gives the task {changed[0]} another identity: it depends on the time"
    except WindlassError as error:
        return (
            f"the project can't be loaded with made-up values of its secret variables, so it was not checked whether "
            f"its tasks depend on them: {error}"
        )
    if changed:
        names = ", ".join(await causes(manifest, others, load))
        raise ProjectError(
            f"the task {changed[0]} depends on the value of a secret variable ({names}): with another value it counts "
            "as another task.",
            "Remove the value from the texts of the task. Its tools and its model may use it.",
        )
    return None


async def causes(manifest: Manifest, others: Mapping[str, str], load: Load) -> list[str]:
    """Returns the variables on whose values tasks depend, or all if it can't be found out one by one."""
    found = []
    for name, value in list(others.items())[:MOST_TRIED]:
        with suppress(WindlassError):
            if changed_tasks(manifest, await load({name: value})):
                found.append(name)
    return found or list(others)


def changed_tasks(one: Manifest, other: Manifest) -> list[str]:
    """Returns the names of the tasks whose identity differs."""
    keys = [task.key for task in other.tasks] + [None] * len(one.tasks)
    changed = [
        task.name or f"number {number}"
        for number, (task, key) in enumerate(zip(one.tasks, keys, strict=False), 1)
        if task.key != key
    ]
    return changed or ([f"number {len(one.tasks) + 1}"] if len(other.tasks) > len(one.tasks) else [])


def made_up(value: str) -> str:
    """Returns another value of the same form: with other letters and digits, and the same scheme if it is a URL."""
    found = SCHEME.match(value)
    kept = found[0] if found else ""
    return kept + "".join(map(made_up_character, value[len(kept) :]))


def made_up_character(character: str) -> str:
    for alphabet in (string.digits, string.ascii_lowercase, string.ascii_uppercase):
        if character in alphabet:
            return secrets.choice(alphabet.replace(character, ""))
    return character
