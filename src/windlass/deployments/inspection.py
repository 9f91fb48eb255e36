"""Finds all faults of a project at once: in its files, in its interpreter and, by a child process, in its code."""

# See docs/decisions/deployments.md#a-project-is-loaded-with-its-real-variables-first

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windlass.deployments.environment import is_withheld, unread_lines
from windlass.errors import ProjectError, WindlassError
from windlass.offline_model.app import NOBODY_LISTENS, model_environment
from windlass.projects import Interpreters
from windlass.projects.findings import Finding, Level, from_json, in_order
from windlass.projects.kinds import folder_of, function_project, kind_named
from windlass.projects.reader import DirectReader
from windlass.runner import RunSpec, Terminator
from windlass.runner.inspection import how_to_install, while_loading
from windlass.runner.run_spec import Boundary, discard
from windlass_child.protocol.messages import Warned

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from windlass.projects import Interpreter, Recognised
    from windlass.projects.reader import Needs, Reader
    from windlass.runner import Runner

EXAMINER = "windlass_child.checks:examine"
MOST_VARIABLES = 20
STAND_IN = "windlass-check"
"""The value for a variable that is not set. The code continues with it, so that variables read later are found too."""


async def findings(
    path: Path,
    runner: Runner,
    environment: Mapping[str, str],
    interpreters: Interpreters | None = None,
    chosen: Callable[[Interpreter], None] | None = None,
) -> list[Finding]:
    """Returns all findings, in order. Calls `chosen` with the interpreter that the project is loaded in.

    `environment` is the environment that the project's code would have in a kickoff. The runner treats the code as in a
    kickoff: it uses the same system user and the same limits.
    """
    offline, reader = model_environment(environment, NOBODY_LISTENS), DirectReader()

    async def examined(recognised: Recognised, interpreter: Path) -> list[Finding]:
        return await Examiner(runner, recognised, interpreter, {**environment, **offline}, reader).findings()

    def choose(recognised: Recognised) -> Path:
        root = Path(recognised.project.root)
        found = (interpreters or Interpreters()).of(root, recognised.options.python).supported(root)
        if chosen is not None:
            chosen(found)
        return found.path

    return await _all(path, examined, choose, reader)


async def additional_findings(
    path: Path,
    runner: Runner,
    environment: Mapping[str, str],
    chosen: Interpreter,
    reader: Reader,
    entrypoint: str | None = None,
    *,
    is_loaded: bool = False,
    boundary: Boundary | None = None,
) -> list[Finding]:
    """Returns the `findings` that need no second interpreter and that an inspection does not report.

    `reader` reads the project's files. `entrypoint` is as of `kinds.recognise`. If an inspection has loaded the
    project without a fault (`is_loaded`), its code runs again only to construct a flow.
    """

    async def examined(recognised: Recognised, interpreter: Path) -> list[Finding]:
        where = boundary or Boundary()
        examiner = Examiner(runner, recognised, interpreter, dict(environment), reader, is_loaded, where)
        found, _ = await examiner.load_findings()
        return found

    return await _all(path, examined, lambda _: chosen.path, reader, entrypoint)


async def _all(
    path: Path,
    examined: Callable[[Recognised, Path], Awaitable[list[Finding]]],
    choose: Callable[[Recognised], Path],
    reader: Reader,
    entrypoint: str | None = None,
) -> list[Finding]:
    recognised, found = await reader.declared(path, entrypoint)
    found += map(of_env_line, await asyncio.to_thread(lambda: unread_lines(folder_of(path))))
    if recognised is None:
        return in_order(found)
    try:
        interpreter = choose(recognised)
    except ProjectError as error:
        of_files = await reader.findings(recognised.project, [])
        return in_order([*found, *of_files, of_interpreter(error, recognised.project.root)])
    reported = await examined(recognised, interpreter)
    return in_order([*found, *await reader.findings(recognised.project, reported)])


def of_env_line(line: int) -> Finding:
    """Leaves out the text of the line, which may be a secret."""
    message = "this line is not NAME=value, or a quote in it is not closed. The line is ignored."
    return Finding("env_file", Level.WARNING, message, ".env", line, "Write NAME=value, or remove the line.")


def of_interpreter(error: WindlassError, root: str) -> Finding:
    return Finding("interpreter", Level.ERROR, error.message, hint=error.hint or how_to_install(root))


