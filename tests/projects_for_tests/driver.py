"""A zygote and its children, spoken with over their raw sockets: as the runner does it, and with nothing around it."""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import windlass_child
from patience import DEADLINE
from projects_for_tests.ends import alive
from windlass_child.protocol.frames import Frames, encode
from windlass_child.protocol.messages import (
    Asked,
    Budget,
    Exited,
    Failed,
    Fork,
    Forked,
    Inspect,
    Inspected,
    JournalAppend,
    JournalCommitted,
    Message,
    Preload,
    ProcessEnvironment,
    Project,
    Ready,
    Run,
    Succeeded,
    Unready,
)
from windlass_child.protocol.working_folder import HOME, PLACES, WORK

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

PROGRAM = Path(windlass_child.__file__).parent / "__main__.py"

T = TypeVar("T")


def until(found: Callable[[], T], seconds: float = DEADLINE) -> T:
    """Waits until it gives something, and gives that."""
    deadline = time.monotonic() + seconds
    while not (result := found()):
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.005)
    return result


def until_gone(*pids: int) -> None:
    until(lambda: not any(map(alive, pids)))


def with_places(folder: Path) -> Path:
    """Makes the folder of a run, as the server does, for the owner of the folder if it exists."""
    folder.mkdir(parents=True, exist_ok=True)
    owner = folder.stat()
    for name in PLACES:
        (folder / name).mkdir(exist_ok=True, mode=0o700)
        os.chown(folder / name, owner.st_uid, owner.st_gid)
    return folder


