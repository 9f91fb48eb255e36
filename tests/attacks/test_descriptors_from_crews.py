"""Code of a crew sends descriptors over the sockets of its processes: a close can block for as long as it likes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import tempfile
import time
from typing import TYPE_CHECKING

import pytest

from projects_for_tests.making import Bench, function_project, running_bench, written
from windlass.kickoffs.states import Reason, State
from windlass.runner.descriptors import is_in_memory, is_rollup, let_go

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="descriptors of /proc, and Linux's way of closing")

LINGER = 12
"""Seconds that a close blocks."""

LONGEST = LINGER / 2
"""Seconds that the event loop may be held up: other tests share the machine."""

SENDING = f'''
import os, socket, struct, time

def sockets():
    names = os.listdir("/proc/self/fd")
    found = [int(name) for name in names if name.isdecimal() and int(name) > 2]
    return [one for one in found if is_unix(one)]

def is_unix(descriptor):
    try:
        with socket.socket(fileno=os.dup(descriptor)) as found:
            return found.family == socket.AF_UNIX
    except OSError:
        return False

def stuck(port):
    """A socket whose close blocks, since its peer does not read."""
    made = socket.create_connection(("127.0.0.1", port))
    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, {LINGER}))
    made.setblocking(False)
    try:
        while True:
            made.send(b"x" * 65536)
    except BlockingIOError:
        return made

def send(port):
    """Closes its own at once: the last copy is in the socket then, or in the server."""
    channels = [socket.socket(fileno=os.dup(descriptor)) for descriptor in sockets()]
    for channel in channels:
        for made in [stuck(port).detach() for _ in range(3)]:
            try:
                socket.send_fds(channel, [b" "], [made])
            finally:
                os.close(made)
'''

WHILE_IT_RUNS = (
    SENDING
    + """
def run(port):
    send(port)
    time.sleep(60)
"""
)

AS_IT_ENDS = (
    SENDING
    + """
def run(port):
    send(port)
    os._exit(0)
"""
)

FROM_THE_ZYGOTE = (
    SENDING
    + """
send(PORT)

def run():
    return "ran"
"""
)

WITH_THE_FIRST_MESSAGE = (
    SENDING
    + """
from windlass_child.process import child
from windlass_child.protocol import messages

def announce(channel, stacks):
    made = [stuck(PORT) for _ in range(COUNT)]
    channel.send(messages.Born(memory=True, stacks=True), [one.fileno() for one in made])

child.be_announced = announce

def run():
    return "ran"
"""
)


BELOW_MANY_FOLDERS = """
import os
from windlass_child.process import child
from windlass_child.protocol import messages

def announce(channel, stacks):
    os.chdir("PLACE")
    for _ in range(20):  # the kernel has no name for a file whose path is longer than 4096 bytes
        os.mkdir("x" * 250)
        os.chdir("x" * 250)
    file = os.open("file", os.O_CREAT | os.O_RDWR)
    channel.send(messages.Born(memory=True, stacks=True), [file, file])

child.be_announced = announce

def run():
    return "ran"
"""


class Pauses:
    """The longest time that the event loop did nothing else."""

    longest = 0.0

    async def watch(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            self.longest = max(self.longest, time.monotonic() - before)


@pytest.fixture
async def pauses() -> AsyncIterator[Pauses]:
    pauses = Pauses()
    watching = asyncio.create_task(pauses.watch())
    yield pauses
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching


@pytest.fixture
def port() -> Iterator[int]:
    """Of a peer that reads nothing."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.bind(("127.0.0.1", 0))
        listener.listen(300)
        yield listener.getsockname()[1]


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with running_bench(tmp_path / "scratch") as bench:
        yield bench


@pytest.mark.parametrize("code", [WHILE_IT_RUNS, AS_IT_ENDS], ids=["while it runs", "as it ends"])
async def test_descriptors_that_a_run_sends_hold_nobody_up(
    bench: Bench, tmp_path: Path, port: int, pauses: Pauses, code: str
) -> None:
    outcome = await bench.run(function_project(tmp_path / "project", code), {"port": port})
    assert pauses.longest < LONGEST
    assert (outcome.state, outcome.reason) == (State.FAILED, Reason.CRASHED)
    assert "the crew's code sent open files or sockets to the server" in str(outcome.error)


async def test_descriptors_that_a_zygote_sends_hold_nobody_up(
    bench: Bench, tmp_path: Path, port: int, pauses: Pauses
) -> None:
    project = function_project(tmp_path / "project", FROM_THE_ZYGOTE.replace("PORT", str(port)))
    outcome = await bench.run(project, preload_project=True)
    await bench.runner.stop()
    assert pauses.longest < LONGEST
    assert (outcome.state, outcome.reason) == (State.FAILED, Reason.ERROR)
    assert "sent open files or sockets to the server" in str(outcome.error)


@pytest.mark.parametrize("count", [2, 20])
async def test_other_descriptors_than_those_of_the_first_message_hold_nobody_up(
    bench: Bench, tmp_path: Path, port: int, pauses: Pauses, count: int
) -> None:
    project = function_project(
        tmp_path / "project", WITH_THE_FIRST_MESSAGE.replace("PORT", str(port)).replace("COUNT", str(count))
    )
    outcome = await bench.run(project, preload_project=True)
    await bench.runner.stop()
    assert pauses.longest < LONGEST
    assert outcome.state is (State.SUCCESS if count == 2 else State.FAILED)


def test_only_the_kernels_own_file_is_read_for_the_memory_of_a_run(tmp_path: Path) -> None:
    own = os.getpid()
    with open("/proc/self/smaps_rollup") as rollup, open("/proc/self/status") as other:  # noqa: PTH123 - not a path
        assert is_rollup(rollup.fileno(), own)
        assert not is_rollup(rollup.fileno(), os.getppid())
        assert not is_rollup(other.fileno(), own)
    place = written(tmp_path / str(own), {"smaps_rollup": ""}) / "smaps_rollup"
    with place.open() as posing:
        assert not is_rollup(posing.fileno(), own)


async def test_a_descriptor_without_a_path_does_no_harm(bench: Bench, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    project = function_project(tmp_path / "project", BELOW_MANY_FOLDERS.replace("PLACE", str(place)))
    outcome = await bench.run(project, preload_project=True)
    assert outcome.state is State.SUCCESS, outcome


def test_only_a_file_in_memory_is_read_for_the_stacks_of_a_run() -> None:
    memory, (read, write) = os.memfd_create("stacks"), os.pipe()
    with tempfile.NamedTemporaryFile(prefix="memfd:") as posing:
        assert is_in_memory(memory)
        assert not is_in_memory(posing.fileno())
        assert not is_in_memory(read)
    for descriptor in (memory, read, write):
        os.close(descriptor)


async def test_descriptors_are_closed_where_no_process_can_start(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", refuse)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    reader, writer = os.pipe()
    with theirs, os.fdopen(reader, "rb") as pipe:
        socket.send_fds(theirs, [b"x"], [writer])
        await let_go(ours, [writer])
        assert ours.fileno() == -1
        assert pipe.read() == b"", "no copy of the other end is left"
