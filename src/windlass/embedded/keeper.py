"""Keeps PostgreSQL running for a Windlass server, and ends it when that server ends, however it ends.

A program of its own: it must start in milliseconds and outlive the server, so it uses the standard library only.
Descriptor 0 is a socket to the server; its end of file means that the server asked to stop, or died.
What the keeper says there, one a line: `ready <process id>` and `ended <why>`.
The descriptor of the database lock is inherited from the server, and by PostgreSQL from here.
"""
# ruff: noqa: PTH105, PTH106, PTH108, PTH123 - pathlib takes as long to import as all the rest

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time
from contextlib import suppress

SERVER = 0
READY = "ready"
ENDED = "ended"

# (after so many seconds, this signal): finish (twice: the first may come too early to be heard), drop everything, die
STOPPING = ((0.0, signal.SIGINT), (1.0, signal.SIGINT), (10.0, signal.SIGQUIT), (15.0, signal.SIGKILL))
CLEARING = ((0.5, signal.SIGQUIT), (3.0, signal.SIGKILL))
PAUSES = (0.0, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)  # seconds before the start after so many quick ends
LONG_LIFE = 60.0  # seconds; an end after that is no quick one

LOG_LIMIT = 5 * 1024 * 1024  # bytes in each of two files
TAIL = 4096  # bytes of output kept to say why PostgreSQL ended
ENVIRONMENT = {"LC_ALL": "C", "TZ": "UTC", "PATH": "/usr/bin:/bin"}
SOCKET_LOCK = ".s.PGSQL.5432.lock"

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


class Server:
    """The other end of the channel."""

    alive = True

    def tell(self, word: str, text: str) -> None:
        with suppress(OSError):  # it is gone, as `listen` will notice
            os.write(SERVER, f"{word} {text}\n".encode(errors="replace"))

    def listen(self) -> None:
        try:
            self.alive = bool(os.read(SERVER, TAIL))
        except OSError:
            self.alive = False

    def wait(self, seconds: float) -> None:
        if select.select([SERVER], [], [], seconds)[0]:
            self.listen()


class Log:
    """Standard error, so that an error of our own gets there too. A full disk costs lines of it, not the database."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._open()

    def write(self, chunk: bytes) -> None:
        with suppress(OSError):
            if os.fstat(sys.stderr.fileno()).st_size > LOG_LIMIT:
                os.replace(self._path, f"{self._path}.1")
                self._open()
            os.write(sys.stderr.fileno(), chunk)

    def _open(self) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        os.dup2(descriptor, sys.stderr.fileno())
        os.close(descriptor)


class Pressure:
    """Signals that get harder with time."""

    def __init__(self, steps: tuple[tuple[float, signal.Signals], ...] = ()) -> None:
        self._since = time.monotonic()
        self.steps = steps

    def due(self) -> list[signal.Signals]:
        """Each step's signal once."""
        passed = time.monotonic() - self._since
        due = [number for after, number in self.steps if after <= passed]
        self.steps = self.steps[len(due) :]
        return due


class Life:
    """One run of PostgreSQL, from its start to the end of its last process, which is the end of its output."""

    def __init__(self, command: list[str], data: str, log: Log) -> None:
        self.ready = False
        self.tail = b""
        self.status: int | None = None
        self._data = data
        self._log = log
        self._stopping = False
        self._pressure = Pressure()
        self._born = time.monotonic()
        self.pid, self.output = start(command)

    @property
    def over(self) -> bool:
        return self.output < 0 and self.status is not None

    @property
    def was_long(self) -> bool:
        return time.monotonic() - self._born > LONG_LIFE

    @property
    def patience(self) -> float:
        """Seconds until it must be looked at, though nothing was heard."""
        if self.output < 0 or not self.ready:
            return 0.005
        return 0.1 if self._pressure.steps else 1.0

    def read_output(self) -> None:
        chunk = os.read(self.output, 65536)
        if chunk:
            self.tail = (self.tail + chunk)[-TAIL:]
            self._log.write(chunk)
        else:
            os.close(self.output)
            self.output = -1

    def stop(self) -> None:
        if not self._stopping and self.status is None:
            self._stopping = True
            self._pressure = Pressure(STOPPING)

    def look(self, server: Server) -> None:
        self._reap()
        if not self.ready and self.status is None and is_ready(self._data, self.pid):
            self.ready = True
            server.tell(READY, str(self.pid))
        for number in self._pressure.due():
            for pid in [self.pid] if self.status is None else children():
                with suppress(ProcessLookupError):
                    os.kill(pid, number)

    def _reap(self) -> None:
        """PostgreSQL and what it left behind. All are our children, so none of the signals above can hit a stranger."""
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self.pid:
                    self.status = os.waitstatus_to_exitcode(ended[1])
                    self._pressure = Pressure(CLEARING)


