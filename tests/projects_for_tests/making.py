"""Makes projects in folders of their own, and runs them."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import textwrap
import uuid
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patience import DEADLINE
from windlass.aio import serving
from windlass.kickoffs.files import FileLimits
from windlass.projects import Recognised, recognise
from windlass.runner import LeaseHandle, Output, Preparing, ResultSent, Runner, RunSpec
from windlass.runner.run_spec import Boundary, machine_environment
from windlass_child.process.places import WRITE
from windlass_child.protocol.messages import Event, JournalAppend, Message
from windlass_child.protocol.validation import Encoded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from windlass.kickoffs.manifest import Manifest
    from windlass.kickoffs.outcome import Outcome
    from windlass.runner import RunnerConfig, Terminator
    from windlass.runner.run_folder import RunFolder

PROJECTS = Path(__file__).parent / "projects"
PYTHON = Path(sys.executable)


def doing(kind: str, folder: Path) -> Path:
    """A project of this kind that does what it is asked to (deeds.py)."""
    project = folder / "project"
    shutil.copytree(PROJECTS / kind, project, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(PROJECTS / "deeds.py", code_of(project).parent)
    return project


def code_of(project: Path) -> Path:
    """The file where the code of a project of the conformance suite begins: the one that imports deeds.py."""
    return next(path for path in sorted(project.rglob("*.py")) if "import deeds\n" in path.read_text("utf-8"))


def written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), "utf-8")
    return folder


def function_project(folder: Path, code: str) -> Path:
    return written(folder, {"pyproject.toml": '[tool.windlass]\nentrypoint = "work:run"\n', "work.py": code})


class Heard:
    """What a run reported, and a way to wait for it. What it journals is committed, and `lease_handle` tells it so."""

    def __init__(self) -> None:
        self.all: list[Message | Output | Preparing | ResultSent] = []
        self.lease_handle = LeaseHandle()
        self._more = asyncio.Condition()

    async def report(self, message: Message | Output | Preparing | ResultSent) -> None:
        if isinstance(message, Event):
            payload: Any = message.payload
            message = replace(message, payload=payload.value if isinstance(payload, Encoded) else payload)
        async with self._more:
            self.all.append(message)
            self._more.notify_all()
        if isinstance(message, JournalAppend):
            self.lease_handle.written(message.number)

    def lines(self, stream: str) -> list[str]:
        return [one.line for one in self.all if isinstance(one, Output) and one.stream == stream]

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [one.payload for one in self.all if isinstance(one, Event) and one.type == kind]

    def of(self, kind: type[Any]) -> list[Any]:
        return [one for one in self.all if isinstance(one, kind)]

    async def until(self, found: Callable[[Message | Output | Preparing | ResultSent], bool]) -> Any:
        """The first report of which it is true; it may have come already."""
        async with asyncio.timeout(DEADLINE), self._more:
            await self._more.wait_for(lambda: any(map(found, self.all)))
        return next(filter(found, self.all))

    async def pids(self) -> list[int]:
        """Of a run that was asked to sleep: its process, and one that it started."""
        line = await self.until(lambda one: isinstance(one, Output) and one.line.startswith("asleep"))
        return [int(pid) for pid in line.line.split()[1:]]


class ScanAtEnd:
    """The hooks of a run. They scan its folder at its end, as a worker does."""

    async def begin(self, folder: RunFolder) -> None:
        self._folder = folder

    async def end(self, _: Outcome) -> None:
        await self._folder.scan(FileLimits())

    async def wait_for_slot(self) -> None:
        pass

    def process_started(self) -> None:
        pass

    def process_released(self) -> None:
        pass


class Bench:
    """A runner with the interpreter that it uses. Runs may write into `places`, and beside their project."""

    def __init__(self, runner: Runner, interpreter: Path = PYTHON) -> None:
        self.runner = runner
        self.interpreter = interpreter
        self.places: list[Path] = []

    async def inspect(
        self, project: Path, environment: dict[str, str] | None = None, heard: Heard | None = None
    ) -> Manifest:
        found, heard = recognise(project), heard or Heard()
        return await self.runner.inspect(
            self.interpreter, found.preload, found.project, environment or {}, heard.report
        )

    async def run(
        self,
        project: Path,
        inputs: dict[str, Any] | None = None,
        environment: dict[str, str] | None = None,
        heard: Heard | None = None,
        terminator: Terminator | None = None,
        **more: Any,
    ) -> Outcome:
        """`more` are further fields of the order, `limits` say."""
        order = replace(self.order(recognise(project), inputs or {}, environment or {}), **more)
        heard = heard or Heard()
        return await self.runner.run(order, heard.report, terminator, heard.lease_handle)

    def order(self, found: Recognised, inputs: dict[str, Any], environment: dict[str, str]) -> RunSpec:
        places = [Path(found.project.root).parent, *self.places]
        return RunSpec(
            kickoff_id=str(uuid.uuid4()),
            attempt=1,
            interpreter=self.interpreter,
            preload=found.preload,
            project=found.project,
            environment=environment,
            inputs=inputs,
            boundary=Boundary(files=tuple((str(place), WRITE) for place in places)),
        )


@asynccontextmanager
async def running_bench(
    scratch: Path, config: RunnerConfig | None = None, interpreter: Path = PYTHON
) -> AsyncIterator[Bench]:
    """A bench whose runner runs in the block."""
    environment = machine_environment(os.environ)  # noqa: TID251 - as windlass.config does it
    async with serving(Runner(scratch, environment, config)) as runner:
        yield Bench(runner, interpreter)
