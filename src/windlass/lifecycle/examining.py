"""What is wrong with a project, all of it at once: what its files tell, and in a child its own interpreter and code."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from windlass import config
from windlass.embedded.offline_model import NOBODY_LISTENS, model_environment
from windlass.errors import ProjectError, WindlassError
from windlass.lifecycle.parts import running
from windlass.projects.checks import (
    Finding,
    Level,
    declared_crew,
    declared_project,
    from_json,
    in_order,
    located,
)
from windlass.projects.interpreter import interpreter_of
from windlass.runner import Ender, Runner, RunOrder
from windlass.runner.ender import at_the_latest
from windlass.runner.orders import unheard
from windlass.runner.runner import INSPECTION_SECONDS, too_slow_to_load
from windlass_crewside.messages import Project, Warned

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from windlass.projects import Recognised

EXAMINER = "windlass_crewside.checking:examine"
NOBODY = "approvals_not_there"
MOST_VARIABLES = 20
STAND_IN = "windlass-check"
"""The value that a variable is given which is not set, so that what is read after it is found too."""


def findings(path: Path, machine: Mapping[str, str], environment: Mapping[str, str]) -> list[Finding]:
    """All of them, in order. `environment` is what the project's code would have in a kickoff."""

    async def examined(recognised: Recognised, interpreter: Path) -> list[Finding]:
        with TemporaryDirectory(prefix="windlass-check-") as scratch:
            async with running(Runner(Path(scratch), machine)) as runner:
                return await Examiner(runner, recognised, interpreter, {**environment, **offline}).findings()

    offline = model_environment(environment, NOBODY_LISTENS)
    return asyncio.run(_all(path, examined))


async def lacks(path: Path, runner: Runner, environment: Mapping[str, str]) -> list[Finding]:
    """Those of `findings` that need no second interpreter and that an inspection does not tell."""

    async def examined(recognised: Recognised, interpreter: Path) -> list[Finding]:
        found, _ = await Examiner(runner, recognised, interpreter, dict(environment)).lacks()
        return found

    return await _all(path, examined)


async def _all(path: Path, examined: Callable[[Recognised, Path], Awaitable[list[Finding]]]) -> list[Finding]:
    recognised, found = declared_project(path)
    found += map(of_env_line, config.unread_lines(path))
    if recognised is None:
        return in_order(found)
    try:
        interpreter = interpreter_of(Path(recognised.project.root))
    except ProjectError as error:
        return in_order([*found, *of_files(recognised, []), of_interpreter(error)])
    told = await examined(recognised, interpreter)
    return in_order([*found, *of_files(recognised, told)])


def of_files(recognised: Recognised, told: list[Finding]) -> list[Finding]:
    """What the files of a JSON crew tell, and what the child told, with its place in them."""
    project = recognised.project
    if project.kind != "json_crew":
        return told
    files = declared_crew(Path(project.root), project.entrypoint)
    placed = (located(one, files) if one.code == "declaration_invalid" else one for one in told)
    return [*files.findings, *(one for one in placed if one is not None)]


def of_env_line(line: int) -> Finding:
    """Never with what stands there, which may be a secret."""
    message = "this line names no variable and its value, or a quote in it has no end: it is passed over."
    return Finding("env_file", Level.WARNING, message, ".env", line, "Write NAME=value, or take it out.")


def of_interpreter(error: WindlassError) -> Finding:
    message, _, command = error.message.partition(" Install it: ")
    hint = error.hint or (f"Install it: {command}" if command else "Make its environment again.")
    return Finding("interpreter", Level.ERROR, message, hint=hint)


