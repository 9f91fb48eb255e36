"""What the tests of the embedded database do to it, and where they look."""

from __future__ import annotations

import os
import pwd
import queue
import secrets
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import psutil
import psycopg

import windlass
from patience import DEADLINE
from windlass.embedded_postgres import programs
from windlass.embedded_postgres.home import Paths, account_for
from windlass.embedded_postgres.postgres import EmbeddedPostgres
from windlass.embedded_postgres.programs import find_programs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

Seen = TypeVar("Seen")
SOURCE = Path(windlass.__file__).parents[1]
ENVIRONMENT = {
    "PATH": f"{os.defpath}:/usr/sbin:/sbin",
    "PYTHONPATH": f"{SOURCE}:{programs.psql().parents[3]}",
    "PYTHONDONTWRITEBYTECODE": "1",
}
IS_ROOT = os.geteuid() == 0
NOBODY = pwd.getpwnam("nobody").pw_uid


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.01)


def ask(url: str, statement: str) -> Any:
    with psycopg.connect(url, autocommit=True, connect_timeout=10) as connection:
        row = connection.execute(statement.encode()).fetchone()
        return row[0] if row else None


def change(url: str, statement: str) -> None:
    with psycopg.connect(url, connect_timeout=10) as connection:
        connection.execute(statement.encode())


def keep(url: str) -> int:
    """Commits a number, and returns it."""
    number = secrets.randbelow(2**31)
    change(url, f"DROP TABLE IF EXISTS kept; CREATE TABLE kept AS SELECT {number} AS number")
    return number


def kept(url: str) -> int:
    return int(ask(url, "SELECT number FROM kept"))


def answers(url: str) -> bool:
    try:
        return bool(ask(url, "SELECT 1") == 1)
    except psycopg.OperationalError:
        return False


def postmaster(home: Path) -> psutil.Process:
    return psutil.Process(int((home / "postgres/data/postmaster.pid").read_text().split()[0]))


def keeper(home: Path) -> psutil.Process:
    parent = postmaster(home).parent()
    assert parent is not None
    assert "keeper.py" in " ".join(parent.cmdline())
    return parent


def processes_of(home: Path) -> list[psutil.Process]:
    """The keeper, PostgreSQL and all its children: found by what they run on, not by what the product wrote down."""
    data = str(home / "postgres/data")
    return [process for process in psutil.process_iter() if _runs_on(process, data)]


def _runs_on(process: psutil.Process, data: str) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and (process.cwd() == data or data in process.cmdline())
    except psutil.Error:
        return False


def of_each(home: Path, look: Callable[[psutil.Process], Seen]) -> list[Seen]:
    """What the processes of the home look like; without those that end while one looks."""
    seen = []
    for process in processes_of(home):
        with suppress(psutil.NoSuchProcess):
            seen.append(look(process))
    return seen


@contextmanager
def serving(home: Path, report: Callable[[str], None] = lambda _: None) -> Iterator[EmbeddedPostgres]:
    database = EmbeddedPostgres(home, report=report)
    database.start()
    try:
        yield database
    finally:
        database.stop()


@contextmanager
def stranger(**options: Any) -> Iterator[psutil.Popen]:
    """A process that has nothing to do with us, and must still be there at the end."""
    process = psutil.Popen(["sleep", "600"], **options)
    try:
        yield process
        assert process.poll() is None
    finally:
        process.kill()
        process.wait(DEADLINE)


def program(name: str, home: Path) -> str:
    """The path at which the user of the home's database can run it: a copy where the installed one is closed to it."""
    places = Paths(home)
    return str(find_programs(account_for(places.data), places.programs).folder / name)


def control_data(home: Path) -> str:
    command = [program("pg_controldata", home), str(home / "postgres/data")]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def is_shut_down(home: Path) -> bool:
    return any(
        line.split(":")[1].strip() == "shut down" for line in control_data(home).splitlines() if "cluster state" in line
    )


class ServerProcess:
    """Another process that serves the home. What it reports is in `reports`, as it comes."""

    def __init__(
        self,
        home: Path,
        python: str = sys.executable,
        user: int | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.home = home
        self.reports: list[str] = []
        self._said: queue.Queue[tuple[str, str]] = queue.Queue()
        self.process = subprocess.Popen(
            [python, str(Path(__file__).with_name("database_server.py")), str(home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT | dict(variables or {}),
            user=user,
            group=user,
            extra_groups=None if user is None else [],
            cwd="/",
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            word, _, text = line.rstrip("\n").partition(" ")
            if word == "report":
                self.reports.append(text)
            else:
                self._said.put((word, text))

    def says(self, expected: str) -> str:
        word, text = self._said.get(timeout=DEADLINE)
        assert word == expected, f"{word} {text}"
        return text

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(DEADLINE)

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.says("stopped")
        self.process.wait(DEADLINE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._reader.join(DEADLINE)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()
        until(lambda: not processes_of(self.home), "PostgreSQL is gone")
