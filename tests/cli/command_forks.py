"""Runs commands of Windlass as forks of one process that has imported them: an import takes longer than most commands.

As a program, it is that process. A command has its own environment, folder, standard streams and exit code, as if it
were started by a shell.
"""

from __future__ import annotations

import atexit
import functools
import gc
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress
from importlib import import_module
from io import BufferedReader, FileIO, TextIOWrapper
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

PID_BYTES = 8
LARGEST = 1 << 16
"""Bytes of a request, and of what is typed into a command: as many as a pipe holds."""
MODULES = ("windlass.wiring.http", "windlass.wiring.work", "windlass.client.crews", "windlass.client.control")
Answer = tuple[int, bytes, bytes]


class ForkedProcess:
    """One that runs, with what the tests use of `subprocess.Popen`."""

    stdout: TextIOWrapper | None = None
    stderr: TextIOWrapper | None = None

    def __init__(self, status: FileIO, *streams: FileIO) -> None:
        """`streams` are the ends of its output and of its errors, unless it prints to a file."""
        self.pid = _pid_of(status)
        self.returncode: int | None = None
        if streams:
            self.stdout, self.stderr = (TextIOWrapper(BufferedReader(one), encoding="utf-8") for one in streams)
        self._status = status

    def poll(self) -> int | None:
        return self._within(0)

    def wait(self, timeout: float | None = None) -> int:
        """Returns the exit code, as `subprocess` has it. Raises TimeoutError."""
        code = self._within(timeout)
        if code is None:
            raise TimeoutError(f"the command has not ended within {timeout} s")
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _within(self, seconds: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], seconds)[0]:
            self.returncode = os.waitstatus_to_exitcode(int(self._status.read()))
            self._status.close()
        return self.returncode


def run(
    arguments: Sequence[str], environment: Mapping[str, str], folder: Path | None, typed: bytes, within: float
) -> Answer:
    """Returns the exit code, as `subprocess` has it, and what was printed. Raises TimeoutError."""
    with ExitStack() as stack:
        ours = [stack.enter_context(one) for one in _forked(arguments, environment, folder, typed)]
        _pid_of(ours[-1])
        out, err, status = _read_all([one.fileno() for one in ours], time.monotonic() + within)
    return os.waitstatus_to_exitcode(int(status)), out, err


def start(arguments: Sequence[str], environment: Mapping[str, str], folder: Path | None) -> ForkedProcess:
    with ExitStack() as stack:
        out, err, status = [stack.enter_context(one) for one in _forked(arguments, environment, folder, b"")]
        process = ForkedProcess(status, out, err)
        stack.pop_all()
    return process


def start_with_log(
    arguments: Sequence[str], environment: Mapping[str, str], folder: Path | None, log: Path
) -> ForkedProcess:
    """Appends all that it prints to the file."""
    with log.open("ab") as opened:
        (status,) = _forked(arguments, environment, folder, b"", [opened.fileno()] * 2)
    with ExitStack() as stack:
        process = ForkedProcess(stack.enter_context(status))
        stack.pop_all()
    return process


def _pid_of(status: FileIO) -> int:
    """Never 0, which would mean this process and its group."""
    found = int.from_bytes(status.read(PID_BYTES), "big")
    if not found:
        _server.cache_clear()
        raise ChildProcessError("The process that forks commands has ended. Its error is above.")
    return found


def _forked(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    folder: Path | None,
    typed: bytes,
    printed: Sequence[int] = (),
) -> list[FileIO]:
    """Returns the ends of its output, of its errors, and of a pipe with its process id and later its status. The first
    two are missing when it prints to the descriptors `printed`.
    """
    assert len(typed) < LARGEST
    ends = [os.pipe() for _ in range(2 if printed else 4)]
    theirs = [ends[0][0], *(write for _, write in ends[1:])]
    try:
        os.write(ends[0][1], typed)
        request = json.dumps([list(arguments), dict(environment), str(folder or os.getcwd())])  # noqa: PTH109
        socket.send_fds(_server(), [request.encode()], [theirs[0], *printed, *theirs[1:]])
    finally:
        for descriptor in (ends[0][1], *theirs):
            os.close(descriptor)
    return [FileIO(read) for read, _ in ends[1:]]


def _read_all(descriptors: list[int], deadline: float) -> list[bytes]:
    found = dict.fromkeys(descriptors, b"")
    with selectors.DefaultSelector() as selector:
        for one in descriptors:
            selector.register(one, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(deadline - time.monotonic(), 0))
            if not ready:
                raise TimeoutError(f"the command has not ended; it printed {found}")
            for key, _ in ready:
                if part := os.read(key.fd, LARGEST):
                    found[key.fd] += part
                else:
                    selector.unregister(key.fd)
    return [found[one] for one in descriptors]


@functools.cache
def _server() -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = {"PATH": os.defpath, "LANG": "C.UTF-8", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with theirs:
        process = subprocess.Popen([sys.executable, __file__], stdin=theirs.fileno(), env=environment)

    def stop() -> None:
        ours.close()
        process.wait()

    atexit.register(stop)
    return ours


def serve(requests: socket.socket) -> None:
    """Forks for each request, until the other end is closed. Returns in the process of a command, which runs it."""
    while True:
        request, descriptors, *_ = socket.recv_fds(requests, LARGEST, 4)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not request:
            os._exit(0)
        if os.fork() == 0:
            requests.close()
            *streams, status = descriptors
            if command := os.fork():
                for descriptor in (0, 1, 2, *streams):
                    os.close(descriptor)
                os.write(status, command.to_bytes(PID_BYTES, "big"))
                os.write(status, str(os.waitpid(command, 0)[1]).encode())
                os._exit(0)
            os.close(status)
            become(streams, *json.loads(request))
            return
        for descriptor in descriptors:
            os.close(descriptor)


def become(streams: list[int], arguments: list[str], environment: dict[str, str], folder: str) -> None:
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    buffered = 1 if "PYTHONUNBUFFERED" in environment else -1
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, buffering, encoding="utf-8", closefd=False)  # noqa: SIM115 - for the process's life
        for number, (mode, buffering) in enumerate([("r", -1), ("w", buffered), ("w", 1)])
    )
    os.environ.clear()  # noqa: TID251 - the command has an environment of its own
    os.environ.update(environment)  # noqa: TID251
    os.chdir(folder)
    sys.argv = ["windlass", *arguments]


def leave(code: int) -> NoReturn:
    """Ends as the interpreter does, but without the destruction of all modules, which takes longer than the command."""
    threading._shutdown()  # type: ignore[attr-defined]  # ends the threads of executors, and waits for those of others
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    from windlass.__main__ import main
    from windlass.cli.commands import COMMANDS, OF_ADMIN

    for name in {f"windlass.cli.{module}" for module, _ in (COMMANDS | OF_ADMIN).values()}.union(MODULES):
        import_module(name)
    gc.freeze()
    serve(socket.socket(fileno=os.dup(0)))
    try:
        main()
    except SystemExit as ended:
        leave(int(ended.code or 0))