@dataclass
class Examiner:
    """Has the project examined in children, as often as it takes."""

    runner: Runner
    recognised: Recognised
    interpreter: Path
    environment: dict[str, str]

    async def findings(self) -> list[Finding]:
        found, tasks = await self.lacks()
        return found if tasks is None else [*found, *await self._warnings(tasks), *await self._unstable(tasks)]

    async def lacks(self) -> tuple[list[Finding], list[dict[str, Any]] | None]:
        """What its files and its code tell when it is loaded, and its tasks: None for one that can't be."""
        unfit = await self._warmed()
        found: list[Finding] = []
        for round_number in range(MOST_VARIABLES):
            answer, failed = await self._examine()
            if answer is None:
                return found or [unfit or failed], None
            told = [from_json(one) for one in answer["findings"]]
            if round_number > 0:  # with a value that was made up: what comes of it is not the project's fault
                told = [one for one in told if one.code != "load_failed"]
            found += told
            if answer["unset"] is None:
                break
            self.environment[answer["unset"]] = STAND_IN
        if unfit and not any(one.level is Level.ERROR for one in found):
            found.append(unfit)
        return found, answer["tasks"]

    async def _warmed(self) -> Finding | None:
        """What keeps its framework from being imported; it is examined without then."""
        try:
            await self.runner.warm(self.interpreter, self.recognised.preload)
        except WindlassError as error:
            self.recognised = replace(self.recognised, preload=None)
            return of_interpreter(error)
        return None

    async def _examine(self, *, later: bool = False) -> tuple[Any, Finding]:
        """The answer, or None and why there is none."""
        project = self.recognised.project
        ender = Ender()
        order = RunOrder(
            kickoff_id="check",
            attempt=1,
            interpreter=self.interpreter,
            preload=self.recognised.preload,
            project=Project("function", project.root, EXAMINER),
            environment=self.environment,
            inputs={"kind": project.kind, "root": project.root, "entrypoint": project.entrypoint, "later": later},
            start="exec" if later else "fork",
        )
        with at_the_latest(ender, INSPECTION_SECONDS, too_slow_to_load()):
            outcome = await self.runner.run(order, unheard, ender)
        return outcome.json, Finding(
            "load_failed",
            Level.ERROR,
            f"the project could not be loaded: {outcome.error}",
            hint="See what its code does when it is imported.",
        )

    async def _warnings(self, tasks: list[dict[str, Any]]) -> list[Finding]:
        """What a server would be told when it loads the project."""
        heard: list[Warned] = []

        async def hear(told: object) -> None:
            if isinstance(told, Warned):
                heard.append(told)

        recognised = self.recognised
        try:
            await self.runner.inspect(self.interpreter, recognised.preload, recognised.project, self.environment, hear)
        except WindlassError as error:
            return [Finding("load_failed", Level.ERROR, error.message, hint=error.hint)]
        return [warning(one, tasks) for one in heard]

    async def _unstable(self, tasks: list[dict[str, Any]]) -> list[Finding]:
        """The project is built once more, by a fresh interpreter whose clock is ahead."""
        if self.recognised.project.kind != "crew":
            return []
        answer, _ = await self._examine(later=True)
        again = answer["tasks"] if answer else None
        return [
            unstable(number, one)
            for number, (one, other) in enumerate(zip(tasks, again or (), strict=False), 1)
            if one["key"] != other["key"]
        ]


def warning(told: Warned, tasks: list[dict[str, Any]]) -> Finding:
    about = tasks[told.task] if told.task is not None and told.task < len(tasks) else {}
    hint = "Take it out, or make the answer an input of the kickoff." if told.code == NOBODY else ""
    return Finding(told.code, Level.WARNING, f"{told.message}.", about.get("file"), about.get("line"), hint)


def unstable(number: int, task: dict[str, Any]) -> Finding:
    return Finding(
        "unstable_task_description",
        Level.WARNING,
        f"the description of the task {task['name'] or number} changes with the time, or from one process to the next: "
        "after an interruption it is another task, and runs again.",
        task["file"],
        task["line"],
        "Write a placeholder, {today} say, in place of the time or whatever changes, and give it as an input.",
    )
