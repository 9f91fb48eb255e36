from __future__ import annotations

import asyncio
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from embedded_postgres.backups import empty_home, fill, written
from embedded_postgres.served_database import processes_of, serving, until
from projects_for_tests.places import folder_for_all

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from windlass.embedded_postgres.postgres import EmbeddedPostgres

_PASSED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call":
        item.stash[_PASSED] = report.passed
    return report


@pytest.fixture(scope="session")
def reachable() -> Iterator[Path]:
    with folder_for_all() as folder:
        yield folder


@pytest.fixture
def place(reachable: Path) -> Iterator[Path]:
    """Where a test makes homes of its own."""
    with folder_for_all(reachable) as folder:
        yield folder


@pytest.fixture(scope="session")
def idle_homes(reachable: Path) -> list[Path]:
    """Homes whose database is whole and stopped: making or copying one takes longer than most tests."""
    first = reachable / "first"
    with serving(first):
        pass
    return [first]


@pytest.fixture
def home(request: pytest.FixtureRequest, idle_homes: list[Path], reachable: Path) -> Iterator[Path]:
    """A home with a database, which the test leaves whole and stopped, and where it found it."""
    if len(idle_homes) == 1:
        idle_homes.append(copied(idle_homes[0], Path(tempfile.mkdtemp(dir=reachable))))
    home = idle_homes.pop()
    yield home
    until(lambda: not processes_of(home), "what the test started is gone")
    if request.node.stash.get(_PASSED, False):
        idle_homes.append(home)


@pytest.fixture
def own_home(idle_homes: list[Path], place: Path) -> Iterator[Path]:
    """A home with a database, to be changed at will."""
    home = copied(idle_homes[0], place)
    yield home
    until(lambda: not processes_of(home), "what the test started is gone")


@pytest.fixture
def database(home: Path) -> Iterator[EmbeddedPostgres]:
    """It runs."""
    with serving(home) as database:
        yield database


@pytest.fixture(scope="session")
def origin(reachable: Path) -> Path:
    """A home with tables, kickoffs and a master key, which no test changes."""
    home = reachable / "origin"
    asyncio.run(fill(home))
    return home


@pytest.fixture(scope="session")
def made(origin: Path, reachable: Path) -> Path:
    """A backup of it, without the key."""
    return written(origin, reachable / "made.zip")


@pytest.fixture(scope="session")
def made_with_key(origin: Path, reachable: Path) -> Path:
    return written(origin, reachable / "made-with-key.zip", with_key=True)


@pytest.fixture
def new_home(place: Path, origin: Path) -> Path:
    """Without a database, with the key of the origin."""
    home = empty_home(place)
    shutil.copy2(origin / "master.key", home)
    return home


def copied(home: Path, folder: Path) -> Path:
    folder.chmod(0o755)
    subprocess.run(["cp", "-a", home, folder / "home"], check=True)
    return folder / "home"
