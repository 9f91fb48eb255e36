"""Registers the project of `windlass dev`, and reports the errors that are found in the project."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.deployments.inspection import additional_findings
from windlass.deployments.registration import Registration
from windlass.errors import ProjectError
from windlass.projects.checks import declared_project
from windlass.projects.findings import Level, counts

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from windlass.projects.findings import Finding
    from windlass.runner import Runner
    from windlass.store.deployments import Deployment, DeploymentStore
    from windlass.wiring.infrastructure import Notify


def read_project(path: Path, notify: Notify) -> Registration:
    """Reads the project's pyproject.toml. Reports all errors in it before it raises ProjectError."""
    try:
        return Registration.of(path)
    except ProjectError:
        _, found = declared_project(path)
        notify_errors(found, notify)
        raise


async def loaded(
    registration: Registration, store: DeploymentStore, runner: Runner, environment: Mapping[str, str], notify: Notify
) -> Deployment:
    """Loads the project and registers it as a deployment. Raises ProjectError when the project can't be loaded.

    In both cases, reports the packages, variables and files that the project needs and that are missing.
    """
    try:
        deployment = await registration.inspect(
            store, runner, environment, lambda message: notify(f"warning: {message}")
        )
    except ProjectError:
        notify_errors(await additional_findings(registration.root, runner, environment), notify)
        raise
    notify_findings(await additional_findings(registration.root, runner, environment), notify)
    return deployment


def notify_errors(found: list[Finding], notify: Notify) -> None:
    """Reports findings with two or more errors. The exception of the failed load already reports a single error."""
    errors = [one for one in found if one.level is Level.ERROR]
    if len(errors) < 2:  # noqa: PLR2004 - more than one
        return
    notify_findings(found, notify)
    notify(counts(found))


def notify_findings(found: list[Finding], notify: Notify) -> None:
    for one in found:
        for line in one.lines():
            notify(line)
