"""Reads the files of deployed projects in processes with bounds (docs/concepts/security.md).

Whoever may deploy chooses these files, and a small file can take a parser gigabytes and minutes. So the server parses
no file of a deployed project. A process that has read such a file counts as hostile: its answer is JSON of bounded
size, and the server checks each value of it.
"""

# See docs/decisions/deployments.md#deployed-files-are-parsed-in-a-process-with-bounds

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError

from windlass.aio import abortable
from windlass.errors import ProjectError
from windlass.projects.findings import Finding
from windlass.projects.kinds import KINDS, Recognised, entrypoint_options
from windlass.projects.kinds.declared import FILE
from windlass.projects.kinds.function import FRAMEWORKS
from windlass.projects.options import Options
from windlass.projects.packages import POETRY_LOCK, Packages
from windlass.projects.reader import Needs
from windlass.projects.requirement_lines import ARGUMENTS
from windlass.projects.uv import Abort, end_session, has_ended
from windlass.projects.uv_inputs import CONSTRAINTS, PYPROJECT, REQUIREMENTS, SYNC, UV_LOCK, Inputs, Settings
from windlass_child.protocol.messages import Project

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from windlass.accounts import Account

AT_ONCE = 2
"""Processes at once. Further questions wait for their turn."""
LARGEST_ANSWER, LARGEST_SETTINGS, LONGEST_LIST = 8 << 20, 256 << 10, 10_000
"""Bytes of an answer, characters of the settings of uv, and texts in one list."""
PACKAGE_FILES = {PYPROJECT, UV_LOCK, POETRY_LOCK, REQUIREMENTS}
UV_FILES = {PYPROJECT, UV_LOCK, REQUIREMENTS, CONSTRAINTS}
UV_ARGUMENTS = {"-r", "-c", "--no-deps", *SYNC, *UV_FILES, *(one for given in ARGUMENTS.values() for one in given)}
LONGEST_ERROR, LONGEST_FAULT, LONGEST_NAME, LONGEST_ENTRYPOINT, LONGEST_PYTHON = 4000, 200, 200, 1000, 4096
CHUNK = 64 << 10
LOOK_SECONDS, END_SECONDS = 0.02, 2.0
"""Seconds between two looks whether a process has ended, and the longest time for that after its last line."""
PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; from windlass.projects.bounded_process import main; main()"
SMALLER = "Make the files of the project smaller, or leave out those that it does not need, with a .gitignore."


class Bounds(NamedTuple):
    """Of a process: its address space in bytes, the seconds of a processor, and the seconds in all."""

    memory: int = 512 << 20
    processor: int = 20
    seconds: int = 120


BOUNDS = Bounds()


T = TypeVar("T")
Texts = Annotated[list[str], Field(max_length=LONGEST_LIST)]


