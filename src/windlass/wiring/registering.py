"""How `windlass dev` takes its project in, and says what is wrong with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.errors import ProjectError
from windlass.lifecycle.examining import lacks
from windlass.lifecycle.registration import Registration
from windlass.projects.checks import Level, counts, declared_project

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from windlass.projects.checks import Finding
    from windlass.runner import Runner
    from windlass.store.deployments import Deployment, DeploymentStore
    from windlass.wiring.ground import Say


def read_project(path: Path, say: Say) -> Registration:
    """Raises ProjectError, when all that is wrong with its pyproject.toml has been said."""
    try:
        return Registration.of(path)
    except ProjectError:
        _, found = declared_project(path)
        say_errors(found, say)
        raise


async def loaded(
    registration: Registration, store: DeploymentStore, runner: Runner, environment: Mapping[str, str], say: Say
) -> Deployment:
    """Raises ProjectError when it can't be. Either way all that it lacks has been said: packages, variables, files."""
    try:
        deployment = await registration.inspect(store, runner, environment, lambda words: say(f"warning: {words}"))
    except ProjectError:
        say_errors(await lacks(registration.root, runner, environment), say)
        raise
    say_all(await lacks(registration.root, runner, environment), say)
    return deployment


def say_errors(found: list[Finding], say: Say) -> None:
    """A single one is what the project's loading ends with: that is said by itself."""
    errors = [one for one in found if one.level is Level.ERROR]
    if len(errors) < 2:  # noqa: PLR2004 - more than one
        return
    say_all(found, say)
    say(counts(found))


def say_all(found: list[Finding], say: Say) -> None:
    for one in found:
        for line in one.lines():
            say(line)
