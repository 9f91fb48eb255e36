"""A cgroup for each run: on the kernel where it can be had, and in a folder that has its files where it can't."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from projects_for_tests.making import Bench, function_project, running_bench
from windlass.kickoffs.limits import Limits
from windlass.kickoffs.states import Reason
from windlass.runner import RunnerConfig
from windlass.runner.cgroups import Cgroup, Cgroups, NotDelegated, OutOfMemory, delegated, divided
from windlass.runner.processes import Process, process
from windlass.runner.resource_monitor import WatchedRun, measured
from windlass.runner.run_context import Terminator
from windlass.runner.shared_memory import SharedMemory

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

MB = 1 << 20
ENDED = 4_000_000
"""No process has this number: Linux gives none above 2**22."""
CODE = """
import os, signal, time


def run(do):
    if do == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    held = os.memfd_create("held")
    while True:
        os.write(held, b"x" * (1 << 20))
"""


def why_not() -> str:
    try:
        delegated()
    except NotDelegated as error:
        return str(error)
    return ""


on_this_kernel = pytest.mark.skipif(bool(why_not()), reason=f"needs a delegated cgroup version 2: {why_not()}")


def writable() -> Path | None:
    """The top of a hierarchy of version 2 in which this user may make cgroups, whatever its controllers."""
    for place in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
        if Path(place, "cgroup.procs").exists() and os.geteuid() == 0 and os.access(place, os.W_OK):
            return Path(place)
    return None


needs_a_hierarchy = pytest.mark.skipif(writable() is None, reason="needs root and a writable cgroup version 2")


@pytest.fixture
def hierarchy() -> Iterator[Path]:
    top = writable()
    assert top is not None
    folder = top / f"test-{uuid.uuid4().hex}"
    folder.mkdir()
    yield folder
    for left in sorted(folder.glob("*/"), reverse=True):
        left.rmdir()
    folder.rmdir()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with running_bench(tmp_path / "scratch", RunnerConfig(cgroups=divided(delegated()))) as bench:
        yield bench


@on_this_kernel
async def test_the_kernel_ends_a_run_over_its_memory_limit_and_the_error_says_so(bench: Bench, tmp_path: Path) -> None:
    project = function_project(tmp_path / "project", CODE)
    outcome = await bench.run(project, {"do": "fill"}, limits=Limits(memory_limit=100 * MB))
    assert outcome.reason is Reason.LIMIT
    assert "memory_limit of 100 MB: the kernel's out-of-memory killer ended it" in str(outcome.error)
    assert not list(delegated().glob("windlass-run-*"))


@on_this_kernel
async def test_a_run_that_was_killed_otherwise_is_not_said_to_have_run_out_of_memory(
    bench: Bench, tmp_path: Path
) -> None:
    outcome = await bench.run(function_project(tmp_path / "project", CODE), {"do": "kill"})
    assert outcome.reason is Reason.CRASHED
    assert "Memory did not run out: the kernel counts that." in str(outcome.error)


@needs_a_hierarchy
def test_removal_ends_every_process_of_the_cgroup(hierarchy: Path) -> None:
    run = Cgroups(hierarchy, controllers=frozenset()).open("one", Limits(memory_limit=MB))
    assert run is not None
    with subprocess.Popen(["sh", "-c", "read line; sleep 600 & sleep 600"], stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert run.take(found(process.pid))
        process.stdin.write(b"\n")
        process.stdin.close()
        run.remove()
        assert process.wait(60) == -signal.SIGKILL
    assert not run.folder.exists()


def test_only_the_process_itself_is_taken(tmp_path: Path) -> None:
    """A zygote named a process that did not exist then; another program has its id by now."""
    run = divided(cgroup_files(tmp_path)).open("one", Limits())
    assert run is not None
    named = Process(os.getpid(), os.getppid(), "X", threads=0, started=-1, rss=0)
    assert not run.take(named)
    assert not run.take(replace(named, pid=ENDED))
    assert not (run.folder / "cgroup.procs").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="processes of /proc")
def test_processes_that_a_run_started_before_it_was_taken_are_taken_later(tmp_path: Path) -> None:
    run = divided(cgroup_files(tmp_path)).open("one", Limits())
    assert run is not None
    with subprocess.Popen(["sleep", "600"]) as early:
        watched = WatchedRun(early.pid, Limits(), Terminator(), started=found(early.pid).started, cgroup=run)
        measured([watched], SharedMemory())
        early.kill()
    assert (run.folder / "cgroup.procs").read_text() == str(early.pid)


@needs_a_hierarchy
def test_the_processes_of_a_run_that_has_ended_are_not_moved_into_its_cgroup(hierarchy: Path) -> None:
    """They may be those of the next run of the same child, and the removal of the cgroup would kill them."""
    run = Cgroups(hierarchy, controllers=frozenset()).open("one", Limits())
    assert run is not None
    with subprocess.Popen(["sleep", "600"]) as kept:
        watched = WatchedRun(kept.pid, Limits(), Terminator(), started=found(kept.pid).started, cgroup=run)
        assert watched.end() is None
        measured([watched], SharedMemory())
        run.remove()
        assert kept.poll() is None
        kept.kill()


def found(pid: int) -> Process:
    one = process(pid)
    assert one is not None
    return one


@needs_a_hierarchy
def test_what_a_killed_server_left_is_removed_at_the_next_start(hierarchy: Path) -> None:
    stale, other = hierarchy / f"windlass-run-{ENDED}-k1", hierarchy / f"windlass-run-{os.getppid()}-k1"
    stale.mkdir()
    other.mkdir()
    with subprocess.Popen(["sleep", "600"]) as process:
        assert Cgroup(stale).take(found(process.pid))
        Cgroups(hierarchy, controllers=frozenset())
        assert process.wait(60) == -signal.SIGKILL
    assert not stale.exists()
    assert other.exists()


def test_a_run_has_its_limits_in_the_files_of_its_cgroup(tmp_path: Path) -> None:
    made = divided(cgroup_files(tmp_path))
    (made.server / "memory.swap.max").touch()
    run = made.open("one", Limits(memory_limit=100 * MB, process_limit=10))
    assert run is not None
    files = ("memory.max", "memory.swap.max", "memory.oom.group", "pids.max", "cpu.weight")
    found = {name: (run.folder / name).read_text() for name in files}
    assert found == dict(zip(files, ("104857600", "0", "1", "80", "100"), strict=True))
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"
    assert (made.server / "cgroup.procs").read_text() == str(os.getpid())
    assert (made.server / "cpu.weight").read_text() == "1000"


@pytest.mark.parametrize(
    ("events", "found"),
    [
        ("low 0\nhigh 0\nmax 9\noom 1\noom_kill 2\noom_group_kill 1\n", OutOfMemory(2, own=True)),
        ("low 0\nhigh 0\nmax 0\noom 0\noom_kill 1\n", OutOfMemory(1, own=False)),
        ("low 0\nhigh 0\nmax 9\noom 1\noom_kill 0\n", None),
        ("", None),
    ],
)
def test_what_the_kernel_counts_is_known_for_the_run_and_for_the_machine(
    tmp_path: Path, events: str, found: OutOfMemory | None
) -> None:
    (tmp_path / "memory.events").write_text(events)
    assert Cgroup(tmp_path).out_of_memory() == found


@pytest.mark.parametrize(
    ("own", "mount", "controllers", "procs", "words"),
    [
        ("0::/\n", "", "memory pids", "", "there is no cgroup version 2"),
        ("4:memory:/\n", "30 1 0:26 / {} rw - cgroup2 none rw", "memory pids", "", "there is no cgroup version 2"),
        ("0::/\n", "30 1 0:26 / {} rw - cgroup2 none rw", "hugetlb pids", "", "has no memory controller"),
        ("0::/\n", "30 1 0:26 / {} rw - cgroup2 none rw", "memory pids", "2", "other programs are in"),
        ("0::/\n", "30 1 0:26 / {} rw - cgroup2 none rw", "memory pids", "{self}", ""),
        ("0::/mine\n", "30 1 0:26 /mine {} rw - cgroup2 none rw", "memory pids", "{self}", ""),
    ],
)
def test_a_server_without_a_cgroup_of_its_own_is_told_why(
    tmp_path: Path, own: str, mount: str, controllers: str, procs: str, words: str
) -> None:
    folder, told, mounts = cgroup_files(tmp_path / "cgroup", controllers), tmp_path / "own", tmp_path / "mounts"
    (folder / "cgroup.procs").write_text(procs.format(self=os.getpid()))
    told.write_text(own)
    mounts.write_text(mount.format(folder))
    if not words:
        assert delegated(told, mounts, systemd=tmp_path / "none").resolve() == folder
        return
    with pytest.raises(NotDelegated, match=words):
        delegated(told, mounts, systemd=tmp_path / "none")


def test_a_cgroup_that_systemd_has_not_delegated_is_not_divided(tmp_path: Path) -> None:
    folder, told, mounts = cgroup_files(tmp_path / "cgroup"), tmp_path / "own", tmp_path / "mounts"
    told.write_text("0::/\n")
    mounts.write_text(f"30 1 0:26 / {folder} rw - cgroup2 none rw")
    with pytest.raises(NotDelegated, match="set Delegate=yes in the server's unit"):
        delegated(told, mounts, systemd=tmp_path)


def cgroup_files(folder: Path, controllers: str = "cpu memory pids") -> Path:
    """A folder with the files of a cgroup. What is written to them has no effect."""
    folder.mkdir(exist_ok=True)
    (folder / "cgroup.controllers").write_text(controllers)
    (folder / "cgroup.procs").write_text(str(os.getpid()))
    (folder / "cgroup.subtree_control").touch()
    return folder
