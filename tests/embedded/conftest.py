from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from embedded.served_database import processes_of, serving, until

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from windlass.embedded.postgres import EmbeddedPostgres

_PASSED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call":
        item.stash[_PASSED] = report.passed
    return report


@pytest.fixture(scope="session")
def reachable() -> Iterator[Path]:
    """A folder that every user can pass through, which pytest's own temporary folders are not."""
    folder = Path(tempfile.mkdtemp(prefix="windlass-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def place(reachable: Path) -> Iterator[Path]:
    """Where a test makes homes of its own."""
    folder = Path(tempfile.mkdtemp(dir=reachable))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


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


def copied(home: Path, folder: Path) -> Path:
    folder.chmod(0o755)
    subprocess.run(["cp", "-a", home, folder / "home"], check=True)
    return folder / "home"