@dataclass
class Examiner:
    """Examines a project in child processes. Each variable that is not set takes one more child."""

    runner: Runner
    recognised: Recognised
    interpreter: Path
    environment: dict[str, str]
    reader: Reader
    is_loaded: bool = False
    boundary: Boundary = field(default_factory=Boundary)
    _needs: Needs | None = None

    async def findings(self) -> list[Finding]:
        found, tasks = await self.load_findings()
        return found if tasks is None else [*found, *await self._warnings(tasks), *await self._unstable(tasks)]

    async def load_findings(self) -> tuple[list[Finding], list[dict[str, Any]] | None]:
        """Returns the findings of loading the project, and its tasks. The tasks are None when it can't be loaded."""
        unfit = await self._warmed()
        found: list[Finding] = []
        for round_number in range(MOST_VARIABLES):
            answer, failed = await self._examine()
            if answer is None:
                return found or [unfit or failed], None
            reported = [self._with_setting_hint(from_json(one), answer["unset"]) for one in answer["findings"]]
            if round_number > 0:  # a variable has the stand-in value: a failure may come from it, not from the project
                reported = [one for one in reported if one.code != "load_failed"]
            found += reported
            if answer["unset"] is None:
                break
            self.environment[answer["unset"]] = STAND_IN
        if unfit and not any(one.level is Level.ERROR for one in found):
            found.append(unfit)
        return found, answer["tasks"]

    async def _warmed(self) -> Finding | None:
        """Imports the project's framework in a zygote. Returns a finding when that fails, and then examines the project
        without the preload.
        """
        try:
            await self.runner.warm(self.interpreter, self.recognised.preload)
        except WindlassError as error:
            self.recognised = replace(self.recognised, preload=None)
            return of_interpreter(error, self.recognised.project.root)
        return None

    async def _examine(self, *, later: bool = False) -> tuple[Any, Finding]:
        """Returns the child's answer, and a `load_failed` finding. The finding applies when the answer is None."""
        project = await self.runner.access.reachable(self.recognised.project)
        self._needs = self._needs or await self.reader.needs(self.recognised.project)
        terminator = Terminator()
        spec = RunSpec(
            kickoff_id="check",
            attempt=1,
            interpreter=self.interpreter,
            preload=self.recognised.preload,
            project=function_project(project.root, EXAMINER),
            environment=self.environment,
            inputs={
                "kind": project.kind,
                "root": project.root,
                "entrypoint": project.entrypoint,
                "later": later,
                "is_loaded": self.is_loaded,
                "wanted": self._needs.wanted,
                "used": self._needs.used,
            },
            limits=self.runner.limits_of(self.recognised.options.limits),
            start="exec" if later else "fork",
            boundary=self.boundary,
        )
        with while_loading(terminator):
            outcome = await self.runner.run(spec, discard, terminator)
        answer = outcome.json
        for one in answer["findings"] if answer else ():  # crews may use a copy of the project
            one["hint"] = one["hint"].replace(project.root, self.recognised.project.root)
        return answer, Finding(
            "load_failed",
            Level.ERROR,
            f"the project could not be loaded: {outcome.error}",
            hint="Check the code that runs when the project is imported.",
        )

    def _with_setting_hint(self, found: Finding, unset: str | None) -> Finding:
        """Adds the setting that passes the variable, if the variable is set for Windlass and withheld from crews."""
        if found.code != "unset_variable" or unset is None or not is_withheld(unset, self.environment):
            return found
        hint = f"Windlass has this variable and does not pass it to crews. Set WINDLASS_CREW_ENV={unset} to pass it."
        return replace(found, hint=hint)

    async def _warnings(self, tasks: list[dict[str, Any]]) -> list[Finding]:
        """Returns the warnings that a server gets when it loads the project."""
        received: list[Warned] = []

        async def receive(message: object) -> None:
            if isinstance(message, Warned):
                received.append(message)

        recognised = self.recognised
        try:
            await self.runner.inspect(
                self.interpreter,
                recognised.preload,
                recognised.project,
                self.environment,
                receive,
                recognised.options.limits,
                boundary=self.boundary,
            )
        except WindlassError as error:
            return [Finding("load_failed", Level.ERROR, error.message, hint=error.hint)]
        return [warning(one, tasks) for one in received]

    async def _unstable(self, tasks: list[dict[str, Any]]) -> list[Finding]:
        """Builds the project again, in a new interpreter whose clock is ahead. Returns a warning for each task whose
        key differs.
        """
        if not tasks or not kind_named(self.recognised.project.kind).texts_from_code:
            return []
        answer, _ = await self._examine(later=True)
        again = answer["tasks"] if answer else None
        return [
            unstable(number, one)
            for number, (one, other) in enumerate(zip(tasks, again or (), strict=False), 1)
            if one["key"] != other["key"]
        ]


def warning(warned: Warned, tasks: list[dict[str, Any]]) -> Finding:
    about = tasks[warned.task] if warned.task is not None and warned.task < len(tasks) else {}
    text = f"{warned.message.rstrip('.')}."
    return Finding(warned.code, Level.WARNING, text, about.get("file"), about.get("line"), "")


def unstable(number: int, task: dict[str, Any]) -> Finding:
    return Finding(
        "unstable_task_description",
        Level.WARNING,
        f"the description of the task {task['name'] or number} depends on the time or on the process. After an "
        "interruption the task counts as another task, and runs again.",
        task["file"],
        task["line"],
        "Replace the changing value with a placeholder such as {today}, and pass the value as an input.",
    )