class Line:
    """One end of a socket or a pipe, and all that has come through it."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.data = bytearray()
        self.descriptors: list[int] = []
        self.ended = False

    def read(self) -> bytes:
        if not select.select([self.descriptor], [], [], 0)[0]:
            return b""
        data = self._receive()
        self.ended = not data
        self.data += data
        return data

    def _receive(self) -> bytes:
        with contextlib.suppress(ConnectionResetError):
            return os.read(self.descriptor, 1 << 16)
        return b""


class Conversation(Line):
    """The messages that come through a socket."""

    def __init__(self, channel: socket.socket) -> None:
        super().__init__(channel.fileno())
        self._channel = channel
        self._frames = Frames()
        self.messages: list[Message] = []

    def _receive(self) -> bytes:
        with contextlib.suppress(ConnectionResetError):
            data, descriptors, _, _ = socket.recv_fds(self._channel, 1 << 16, 4)
            self.descriptors += descriptors
            self.messages += self._frames.feed(data)
            return data
        return b""

    def send(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        with contextlib.suppress(BrokenPipeError):
            if descriptors:
                socket.send_fds(self._channel, [encode(message)], list(descriptors))
            else:
                self._channel.sendall(encode(message))

    def of(self, kind: type[T]) -> list[T]:
        return [message for message in self.messages if isinstance(message, kind)]


def value_of(answer: object) -> Any:
    """The structured output."""
    assert isinstance(answer, Succeeded), answer
    assert answer.structured is not None
    return json.loads(answer.structured)


class DrivenChild:
    """Plays the worker to it: what it journals is committed, and it is told so, up to the entry `commits_until`."""

    def __init__(self, zygote: DrivenZygote, name: str, channel: socket.socket, output: int, errors: int) -> None:
        self._zygote = zygote
        self.name = name
        self.talk = Conversation(channel)
        self.output = Line(output)
        self.errors = Line(errors)
        self.commits_until: float = math.inf
        self._heard = 0

    def commit(self) -> None:
        """Tells it that all it has journaled is written."""
        for message in self.talk.messages[self._heard :]:
            if isinstance(message, JournalAppend) and message.number < self.commits_until:
                self.talk.send(JournalCommitted(message.number))
        self._heard = len(self.talk.messages)

    @property
    def lines(self) -> list[Line]:
        return [self.talk, self.output, self.errors]

    @property
    def pid(self) -> int:
        told = self._zygote.until(lambda: [one for one in self._zygote.talk.of(Forked) if one.child == self.name])
        return told[0].pid

    @property
    def printed(self) -> str:
        return self.output.data.decode("utf-8", "replace")

    @property
    def stacks(self) -> str:
        """What it has written of them."""
        _, file = self._zygote.until(lambda: self.talk.descriptors)
        return os.pread(file, 1 << 20, 0).decode()

    def run(self, project: Project, folder: Path, **given: Any) -> None:
        environment = {"PATH": os.defpath, "HOME": str(folder / HOME), **given.get("environment", {})}
        inputs, budget = given.get("inputs", {}), given.get("budget", Budget())
        with_places(folder)
        for entry in given.get("journal", ()):
            self.talk.send(entry)
        place = ProcessEnvironment(environment, str(folder), given.get("secrets", []))
        self.talk.send(Run("kickoff", 1, project, place, inputs, budget, **given.get("more", {})))

    def inspect(self, project: Project, folder: Path) -> None:
        with_places(folder)
        environment = {"PATH": os.defpath, "HOME": str(folder / HOME)}
        self.talk.send(Inspect(project, ProcessEnvironment(environment, str(folder))))

    def numbers(self, word: str) -> list[int]:
        """Those behind this word, once a whole line with them is printed."""

        def found() -> list[int]:
            lines = [line.split() for line in self.printed.split("\n")[:-1]]
            return next(([int(number) for number in line[1:]] for line in lines if line[:1] == [word]), [])

        return self._zygote.until(found)

    def exited(self) -> int:
        """The wait status that the zygote told."""
        ended = self._zygote.until(lambda: [one for one in self._zygote.talk.of(Exited) if one.child == self.name])
        while any(line.read() for line in self.lines if not line.ended):
            pass
        return ended[0].status

    def answer(self) -> Succeeded | Failed | Inspected:
        answers = self._zygote.until(
            lambda: [one for one in self.talk.messages if isinstance(one, Succeeded | Failed | Inspected)]
        )
        return answers[0]

    def asked(self) -> Asked:
        """Its first question to a person."""
        return self._zygote.until(lambda: self.talk.of(Asked))[0]

    def failure(self) -> Failed:
        answer = self.answer()
        assert isinstance(answer, Failed), answer
        return answer


class DrivenZygote:
    """Ended, with all that it started, at the end of its block."""

    def __init__(
        self,
        folder: Path,
        preload: str = "",
        order: Preload | None = None,
        *,
        command: Sequence[str] = (sys.executable,),
        program: Path = PROGRAM,
        environment: Mapping[str, str] | None = None,
        **started: Any,
    ) -> None:
        self._stack = contextlib.ExitStack()
        self.children: list[DrivenChild] = []
        self._of_children = contextlib.ExitStack()
        self._forked = 0
        with_places(folder)
        self._folder = folder
        ours, theirs = socket.socketpair()
        self.channel = self._stack.enter_context(ours)
        arguments = [*command, "-X", "utf8", str(program), str(theirs.fileno()), preload]
        with theirs:
            self.process = subprocess.Popen(
                arguments + (["project"] if order else []),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={"PATH": os.defpath, "HOME": str(folder / HOME), **(environment or {})},
                cwd=folder / WORK,
                start_new_session=True,
                **started,
            )
        self.talk = Conversation(ours)
        if order:
            self.talk.send(order)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self.channel.shutdown(socket.SHUT_WR)
        self.process.wait(DEADLINE)
        self._stack.close()
        self.leave_children()

    def leave_children(self) -> None:
        """Closes the sockets and pipes of all children, which end then. Each look reads those of every child."""
        self._of_children.close()
        for child in self.children:
            for descriptor in child.talk.descriptors:
                os.close(descriptor)
        self.children.clear()

    def until(self, found: Callable[[], T], seconds: float = DEADLINE) -> T:
        """As the function of this name; meanwhile all that comes is read."""

        def looked() -> T:
            for line in [self.talk, *(line for child in self.children for line in child.lines)]:
                if not line.ended:
                    line.read()
            for child in self.children:
                child.commit()
            return found()

        return until(looked, seconds)

    def ready(self) -> Ready | Unready:
        answers = self.until(lambda: [one for one in self.talk.messages if isinstance(one, Ready | Unready)])
        return answers[0]

    def run(self, project: Project, folder: Path, **inputs: object) -> DrivenChild:
        """Forks a child that runs the project in a folder of its own."""
        child = self.fork()
        child.run(project, folder / child.name, inputs=inputs)
        return child

    def fork(self, start: str = "fork") -> DrivenChild:
        name = f"child {self._forked}"
        self._forked += 1
        channel, far_end = socket.socketpair()
        self._of_children.enter_context(channel)
        with far_end:
            pipes = [os.pipe(), os.pipe()]
            folder = with_places(self._folder / name)
            self.talk.send(Fork(name, str(folder), start), [far_end.fileno(), *(write for _, write in pipes)])
            for read, write in pipes:
                os.close(write)
                self._of_children.callback(os.close, read)
        child = DrivenChild(self, name, channel, *(read for read, _ in pipes))
        self.children.append(child)
        return child
