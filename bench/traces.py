"""What kickoffs may leave on the machine: processes, files, descriptors. Counted before and after, both are equal."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from bench.machine import below, descriptors, zygotes_below
from windlass.embedded_postgres.postgres import running_url

if TYPE_CHECKING:
    from bench.served import Served

LOCKS = "*crewai*.lock"
CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"


@dataclass(frozen=True, slots=True)
class Traces:
    zygotes: int
    processes: list[int]
    in_runs: set[str]
    in_temporary: set[str]
    lock_files: set[str]
    server_descriptors: list[str]
    zygote_descriptors: list[str]
    database_connections: int

    @property
    def server_sockets(self) -> int:
        """But those of the pool of connections to the database, which has its own bound."""
        return sockets(self.server_descriptors) - self.database_connections

    @property
    def server_rest(self) -> int:
        return len(self.server_descriptors) - self.database_connections

    @property
    def zygote_sockets(self) -> int:
        return sockets(self.zygote_descriptors)


def traces(server: Served) -> Traces:
    zygotes = zygotes_below(server.pid)
    temporary = Path(tempfile.gettempdir())
    return Traces(
        len(zygotes),
        [pid for pid in all_in(server.home / "runs") if pid not in zygotes]
        + [pid for zygote in zygotes for pid in below(zygote)],
        {str(path) for path in (server.home / "runs").rglob("*")},
        {path.name for path in temporary.iterdir()},
        {path for folder in (temporary, server.home) for path in lock_files_below(folder)},
        descriptors(server.pid),
        [one for zygote in zygotes for one in descriptors(zygote)],
        connections_in(server.home),
    )


def lock_files_below(folder: Path) -> list[str]:
    """Folders may be removed meanwhile: others use the temporary folder too."""
    found = ((within, name) for within, _, names in os.walk(folder) for name in names)
    return [f"{within}/{name}" for within, name in found if fnmatch(name, LOCKS)]


def connections_in(home: Path) -> int:
    """Of others than us to the database of the server that runs there."""
    url = running_url(home)
    assert url is not None
    with psycopg.connect(url) as connection:
        row = connection.execute(CONNECTIONS).fetchone()
    assert row is not None
    return int(row[0])


def all_in(folder: Path) -> list[int]:
    """Processes whose working folder is in it, wherever they hang in the tree."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cwd").readlink().is_relative_to(folder):
                found.append(int(process.name))
    return found


def left(before: Traces, after: Traces) -> dict[str, tuple[int, int, int]]:
    """For each kind: how many before, how many after, and how many of them are left over."""
    fresh = after.in_temporary - before.in_temporary
    return {
        "zygotes (kept on purpose)": (before.zygotes, after.zygotes, 0),
        "processes of runs": counted(len(before.processes), len(after.processes)),
        "files and folders of runs": counted(len(before.in_runs), len(after.in_runs)),
        f"entries of {tempfile.gettempdir()}": (len(before.in_temporary), len(after.in_temporary), len(fresh)),
        "lock files of crewai": counted(len(before.lock_files), len(after.lock_files)),
        "connections to the database (a pool)": (before.database_connections, after.database_connections, 0),
        "descriptors of the server, but those": counted(before.server_rest, after.server_rest),
        "  sockets among them": counted(before.server_sockets, after.server_sockets),
        "descriptors of the zygotes": counted(len(before.zygote_descriptors), len(after.zygote_descriptors)),
        "  sockets among them, of zygotes": counted(before.zygote_sockets, after.zygote_sockets),
    }


def counted(before: int, after: int) -> tuple[int, int, int]:
    return before, after, max(0, after - before)


def sockets(found: list[str]) -> int:
    return sum(one.startswith("socket:") for one in found)


def seen_by_root() -> None:
    if os.geteuid() != 0:
        raise SystemExit("Only root is told of descriptors and memory of processes that are not dumpable: run as root.")
