"""The embedded database: one PostgreSQL for one server on one folder."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from windlass.embedded_postgres import keeper
from windlass.embedded_postgres.data_folder import (
    DATABASE,
    PORT,
    USER,
    command,
    ready_data,
    ready_socket_folder,
    write_settings,
)
from windlass.embedded_postgres.errors import EmbeddedPostgresError, failed, unusable
from windlass.embedded_postgres.home import Paths, account_for, check_reach, make_home
from windlass.embedded_postgres.locks import FolderLock, clear_process_files, is_held_by_command, take_database_lock
from windlass.embedded_postgres.programs import find_programs
from windlass.files import is_locked, write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from windlass.accounts import Account


PAUSE = 5.0  # seconds between attempts to replace a keeper that was killed
GONE = "gone"
FAILED = "PostgreSQL could not be started"
START_LIMIT = 300.0  # seconds; after a crash PostgreSQL first replays its write-ahead log
SIGN_OF_LIFE = 10.0  # seconds between two reports during the start
STOP_LIMIT = 20.0  # seconds; the keeper has killed PostgreSQL before that


def _silently(_: str) -> None:
    pass


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


class EmbeddedPostgres:
    """Runs PostgreSQL until `stop`, or until this process ends, however it ends.

    `report` is called with one line for each step. After the start, another thread calls it. `for_command` marks a
    database that a short command starts for its own use: another start on this home waits for its end.
    """

    def __init__(self, home: Path, *, report: Callable[[str], None] = _silently, for_command: bool = False) -> None:
        self._places = Paths(home.absolute())
        self._report = report
        self._for_command = for_command
        self._lock = FolderLock(self._places.server_lock)
        self._url: str | None = None
        self._keeper: KeeperProcess | None = None
        self._watch: threading.Thread | None = None
        self._stopping = threading.Event()
        self._change = threading.Lock()

    @property
    def url(self) -> str:
        """The URL of the running database. Raises EmbeddedPostgresError if the database does not run."""
        if self._url is None:
            raise EmbeddedPostgresError(f"The database in {self._places.home} does not run.", "Start it first.")
        return self._url

    def start(self) -> str:
        """Starts PostgreSQL and returns its URL once it answers. Raises EmbeddedPostgresError, also as HomeInUse."""
        if self._url is None:
            with ExitStack() as undo:
                undo.callback(self.stop)
                try:
                    self._start()
                except OSError as error:
                    raise unusable(self._places.home, error) from error
                undo.pop_all()
        return self.url

    def stop(self) -> None:
        """Stops PostgreSQL and returns when it has ended. May be called twice, or before `start`."""
        self._stopping.set()
        if (running := self._keeper) is not None:
            running.ask_to_stop()
        with self._change:
            running, self._keeper = self._keeper, None
        try:
            if running is not None:
                running.ask_to_stop()  # another keeper may have replaced the first one
                running.wait_until_gone()
                os.close(take_database_lock(self._places, self._report))
        finally:
            self._leave()

    def _start(self) -> None:
        self._stopping.clear()
        account = account_for(self._places.data)
        make_home(self._places.home)
        self._lock.take(self._report, for_command=self._for_command)
        self._places.url.unlink(missing_ok=True)
        self._make_folders(account)
        self._bring_up(account)
        self._watch = threading.Thread(target=self._look_after, args=(account,), daemon=True)
        self._watch.start()

    def _make_folders(self, account: Account) -> None:
        self._places.own.mkdir(mode=0o700, exist_ok=True)
        if not account.may_enter(self._places.own.stat()):
            self._places.own.chmod(0o711)  # the folders of PostgreSQL's user are inside
        check_reach(account, self._places.own)
        self._places.log.mkdir(mode=0o700, exist_ok=True)
        account.give(self._places.log)

    def _bring_up(self, account: Account) -> None:
        places = self._places
        lock = take_database_lock(places, self._report)
        try:
            programs = find_programs(account, places.programs)
            password = ready_data(places, programs, lock, self._report)
            socket_folder = ready_socket_folder(places, account)
            clear_process_files(places, socket_folder)
            write_settings(places)
            self._report(f"starting PostgreSQL {programs.version}")
            arguments = command(programs.folder / "postgres", places, socket_folder)
            self._keeper = running = KeeperProcess(places, account, socket_folder, arguments, lock)
        finally:
            os.close(lock)
        running.wait_until_ready(self._report)
        self._url = _url(password, socket_folder)
        write_whole(places.url, self._url)

    def _look_after(self, account: Account) -> None:
        while not self._stopping.is_set() and (running := self._keeper) is not None:
            message = running.listen()
            if message.word == keeper.ENDED:
                self._report(f"PostgreSQL is down, {message.text}; starting it again")
            elif message.word == keeper.READY:
                self._report("PostgreSQL runs again")
            else:
                self._replace_keeper(account)

    def _replace_keeper(self, account: Account) -> None:
        """Tries to start another keeper until one runs or `stop` is called.

        The death of a keeper is the signal for its PostgreSQL to end.
        """
        while not self._stopping.is_set():
            with self._change:
                if self._stopping.is_set() or self._replaced_keeper(account):
                    return
            self._stopping.wait(PAUSE)

    def _replaced_keeper(self, account: Account) -> bool:
        self._report("the keeper of PostgreSQL was ended; starting another")
        if self._keeper is not None:
            self._keeper.ask_to_stop()
            self._keeper.wait_until_gone()
        try:
            self._bring_up(account)
        except (EmbeddedPostgresError, OSError) as error:
            self._report(str(error))
            return False
        return True

    def _leave(self) -> None:
        if self._watch is not None:
            self._watch.join()
        self._watch = self._url = None
        if self._lock.is_taken:  # else the file is another server's
            self._places.url.unlink(missing_ok=True)
            self._lock.release()


def running_url(home: Path) -> str | None:
    """Returns the URL of the database of the server that runs on this home.

    Returns None if no server runs or its database is not ready. The database of a short command does not count, since
    it ends with the command. Raises EmbeddedPostgresError for users other than the one who runs the server.
    """
    places = Paths(home.absolute())
    try:
        if not is_locked(places.server_lock) or is_held_by_command(places.server_lock):
            return None
        return places.url.read_text()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unusable(home, error) from error


def _url(password: str, socket_folder: Path) -> str:
    return f"postgresql://{USER}:{quote(password)}@/{DATABASE}?host={quote(str(socket_folder), safe='')}&port={PORT}"
