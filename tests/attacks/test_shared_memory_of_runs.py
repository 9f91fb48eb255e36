"""A run that keeps its memory where no process has mapped it, and leaves it behind."""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from projects_for_tests.another_user import config_of
from projects_for_tests.making import Bench, ScanAtEnd, function_project
from windlass.accounts import Account
from windlass.kickoffs.limits import Limits
from windlass.kickoffs.states import Reason, State
from windlass.runner import Runner
from windlass.runner.run_spec import machine_environment

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MB = 1 << 20
SHARED = Path("/dev/shm")
INTERPRETER = Path("/usr/bin/python3.11")
MACHINE = machine_environment(os.environ)  # noqa: TID251 - as windlass.config does it
CREW = Account(58_311, 58_311, "crew-of-this-test", is_ours=False)
"""No other test runs processes as this user: what no process holds open is then a crew's."""

pytestmark = [
    pytest.mark.skipif(
        os.geteuid() != 0 or sys.platform != "linux",
        reason="needs root on Linux: the server reads the descriptors of the run's processes",
    ),
    pytest.mark.xdist_group("shared_memory"),  # segments are counted for the whole machine
]
as_another_user = pytest.mark.skipif(
    not INTERPRETER.exists(), reason=f"needs {INTERPRETER}, which every user can reach"
)

CODE = '''
import ctypes, mmap, os, subprocess, sys, time

MB = 1 << 20


def run(do, **inputs):
    globals()["do_" + do](inputs)
    time.sleep(inputs.get("then", 600))
    return "done"


def fill(descriptor, megabytes):
    for _ in range(megabytes):
        os.write(descriptor, b"x" * MB)


def do_memfds(inputs):
    for number in range(10):
        fill(os.memfd_create("hidden"), inputs["megabytes"] // 10)


def do_held_file(inputs):
    fill(os.open("/dev/shm/" + inputs["name"], os.O_CREAT | os.O_RDWR), inputs["megabytes"])


def do_mapped_file(inputs):
    size = inputs["megabytes"] * MB
    descriptor = os.open("/dev/shm/" + inputs["name"], os.O_CREAT | os.O_RDWR)
    os.ftruncate(descriptor, size)
    global mapped
    mapped = mmap.mmap(descriptor, size)
    for _ in range(inputs["megabytes"]):
        mapped.write(b"x" * MB)


def do_segment(inputs):
    libc, size = ctypes.CDLL(None), inputs["megabytes"] * MB
    libc.shmat.restype = ctypes.c_void_p
    segment = libc.shmget(inputs.get("key", 0), ctypes.c_size_t(size), 0o1600)
    address = ctypes.c_void_p(libc.shmat(segment, None, 0))
    ctypes.memset(address, 1, size)
    libc.shmdt(address)


def do_nest_and_hold(inputs):
    """Folders so deep that no recursion reaches their end."""
    home = os.getcwd()
    os.mkdir("/dev/shm/" + inputs["name"])
    os.chdir("/dev/shm/" + inputs["name"])
    for _ in range(1500):
        os.mkdir("d")
        os.chdir("d")
    os.chdir(home)
    do_memfds(inputs)


def do_leave_all(inputs):
    """By processes that have ended, and with nothing open."""
    code = """
import os, sys
sys.path.insert(0, sys.argv[1])
import work
name, key = sys.argv[2:]
with open("/dev/shm/" + name, "wb") as file:
    file.write(b"x" * work.MB)
os.makedirs(f"/dev/shm/{name} folder/below")
with open(f"/dev/shm/{name} folder/below/file", "wb") as file:
    file.write(b"x" * work.MB)
work.do_segment({"megabytes": 1, "key": int(key)})
"""
    place = os.path.dirname(__file__)
    subprocess.run([sys.executable, "-c", code, place, inputs["name"], str(inputs["key"])], check=True)
'''


@pytest.fixture
def name() -> str:
    return f"windlass-test-{uuid.uuid4().hex}"


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    runner = Runner(tmp_path / "scratch", MACHINE)
    await runner.start()
    yield Bench(runner)
    await runner.stop()


