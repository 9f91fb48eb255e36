"""Keeps PostgreSQL running for a Windlass server, and ends PostgreSQL when that server ends, however it ends.

The keeper is a separate program that outlives the server. It uses only the standard library, so that it starts in
milliseconds. Descriptor 0 is a socket to the server. Its end of file means that the server asked to stop, or died.
The keeper writes messages there, one on each line: `ready <process id>` and `ended <why>`.
It inherits the descriptor of the database lock from the server, and PostgreSQL inherits it from the keeper.
"""
# ruff: noqa: PTH105, PTH106, PTH108, PTH123 - pathlib takes as long to import as all other modules together

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

# (seconds, signal sent after them): fast shutdown, immediate shutdown, kill. PostgreSQL may miss an early first SIGINT.
STOPPING = ((0.0, signal.SIGINT), (1.0, signal.SIGINT), (10.0, signal.SIGQUIT), (15.0, signal.SIGKILL))
CLEARING = ((0.5, signal.SIGQUIT), (3.0, signal.SIGKILL))
PAUSES = (
    0.0,
    0.1,
    0.5,
    1.0,
    2.0,
    5.0,
    10.0,
    30.0,
)  # seconds before the next start, by the number of quick ends in a row
LONG_LIFE = 60.0  # seconds; a run of at least this length has no quick end

LOG_LIMIT = 5 * 1024 * 1024  # bytes in each of the two files
TAIL = 4096  # bytes of output that are kept to report why PostgreSQL ended
ENVIRONMENT = {"LC_ALL": "C", "TZ": "UTC", "PATH": "/usr/bin:/bin"}
"""Of PostgreSQL and its programs. The server's own may hold secrets or PG* variables."""
SOCKET_LOCK = ".s.PGSQL.5432.lock"

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


class Server:
    """The channel to the server."""

    alive = True

    def send(self, word: str, text: str) -> None:
        with suppress(OSError):  # the server is gone; `listen` will notice it
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
    """The log file. Standard error is redirected to it, so that errors of the keeper are in it too.

    When the disk is full, lines are lost, but the database goes on.
    """

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


class SignalEscalation:
    """Signals that become more forceful with time."""

    def __init__(self, steps: tuple[tuple[float, signal.Signals], ...] = ()) -> None:
        self._since = time.monotonic()
        self.steps = steps

    def due(self) -> list[signal.Signals]:
        """Returns the signals that are due now, each of them once."""
        passed = time.monotonic() - self._since
        due = [number for after, number in self.steps if after <= passed]
        self.steps = self.steps[len(due) :]
        return due


class PgProcess:
    """One run of PostgreSQL, from its start to the end of its last process. The output ends with that process."""

    def __init__(self, command: list[str], data: str, log: Log) -> None:
        self.ready = False
        self.tail = b""
        self.status: int | None = None
        self._data = data
        self._log = log
        self._stopping = False
        self._pressure = SignalEscalation()
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
        """Seconds until the next look at the process if no event is received before."""
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
            self._pressure = SignalEscalation(STOPPING)

    def look(self, server: Server) -> None:
        self._reap()
        if not self.ready and self.status is None and is_ready(self._data, self.pid):
            self.ready = True
            server.send(READY, str(self.pid))
        for number in self._pressure.due():
            for pid in [self.pid] if self.status is None else children():
                with suppress(ProcessLookupError):
                    os.kill(pid, number)

    def _reap(self) -> None:
        """Reaps PostgreSQL and the processes that it left behind.

        All of them are children of the keeper. So the signals above can't hit another process.
        """
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self.pid:
                    self.status = os.waitstatus_to_exitcode(ended[1])
                    self._pressure = SignalEscalation(CLEARING)


def keep(server: Server, command: list[str], data: str, socket_folder: str, log: Log) -> None:
    """Runs PostgreSQL until the server is gone, or until PostgreSQL ends before it was ready for the first time."""
    quick_ends = 0
    has_been_ready = False
    while server.alive:
        life = PgProcess(command, data, log)
        live(life, server)
        forget(life.pid, data, socket_folder)
        has_been_ready = has_been_ready or life.ready
        if server.alive:
            server.send(ENDED, why(life.status, life.tail))
        if not has_been_ready:
            return
        quick_ends = 1 if life.was_long else quick_ends + 1
        server.wait(PAUSES[min(quick_ends, len(PAUSES)) - 1])


def live(life: PgProcess, server: Server) -> None:
    while not life.over:
        sources = [life.output] * (life.output >= 0) + [SERVER] * server.alive
        readable = select.select(sources, [], [], life.patience)[0]
        if SERVER in readable:
            server.listen()
        if life.output in readable:
            life.read_output()
        if not server.alive:
            life.stop()
        life.look(server)


def start(command: list[str]) -> tuple[int, int]:
    """Starts the command. Returns its process id and a descriptor of its output, which its children share."""
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
    if os.getppid() == keeper:  # else the keeper died before the option was set, and no signal will come
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.execve(command[0], command, ENVIRONMENT)  # noqa: S606 - the server's own command


def set_for_process(option: int, value: int) -> None:
    """Calls prctl, on Linux only.

    On other systems the server, or its next start, ends a PostgreSQL whose keeper was killed.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def is_ready(data: str, pid: int) -> bool:
    """Returns whether PostgreSQL is ready, as pg_ctl does.

    The first line of the file is the process id, the eighth the state.
    """
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
    """Removes the files of a PostgreSQL that was killed, since another process may soon have its process id."""
    for path in (f"{data}/postmaster.pid", f"{socket_folder}/{SOCKET_LOCK}"):
        with suppress(OSError, ValueError), open(path) as file:
            if int(file.readline()) == pid:
                os.unlink(path)


def why(status: int | None, tail: bytes) -> str:
    if status is not None and status < 0:
        return f"it was ended by signal {-status}"
    lines = tail.decode(errors="replace").splitlines()
    loud = [text for line in lines for level in ("FATAL:", "PANIC:") for _, _, text in [line.partition(level)] if text]
    message = "; ".join(line.strip() for line in loud[-2:] or lines[-1:])
    return f"it ended with status {status}: {message or 'it wrote no message'}"


def drop_rights(uid: int, gid: int) -> None:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)


def main(uid: str, gid: str, data: str, socket_folder: str, log: str, *command: str) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # these signals are for the server, which may need the database to finish
    os.umask(0o077)
    server = Server()
    try:
        drop_rights(int(uid), int(gid))
        set_for_process(PR_SET_CHILD_SUBREAPER, 1)
        keep(server, list(command), data, socket_folder, Log(log))
    except OSError as error:
        server.send(ENDED, f"its keeper failed: {error}")
    with suppress(OSError):  # fails if the folder is not empty
        os.rmdir(socket_folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
