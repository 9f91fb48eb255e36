"""Checks the interpreter of a project, and whether its crew can be loaded."""

# See docs/decisions/commands.md#a-check-runs-a-function-in-the-projects-interpreter

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from windlass.cli.checks.machine import Finding, Level
from windlass.cli.printing import notify
from windlass.offline_model.app import NOBODY_LISTENS, has_provider_key, model_environment, names_another_model
from windlass.projects import recognise
from windlass.wiring.crews import interpreters_of_command, runner_for_checks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from windlass.config import Settings
    from windlass.kickoffs.manifest import Manifest
    from windlass.projects import Interpreter
    from windlass.runner import Runner


def interpreter(project: Path) -> Finding:
    return Finding(str(chosen(project)))


def chosen(project: Path) -> Interpreter:
    recognised = recognise(project)
    root = Path(recognised.project.root)
    return interpreters_of_command(None).of(root, recognised.options.python).supported(root)


def loads(project: Path, settings: Settings, environment: Mapping[str, str]) -> Finding:
    with runner_for_checks(settings, notify) as runner:
        manifest = asyncio.run(_inspected(project, runner, environment))
    framework = f" on {manifest.framework} {manifest.framework_version}" if manifest.framework else ""
    text = f"{manifest.name}, a {manifest.kind}{framework}, tasks: {len(manifest.tasks)}"
    if manifest.warnings:
        return Finding("; ".join([text, *(warning["message"] for warning in manifest.warnings)]), Level.WARN)
    return Finding(text)


def model(environment: Mapping[str, str]) -> Finding:
    """Reports which variable chooses the model. Never reports its value."""
    if key := has_provider_key(environment):
        return Finding(f"crews use your provider: {key} is set")
    if other := names_another_model(environment):
        return Finding(
            f"crews use the model that {other} names; no provider's key is set, which it may need", Level.WARN
        )
    return Finding(
        "no provider's key is set, so crews get answers from the offline model; for another model, set its provider's "
        "key, such as OPENAI_API_KEY"
    )


async def _inspected(project: Path, runner: Runner, environment: Mapping[str, str]) -> Manifest:
    recognised = recognise(project)
    offline = model_environment(environment, NOBODY_LISTENS)
    await runner.start()
    try:
        return await runner.inspect(
            chosen(project).path,
            recognised.preload,
            recognised.project,
            {**environment, **offline},
            limits=recognised.options.limits,
        )
    finally:
        await runner.stop()