@pytest.fixture
async def bench_of_another_user(open_folder: Path) -> AsyncIterator[Bench]:
    config = config_of(CREW)
    runner = Runner(open_folder / "scratch", MACHINE, config)
    await runner.start()
    yield Bench(runner, INTERPRETER)
    await runner.stop()


@pytest.mark.parametrize("where", ["memfds", "held_file", "segment"])
async def test_memory_that_no_process_has_mapped_counts_and_is_gone_after_the_run(
    bench: Bench, tmp_path: Path, name: str, where: str
) -> None:
    before = segments()
    project = function_project(tmp_path / "project", CODE)
    inputs = {"do": where, "megabytes": 300, "name": name}
    outcome = await bench.run(project, inputs, limits=Limits(memory_limit=200 * MB))
    assert (outcome.state, outcome.reason) == (State.FAILED, Reason.LIMIT)
    assert "of memory, more than its memory_limit of 200 MB" in str(outcome.error)
    assert not SHARED.joinpath(name).exists()
    assert not segments() - before


@as_another_user
async def test_deep_folders_in_shared_memory_do_not_keep_limits_from_being_looked_at(
    bench_of_another_user: Bench, open_folder: Path, name: str
) -> None:
    project = function_project(open_folder / "project", CODE)
    inputs = {"do": "nest_and_hold", "megabytes": 300, "name": name}
    outcome = await bench_of_another_user.run(project, inputs, limits=Limits(memory_limit=200 * MB))
    assert outcome.reason is Reason.LIMIT
    assert not SHARED.joinpath(name).exists()


async def test_shared_memory_that_is_mapped_counts_once(bench: Bench, tmp_path: Path, name: str) -> None:
    project = function_project(tmp_path / "project", CODE)
    inputs = {"do": "mapped_file", "megabytes": 150, "name": name, "then": 1.5}
    outcome = await bench.run(project, inputs, limits=Limits(memory_limit=250 * MB))
    assert outcome.output == "done"
    assert not SHARED.joinpath(name).exists()


async def test_what_other_programs_of_the_same_user_share_is_left(bench: Bench, tmp_path: Path, name: str) -> None:
    project = function_project(tmp_path / "project", CODE)
    run = asyncio.create_task(bench.run(project, {"do": "memfds", "megabytes": 10, "then": 1.0}))
    await asyncio.sleep(0)
    SHARED.joinpath(name).write_bytes(b"x" * MB)
    try:
        assert (await run).output == "done"
        assert SHARED.joinpath(name).exists()
    finally:
        SHARED.joinpath(name).unlink()


@as_another_user
async def test_what_a_run_shares_and_has_closed_is_gone_after_it(
    bench_of_another_user: Bench, open_folder: Path, name: str
) -> None:
    before = segments()
    project = function_project(open_folder / "project", CODE)
    outcome = await bench_of_another_user.run(project, leaving_all(name))
    assert outcome.output == "done", outcome
    assert not files_of(name)
    assert not segments() - before


@as_another_user
async def test_what_a_run_shares_and_has_closed_is_gone_when_its_process_waits_for_another_run(
    bench_of_another_user: Bench, open_folder: Path, name: str
) -> None:
    before = segments()
    project = function_project(open_folder / "project", CODE)
    outcome = await bench_of_another_user.run(project, leaving_all(name), reuse=2, version="1", hooks=ScanAtEnd())
    assert outcome.output == "done", outcome
    assert not files_of(name)
    assert not segments() - before


def leaving_all(name: str) -> dict[str, object]:
    return {"do": "leave_all", "name": name, "key": uuid.uuid4().int % 2**30, "then": 0}


def files_of(name: str) -> list[str]:
    return [entry for entry in os.listdir(SHARED) if entry.startswith(name)]  # noqa: PTH208 - as the attack names it


def segments() -> set[str]:
    """The System V segments of the users of these tests."""
    rows = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
    return {row.split()[1] for row in rows if row.split()[7] in {"0", str(CREW.uid)}}
