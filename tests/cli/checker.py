"""Checks of projects in the process of the tests."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from windlass.config import Settings
from windlass.deployments.inspection import findings
from windlass.wiring.crews import runner_for_checks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from windlass.kickoffs.outcome import Outcome
    from windlass.projects.findings import Finding
    from windlass.runner import Runner
    from windlass.runner.run_spec import RunSpec

Place = tuple[str, str | None, int | None]


class Checker:
    """Does what the command does, with one runner for all tests: to import crewai takes most of the command's time.

    With `forks`, the second build of a project is in a fork of that interpreter, whose clock is ahead, too.
    """

    def __init__(self, loop: asyncio.Runner, runner: Runner) -> None:
        self._loop, self._runner = loop, runner
        self.forks = True

    def __call__(self, project: str) -> list[Finding]:
        run = self._runner.run

        async def forked(spec: RunSpec, *others: Any) -> Outcome:
            return await run(replace(spec, start="fork"), *others)

        with pytest.MonkeyPatch.context() as patch:
            if self.forks:
                patch.setattr(self._runner, "run", forked)
            return self._loop.run(findings(Path(project), self._runner, {}))

    def places(self, project: str) -> list[Place]:
        return [(one.code, one.file, one.line) for one in self(project)]


@contextmanager
def checker(home: Path) -> Iterator[Checker]:
    with asyncio.Runner() as loop, runner_for_checks(Settings(home=home), lambda _: None) as runner:
        loop.run(runner.start())
        try:
            yield Checker(loop, runner)
        finally:
            loop.run(runner.stop())