def keep(server: Server, command: list[str], data: str, socket_folder: str, log: Log) -> None:
    """Until the server is gone; or until PostgreSQL ends before it was ready for the first time."""
    quick_ends = 0
    has_been_ready = False
    while server.alive:
        life = Life(command, data, log)
        live(life, server)
        forget(life.pid, data, socket_folder)
        has_been_ready = has_been_ready or life.ready
        if server.alive:
            server.tell(ENDED, why(life.status, life.tail))
        if not has_been_ready:
            return
        quick_ends = 1 if life.was_long else quick_ends + 1
        server.wait(PAUSES[min(quick_ends, len(PAUSES)) - 1])


def live(life: Life, server: Server) -> None:
    while not life.over:
        sources = [life.output] * (life.output >= 0) + [SERVER] * server.alive
        heard = select.select(sources, [], [], life.patience)[0]
        if SERVER in heard:
            server.listen()
        if life.output in heard:
            life.read_output()
        if not server.alive:
            life.stop()
        life.look(server)


def start(command: list[str]) -> tuple[int, int]:
    """Process id, and where its output and that of all its children can be read."""
    keeper = os.getpid()
    readable, writable = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            become(command, writable, keeper)
        except OSError as error:
            os.write(writable, f"{command[0]}: {error.strerror}\n".encode())
        finally:
            os._exit(127)
    os.close(writable)
    return pid, readable


def become(command: list[str], output: int, keeper: int) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    set_for_process(PR_SET_PDEATHSIG, signal.SIGINT)
    if os.getppid() == keeper:  # else it died before that was set, and no signal will come
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.execve(command[0], command, ENVIRONMENT)  # noqa: S606 - the server's own order


def set_for_process(option: int, value: int) -> None:
    """Linux only. Elsewhere the server, or its next start, ends a PostgreSQL whose keeper was killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def is_ready(data: str, pid: int) -> bool:
    """As pg_ctl finds it out: the first line of the file is the process, the eighth its state."""
    try:
        with open(f"{data}/postmaster.pid") as file:
            lines = file.read().splitlines()
    except OSError:
        return False
    return len(lines) > 7 and lines[0].strip() == str(pid) and lines[7].strip() == "ready"  # noqa: PLR2004 - see above


def children() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []


def forget(pid: int, data: str, socket_folder: str) -> None:
    """Takes away the files of a PostgreSQL that was killed: its number may soon be that of another process."""
    for path in (f"{data}/postmaster.pid", f"{socket_folder}/{SOCKET_LOCK}"):
        with suppress(OSError, ValueError), open(path) as file:
            if int(file.readline()) == pid:
                os.unlink(path)


def why(status: int | None, tail: bytes) -> str:
    if status is not None and status < 0:
        return f"it was ended by signal {-status}"
    lines = tail.decode(errors="replace").splitlines()
    loud = [text for line in lines for level in ("FATAL:", "PANIC:") for _, _, text in [line.partition(level)] if text]
    said = "; ".join(line.strip() for line in loud[-2:] or lines[-1:])
    return f"it ended with status {status}: {said or 'it said nothing'}"


def drop_rights(uid: int, gid: int) -> None:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)


def main(uid: str, gid: str, data: str, socket_folder: str, log: str, *command: str) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # they are for the server, which may need the database to finish
    os.umask(0o077)
    server = Server()
    try:
        drop_rights(int(uid), int(gid))
        set_for_process(PR_SET_CHILD_SUBREAPER, 1)
        keep(server, list(command), data, socket_folder, Log(log))
    except OSError as error:
        server.tell(ENDED, f"its keeper failed: {error}")
    with suppress(OSError):  # not empty, then
        os.rmdir(socket_folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
