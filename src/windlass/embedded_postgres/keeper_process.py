"""Starts the keeper process and receives its messages."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from windlass.embedded_postgres import keeper
from windlass.embedded_postgres.errors import failed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from windlass.accounts import Account
    from windlass.embedded_postgres.paths import Paths

GONE = "gone"
FAILED = "PostgreSQL could not be started"
START_LIMIT = 300.0  # seconds; after a crash PostgreSQL first replays its write-ahead log
SIGN_OF_LIFE = 10.0  # seconds between two reports during the start
STOP_LIMIT = 20.0  # seconds; the keeper has killed PostgreSQL before that


@dataclass(frozen=True, slots=True)
class Message:
    """A line from the keeper. The word GONE means that the keeper has ended."""

    word: str
    text: str = ""


class KeeperProcess:
    def __init__(
        self, places: Paths, account: Account, socket_folder: Path, command: Sequence[str], database_lock: int
    ) -> None:
        self._channel, theirs = socket.socketpair()
        self._received = b""
        self._home = places.home
        arguments = (
            str(account.uid),
            str(account.gid),
            str(places.data),
            str(socket_folder),
            str(places.log / "postgres.log"),
        )
        with theirs, ExitStack() as undo:
            undo.callback(self._channel.close)
            self._process = subprocess.Popen(  # noqa: S603 - a program of Windlass
                [sys.executable, "-I", "-S", keeper.__file__, *arguments, *command],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=keeper.ENVIRONMENT,
                pass_fds=(database_lock,),
                start_new_session=True,  # a terminal's Ctrl-C must reach only the server
            )
            undo.pop_all()

    def listen(self, timeout: float | None = None) -> Message:
        """Returns the next message of the keeper. Raises TimeoutError."""
        while b"\n" not in self._received:
            if not (chunk := self._receive(timeout)):
                return Message(GONE)
            self._received += chunk
        line, _, self._received = self._received.partition(b"\n")
        return Message(*line.decode().split(" ", 1))

    def _receive(self, timeout: float | None) -> bytes:
        try:
            self._channel.settimeout(timeout)
            return self._channel.recv(4096)
        except TimeoutError:
            raise
        except OSError:  # either side has closed it
            return b""

    def wait_until_ready(self, report: Callable[[str], None], limit: float = START_LIMIT) -> None:
        """Raises EmbeddedPostgresError."""
        started = time.monotonic()
        while time.monotonic() < started + limit:
            try:
                message = self.listen(SIGN_OF_LIFE)
            except TimeoutError:
                report(f"PostgreSQL is still starting ({time.monotonic() - started:.0f} s)")
                continue
            if message.word == keeper.READY:
                return
            raise failed(FAILED, self._home, message.text or "its keeper ended")
        raise failed(FAILED, self._home, f"it was not ready after {limit:.0f} s")

    def ask_to_stop(self) -> None:
        with suppress(OSError):  # the keeper has ended already
            self._channel.shutdown(socket.SHUT_WR)

    def wait_until_gone(self) -> None:
        try:
            self._process.wait(STOP_LIMIT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._channel.close()
