"""Checks and closes descriptors that arrive from processes that run code of crews.

The sender can make a close block as long as it likes: with a TCP socket with SO_LINGER whose peer does not read, or
with a file of a slow file system. The sender can block fstat and a read in the same way.
"""

# See docs/decisions/runner.md#a-child-sends-a-descriptor-of-its-smaps_rollup

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import re
import resource
import socket
import stat
import sys
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CHUNK = 1 << 16
CLOSE_SECONDS = 2.0
"""The time of the process that closes descriptors. Then it is killed, which ends a close that waits for a peer. The run
that sent the descriptors keeps its slot meanwhile.
"""

ENOUGH = 65_536
"""The descriptors of a server. Its processes inherit the number, and some Pythons close as many one by one."""
CLOSE = "import os, sys; sys.stdin.read(); [os.close(int(number)) for number in sys.argv[1:]]"
ROLLUP = "/proc/self/smaps_rollup"
MOUNT = re.compile(rb"^mnt_id:\s+(\d+)$", re.MULTILINE)


def is_rollup(descriptor: int, pid: int) -> bool:
    """Returns whether it is the kernel's smaps_rollup of this process. Calls no file system.

    The smaps_rollup of another, small process would hide the memory of the run.
    """
    if sys.platform != "linux":
        return is_file(descriptor)
    mount = mounts_of_ours()[0]
    if mount is None or mount_of(descriptor) != mount:
        return False
    return Path(f"/proc/self/fd/{descriptor}").readlink().parts[-2:] == (str(pid), "smaps_rollup")


def is_in_memory(descriptor: int) -> bool:
    """Returns whether it is a file without a name in memory (memfd). Calls no file system."""
    if sys.platform != "linux":
        return is_file(descriptor)
    mount = mounts_of_ours()[1]
    return mount is not None and mount_of(descriptor) == mount


def is_file(descriptor: int) -> bool:
    return stat.S_ISREG(os.fstat(descriptor).st_mode)


@functools.cache
def mounts_of_ours() -> tuple[bytes | None, bytes | None]:
    """Returns the mounts of this process's own smaps_rollup and of a memfd. The mount identifies the kind of a file,
    because a file on another mount can have any name.
    """
    memory = os.memfd_create("windlass")
    try:
        with contextlib.suppress(OSError), Path(ROLLUP).open("rb") as rollup:
            return mount_of(rollup.fileno()), mount_of(memory)
        return None, mount_of(memory)
    finally:
        os.close(memory)


def mount_of(descriptor: int) -> bytes | None:
    with contextlib.suppress(OSError):
        found = MOUNT.search(Path(f"/proc/self/fdinfo/{descriptor}").read_bytes())
        return found[1] if found else None
    return None


async def let_go(channel: socket.socket, descriptors: Sequence[int] = ()) -> None:
    """Closes a socket that code of a crew could send to, and descriptors that arrived on it.

    Unread bytes are discarded with the socket. If unread descriptors are among them, a process that is started for this
    holds their last copies, so that no close blocks the server.
    """
    with contextlib.suppress(OSError):
        channel.shutdown(socket.SHUT_RDWR)  # nothing more can be sent
    with contextlib.ExitStack() as closed:
        closed.callback(channel.close)
        if not descriptors and not holds_descriptors(channel):
            return
        try:
            closing = await closing_process([channel.fileno(), *descriptors])
        except OSError:  # no process can start, for example under a fork bomb: a thread closes all of them
            closed.pop_all()
            await in_a_thread(partial(close_all, [channel.detach(), *descriptors]))
            return
    await in_a_thread(partial(close_all, descriptors))
    try:
        await asyncio.wait_for(closing.communicate(), CLOSE_SECONDS)
    except TimeoutError:
        closing.kill()


def holds_descriptors(channel: socket.socket) -> bool:
    """Reads the rest of a socket up to its end or to the first descriptors. Returns whether there are descriptors."""
    with contextlib.suppress(OSError):
        while size := size_of_next(channel):
            channel.recv(size)
        return size is None
    return False


def size_of_next(channel: socket.socket) -> int | None:
    """Returns the number of bytes of the next read, None for bytes that come with descriptors. Raises BlockingIOError.

    The bytes stay in the socket: to read them would close the descriptors in this process, even if it does not receive
    them.
    """
    data, _, flags, _ = channel.recvmsg(CHUNK, 0, socket.MSG_PEEK)
    return None if flags & socket.MSG_CTRUNC else len(data)


async def closing_process(descriptors: Sequence[int]) -> asyncio.subprocess.Process:
    """Starts a process that closes its copies of the descriptors when its standard input ends."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *("-I", "-S", "-c", CLOSE, *map(str, descriptors)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        pass_fds=descriptors,
        env={},
    )


async def in_a_thread(work: Callable[[], None]) -> None:
    """Runs `work` in a new thread, and waits for CLOSE_SECONDS at most. The thread may block for ever: it ends with the
    server.
    """
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def run() -> None:
        work()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(done.set)

    threading.Thread(target=run, name="windlass-close", daemon=True).start()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(done.wait(), CLOSE_SECONDS)


def make_room() -> None:
    """Permits this process ENOUGH descriptors, or as many as the machine permits: each run has a listening socket for
    each port, and two descriptors for each of its connections.
    """
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if now < min(ENOUGH, most):
        with contextlib.suppress(OSError, ValueError):  # a container can forbid it
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(ENOUGH, most), most))


def close_all(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)
