from __future__ import annotations

import functools
import gc
import itertools
import os
import random
import re
import signal
import sys
from compileall import compile_dir
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
import pytest_asyncio
from _pytest.assertion import rewrite
from hypothesis import settings
from psycopg.sql import SQL, Identifier

from dashboard.browser import Tabs, launched
from projects_for_tests.homes import give_database, new_folder, share
from projects_for_tests.places import folder_for_all
from store.shared_database import TEMPLATE, connected, empty, hurry, made, objects
from windlass.embedded_postgres.postgres import EmbeddedPostgres

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from playwright.async_api import Browser

    from windlass.store.database import Database

# A property is about values; how long one example takes on a busy machine is not its business.
# Each run of the tests has other examples.
settings.register_profile("unhurried", deadline=None, max_examples=30)
settings.load_profile("unhurried")

PROJECTS = re.compile("/projects_for_tests/projects/|/templates/")
"""Of files that tests copy, without byte code."""

_numbers = itertools.count(1)


STARTS = {"os.fork", "os.forkpty", "os.posix_spawn", "socket.bind", "socket.connect", "subprocess.Popen"}
"""Events of the interpreter that no unit test causes: one that starts a process, or that connects to one."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--order-seed", type=int, help="run the modules, and the tests of each, in a random order of this seed"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Rewrites the assertions of changed modules once, also where Python may write no byte code: otherwise each process
    of pytest-xdist does so for all modules, which takes seven seconds. Compiles the other modules once, too.
    """
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        let_signals_reach_what_is_started()
    if hasattr(config, "workerinput"):
        gc.disable()  # until all tests are collected
        share(Path(config.workerinput["home"]))
    if not config.getoption("numprocesses", None) or hasattr(config, "workerinput"):
        return
    for folder in ("src", "tests"):
        compile_dir(config.rootpath / folder, rx=PROJECTS, quiet=2)
    changed = [path for path in modules_of(config) if rewrite._read_pyc(path, cached(path)) is None]
    half = os.fork() if len(changed) > 1 else 1
    for path in changed[bool(half) :: 2] if len(changed) > 1 else changed:
        with suppress(OSError, SyntaxError):  # its process reports the error
            stat, code = rewrite._rewrite_test(path, config)
            rewrite.try_makedirs(cached(path).parent)
            rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, stat, cached(path))
    if not half:
        os._exit(0)
    if len(changed) > 1:
        os.waitpid(half, 0)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Shuffles modules and the tests within them. Each process of pytest-xdist gets the same order."""
    if (seed := config.getoption("--order-seed")) is not None:
        chance = random.Random(seed)
        places = {path: chance.random() for path in dict.fromkeys(item.path for item in items)}
        items.sort(key=lambda item: (places[item.path], chance.random()))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fails a test of `make test-unit` that starts a process or opens a connection."""
    if item.config.getoption("markexpr") == "unit" and not _forbidding:
        _forbidding.append(True)
        sys.addaudithook(refuse_processes)
    return (yield)


_forbidding: list[bool] = []


def refuse_processes(event: str, _: object) -> None:
    if event in STARTS:
        raise AssertionError(f"a unit test may not cause {event}: remove the mark `unit` from its module")


def pytest_collection_finish() -> None:
    """What the collection made stays, and each later collection of garbage would look at it again."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_configure_node(node: Any) -> None:
    """Gives each process of pytest-xdist the folder of the database that they share, before it starts."""
    node.workerinput["home"] = str(_folder_of_homes())


@functools.cache
def _folder_of_homes() -> Path:
    return new_folder()


def let_signals_reach_what_is_started() -> None:
    """Replaces ignored signals by a handler that does nothing.

    `nohup`, or a script that starts the tests in the background, ignores some. Each program that a test starts would
    inherit that, and not end at an interrupt.
    """
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def modules_of(config: pytest.Config) -> list[Path]:
    """The modules that the arguments name, and all files conftest.py."""
    places = [config.invocation_params.dir / argument.partition("::")[0] for argument in config.args]
    named = {path for place in places for path in (place.rglob("test_*.py") if place.is_dir() else [place])}
    return sorted(named.union(Path(__file__).parent.rglob("conftest.py")))


def cached(path: Path) -> Path:
    return rewrite.get_cache_dir(path) / (path.name.removesuffix(".py") + rewrite.PYC_TAIL)


@pytest.fixture(scope="session")
def postgres(request: pytest.FixtureRequest) -> str:
    """The URL of a PostgreSQL that the tests of one process share; TEMPLATE in it has all our tables.

    It is the embedded one, unless a test is parametrised with another fixture.
    """
    url: str = request.getfixturevalue(getattr(request, "param", None) or "embedded_postgres")
    return url


@pytest.fixture(scope="session")
def embedded_postgres() -> Iterator[str]:
    with folder_for_all() as folder:
        give_database(folder / "home")
        server = EmbeddedPostgres(folder / "home")
        url = server.start()
        hurry(url)
        with psycopg.connect(url, autocommit=True) as connection:
            order = SQL("CREATE DATABASE {} TEMPLATE {}")
            connection.execute(order.format(Identifier(TEMPLATE), Identifier(connection.info.dbname)))
        yield url
        server.stop()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    with folder_for_all() as folder:
        yield folder


@pytest.fixture
def database_url(postgres: str) -> Iterator[str]:
    """A database of the test's own, migrated and empty."""
    yield from made(postgres, f"test_{next(_numbers)}")


@pytest.fixture(scope="session")
def shared_url(postgres: str) -> Iterator[str]:
    yield from made(postgres, "shared_by_tests")


@pytest.fixture
def emptied_url(shared_url: str) -> Iterator[str]:
    """A database that is the test's own while it lasts, migrated and empty: for tests that change rows only."""
    empty(shared_url)
    before = objects(shared_url)
    yield shared_url
    assert objects(shared_url) == before, "a test that changes tables needs a `database_url` of its own"


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    async with connected(database_url) as database:
        yield database


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with launched() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="session")
async def tabs(browser: Browser) -> AsyncIterator[Tabs]:
    """Pages of the test's own, which fail it when they do what no page may do."""
    tabs = Tabs(browser)
    yield tabs
    await tabs.close()