class Answer(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class RecognisedAnswer(Answer):
    kind: str
    entrypoint: Annotated[str, Field(max_length=LONGEST_ENTRYPOINT)]
    preload: str | None
    name: str
    options: dict[str, JsonValue]

    def checked(self, root: Path) -> Recognised:
        """Raises ProjectError for values that no project can have."""
        kinds, frameworks = {kind.name for kind in KINDS}, {None, *FRAMEWORKS}
        parts = self.entrypoint.split("/")
        if self.kind not in kinds or self.preload not in frameworks or ".." in parts or not all(parts):
            raise _unusable()
        options = Options.parse(self.options, root / FILE, entrypoint_options())
        return Recognised(Project(self.kind, str(root), self.entrypoint), self.preload, self.name, options)


class DeclaredAnswer(Answer):
    recognised: RecognisedAnswer | None
    findings: list[Finding]


class NeedsAnswer(Answer):
    wanted: list[dict[str, str | int | None]]
    used: list[str] | None


class InputsAnswer(Answer):
    files: dict[str, str]
    arguments: Texts
    own: Texts
    indexes: Texts
    reads_project: bool

    def checked(self, root: Path, settings: Settings) -> Inputs:
        """Raises ProjectError for files and arguments that uv gets of no project."""
        of_project = {"--project", str(root), str(root / PYPROJECT)} if self.reads_project else set()
        if self.files.keys() - UV_FILES or set(self.arguments) - UV_ARGUMENTS - of_project:
            raise _unusable()
        own, indexes = tuple(self.own), tuple(self.indexes)
        return Inputs(self.files, tuple(self.arguments), settings.values, own, indexes, self.reads_project)


class PoetryAnswer(Answer):
    content: str
    is_own: bool
    own: Texts


class PackagesAnswer(Answer):
    """`python` are the constraints as texts for messages, and `fitting` the versions that satisfy all of them."""

    file: str
    python: Texts
    fitting: frozenset[str]
    settings: Annotated[str, Field(max_length=LARGEST_SETTINGS)]
    ignored: Texts
    inputs: InputsAnswer | None
    poetry: PoetryAnswer | None


@dataclass(frozen=True, slots=True)
class AnsweredPackages(Packages):
    """Packages whose constraints and poetry files a process has read. `ask` asks one for what uv gets, by the
    environment markers of an interpreter.
    """

    fitting: frozenset[str] = frozenset()
    of_poetry: PoetryAnswer | None = None
    ask: Callable[[Mapping[str, str]], Inputs] | None = field(default=None, repr=False)

    def inputs_on(self, markers: Mapping[str, str]) -> Inputs:
        if self.inputs is not None:
            return self.inputs
        assert self.ask is not None  # noqa: S101 - set where it is made
        return self.ask(markers)

    def runs_on(self, version: str) -> bool:
        return version in self.fitting

    @property
    def own(self) -> Sequence[str]:
        return self.of_poetry.own if self.of_poetry is not None else self.inputs.own if self.inputs is not None else ()

    @property
    def is_own(self) -> bool:
        return self.of_poetry.is_own if self.of_poetry is not None else self.inputs is not None and self.inputs.is_own

    @property
    def content(self) -> object:
        given = [self.inputs.files, self.inputs.arguments] if self.inputs is not None else None
        return [self.file, given, self.of_poetry and self.of_poetry.content, self.settings.values]


class BoundedReader:
    """Answers each question about a project in a new process, which runs `program`. `account` is the user of the crews,
    None for our own.

    The process has no variables of the environment, and starts no other one. It is killed at its bounds. All methods
    raise ProjectError, also for a project that takes more than these bounds.
    """

    def __init__(self, account: Account | None = None, bounds: Bounds = BOUNDS, program: str = PROGRAM) -> None:
        self._account = account
        self._bounds = bounds
        self._program = program
        self._turns = asyncio.Semaphore(AT_ONCE)  # those that wait hold no thread
        self._processes = threading.Semaphore(AT_ONCE)

    async def recognised(self, root: Path, folder: str | None = None, entrypoint: str | None = None) -> Recognised:
        """Recognises the project as `projects.kinds.recognise` does."""
        form = TypeAdapter(RecognisedAnswer)
        return (await self._answer(form, "recognised", root, str(root), folder, entrypoint)).checked(root)

    async def declared(self, path: Path, entrypoint: str | None = None) -> tuple[Recognised | None, list[Finding]]:
        found = await self._answer(TypeAdapter(DeclaredAnswer), "declared", path, str(path), entrypoint)
        return found.recognised.checked(path) if found.recognised else None, found.findings

    async def needs(self, project: Project) -> Needs:
        root = Path(project.root)
        found = await self._answer(TypeAdapter(NeedsAnswer), "needs", root, asdict(project))
        return Needs([dict(one) for one in found.wanted], found.used)

    async def findings(self, project: Project, reported: list[Finding]) -> list[Finding]:
        root, given = Path(project.root), [one.to_json() for one in reported]
        return await self._answer(TypeAdapter(list[Finding]), "findings", root, asdict(project), given)

    async def python(self, root: Path) -> str | None:
        """Returns the option `python` in the project's pyproject.toml."""
        form: TypeAdapter[str | None] = TypeAdapter(Annotated[str, Field(max_length=LONGEST_PYTHON)] | None)
        return await self._answer(form, "python", root, str(root))

    async def packages(self, root: Path) -> Packages | None:
        """Returns the packages as `projects.packages.packages_in` does."""
        form: TypeAdapter[PackagesAnswer | None] = TypeAdapter(PackagesAnswer | None)
        found = await self._answer(form, "packages", root, str(root))
        if found is None:
            return None
        values = _read(TypeAdapter(dict[str, JsonValue]), found.settings.encode())
        settings = Settings(values, (), (), tuple(found.ignored))
        if found.file not in PACKAGE_FILES or (found.inputs is None) == (found.poetry is None):
            raise _unusable()
        return AnsweredPackages(
            root,
            found.file,
            found.python,
            settings,
            None if found.inputs is None else found.inputs.checked(root, settings),
            fitting=found.fitting,
            of_poetry=found.poetry,
            ask=partial(self._inputs, root, settings),
        )

    def _inputs(self, root: Path, settings: Settings, markers: Mapping[str, str]) -> Inputs:
        """Is called by the thread that makes an environment."""
        question = self._question("inputs", root, str(root), dict(markers))
        return self._asked(TypeAdapter(InputsAnswer), question, Abort()).checked(root, settings)

    async def _answer(self, form: TypeAdapter[T], question: str, root: Path, *arguments: object) -> T:
        asked, abort = self._question(question, root, *arguments), Abort()
        async with self._turns:
            return await abortable(partial(self._asked, form, asked, abort), abort.ask)

    def _asked(self, form: TypeAdapter[T], question: bytes, abort: Abort) -> T:
        """Asks a new process, when less than AT_ONCE others run. Runs in a thread."""
        while not self._processes.acquire(timeout=LOOK_SECONDS):
            abort.check()
        try:
            return self._answered(form, question, abort)
        finally:
            self._processes.release()

    def _question(self, question: str, root: Path, *arguments: object) -> bytes:
        account = self._account
        asked = {
            "question": question,
            "arguments": arguments,
            "root": str(root),
            "user": None if account is None or account.is_ours else [account.uid, account.gid],
            "bounds": self._bounds._asdict(),
        }
        return json.dumps(asked).encode()

    def _answered(self, form: TypeAdapter[T], question: bytes, abort: Abort) -> T:
        """Asks a new process, and waits for its answer. Runs in a thread."""
        order = [sys.executable, "-I", "-S", "-X", "utf8", "-c", self._program, *filter(os.path.isabs, sys.path)]
        deadline = time.monotonic() + self._bounds.seconds
        process = subprocess.Popen(  # noqa: S603 - code of Windlass
            order,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
            cwd="/",
            start_new_session=True,
        )
        try:
            with abort.watching(process):
                printed = _conversation(process, question, deadline)
                _await_end(process, deadline)
        finally:
            end_session(process)
            status = process.wait()
        abort.check()
        *before, last = printed.split(b"\n")[:-1] or [b""]
        word, _, text = last.partition(b" ")
        if word != b"answer":
            self._raise_failure(word, text, _last_file([*before, last]), status, is_late=time.monotonic() > deadline)
        return _read(form, text)

    def _raise_failure(self, word: bytes, text: bytes, file: str, status: int, *, is_late: bool) -> NoReturn:
        after = f"; the last one that was opened is {file}" if file else ""
        cannot = "the files of the project can't be examined"
        if word == b"error":
            message, hint = _read(TypeAdapter(tuple[str, str]), text)
            raise ProjectError(message[:LONGEST_ERROR], hint[:LONGEST_ERROR])
        if word == b"fault":
            fault = _read(TypeAdapter(str), text)[:LONGEST_FAULT]
            raise ProjectError(
                f"{cannot}: {fault}{after}.", "Correct that file: it must have the form that its program writes."
            )
        if word == b"limit":
            raise ProjectError(f"{cannot} within {self._bounds.memory >> 20} MB of memory{after}.", SMALLER)
        if status == -signal.SIGXCPU:
            raise ProjectError(f"{cannot} within {self._bounds.processor} s of a processor{after}.", SMALLER)
        if is_late or status == -signal.SIGALRM:
            raise ProjectError(f"{cannot} within {self._bounds.seconds} s{after}.", SMALLER)
        raise ProjectError(f"{cannot}: the process for that ended early ({_in_words(status)}){after}.", SMALLER)


def _conversation(process: subprocess.Popen[bytes], question: bytes, deadline: float) -> bytes:
    """Returns what the process prints until it closes its output, or until the deadline. Raises ProjectError."""
    assert process.stdin is not None  # noqa: S101 - it is a pipe
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    with process.stdout as pipe:
        with suppress(BrokenPipeError), process.stdin as asked:
            asked.write(question)
        printed = bytearray()
        while len(printed) <= LARGEST_ANSWER:
            readable, _, _ = select.select([pipe], [], [], max(0, deadline - time.monotonic()))
            part = os.read(pipe.fileno(), CHUNK) if readable else b""
            if not part:
                return bytes(printed)
            printed += part
    raise ProjectError(f"the files of the project give more than {LARGEST_ANSWER >> 20} MB of facts.", SMALLER)


def _await_end(process: subprocess.Popen[bytes], deadline: float) -> None:
    until = min(deadline, time.monotonic() + END_SECONDS)
    while not has_ended(process) and time.monotonic() < until:
        time.sleep(LOOK_SECONDS)


def _last_file(lines: list[bytes]) -> str:
    for word, _, text in (one.partition(b" ") for one in reversed(lines)):
        if word == b"file":
            name = _read(TypeAdapter(str), text)
            return "".join(one if one.isprintable() else "?" for one in name[:LONGEST_NAME])
    return ""


def _in_words(status: int) -> str:
    with suppress(ValueError):
        return signal.Signals(-status).name if status < 0 else f"exit status {status}"
    return f"signal {-status}"


def _read(form: TypeAdapter[T], text: bytes) -> T:
    try:
        return form.validate_json(text)
    except ValidationError:
        raise _unusable() from None


def _unusable() -> ProjectError:
    return ProjectError(
        "the files of the project can't be examined: the process for that gave no usable answer.", SMALLER
    )
