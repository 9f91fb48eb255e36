"""A run goes on no longer than its lease: its process ends itself, and its zygote ends it where it can't."""

from __future__ import annotations

import fcntl
import os
import runpy
import signal
import sys
import termios
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from projects_for_tests.driver import Conversation, DrivenChild, DrivenZygote, until, until_gone
from projects_for_tests.ends import alive
from projects_for_tests.wild import wild
from windlass_child.protocol import lease
from windlass_child.protocol.lease import LAPSED, LOOK_AGAIN_SECONDS, Leases, boottime, has_lapsed, wait_for
from windlass_child.protocol.messages import Exited, Lease, Project, Succeeded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHORT, LONG = 0.5, 600.0


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return wild(tmp_path / "project")


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DrivenZygote]:
    with DrivenZygote(tmp_path_factory.mktemp("zygote")) as zygote:
        zygote.ready()
        yield zygote


def told_exit(zygote: DrivenZygote, child: DrivenChild) -> Exited:
    (told,) = [one for one in zygote.talk.of(Exited) if one.child == child.name]
    return told


def unread(talk: Conversation) -> int:
    """Of what was sent, more than 0 when the other side has not taken all of it."""
    return int.from_bytes(fcntl.ioctl(talk._channel, termios.TIOCOUTQ, bytes(4)), sys.byteorder)


def wait_until(second: float) -> None:
    until(lambda: boottime() > second)


def test_a_child_ends_itself_and_all_below_it_when_its_lease_ends(
    zygote: DrivenZygote, project: Project, tmp_path: Path
) -> None:
    child = zygote.run(project, tmp_path, do="leave_tree")
    pids = child.numbers("tree")
    os.kill(zygote.process.pid, signal.SIGSTOP)
    try:
        child.talk.send(Lease(boottime() + SHORT))
        until_gone(child.pid, *pids)
    finally:
        os.kill(zygote.process.pid, signal.SIGCONT)
    assert os.WEXITSTATUS(child.exited()) == LAPSED


@pytest.mark.parametrize("start", ["fork", "exec"])
def test_a_lease_that_is_told_before_the_order_counts(
    zygote: DrivenZygote, project: Project, tmp_path: Path, start: str
) -> None:
    child = zygote.fork(start)
    child.talk.send(Lease(boottime() + SHORT))
    zygote.talk.send(Lease(boottime() + LONG, child.name))  # a renewal that did not reach the child
    child.run(project, tmp_path / "folder", inputs={"do": "sleep"})
    assert os.WEXITSTATUS(child.exited()) == LAPSED
    assert told_exit(zygote, child).lapsed


@pytest.mark.parametrize("deed", ["sleep", "block_in_c", "leave_tree"])
def test_the_zygote_ends_a_child_whose_lease_has_ended_and_tells_why(
    zygote: DrivenZygote, project: Project, tmp_path: Path, deed: str
) -> None:
    child = zygote.run(project, tmp_path, do=deed)
    zygote.until(lambda: child.printed)
    zygote.talk.send(Lease(boottime() + SHORT, child.name))
    assert os.WTERMSIG(child.exited()) == signal.SIGKILL
    assert told_exit(zygote, child).lapsed


def test_the_zygote_ends_a_child_that_is_stopped(zygote: DrivenZygote, project: Project, tmp_path: Path) -> None:
    child = zygote.run(project, tmp_path, do="leave_tree")
    pids = child.numbers("tree")
    os.kill(child.pid, signal.SIGSTOP)
    zygote.talk.send(Lease(boottime() + SHORT, child.name))
    until_gone(child.pid, *pids)


def test_a_child_that_ends_another_way_has_not_lapsed(zygote: DrivenZygote, project: Project, tmp_path: Path) -> None:
    child = zygote.run(project, tmp_path, do="sleep")
    zygote.talk.send(Lease(boottime() + LONG, child.name))
    child.numbers("asleep")
    os.kill(child.pid, signal.SIGKILL)
    child.exited()
    assert not told_exit(zygote, child).lapsed


def test_a_renewal_keeps_a_child_alive(zygote: DrivenZygote, project: Project, tmp_path: Path) -> None:
    child = zygote.run(project, tmp_path, do="sleep")
    child.numbers("asleep")
    ends = boottime() + 1.0
    for until_then in (ends, ends + LONG):
        child.talk.send(Lease(until_then))
        zygote.talk.send(Lease(until_then, child.name))
    wait_until(ends + 0.5)
    assert alive(child.pid)
    os.kill(child.pid, signal.SIGKILL)
    child.exited()


@pytest.mark.parametrize("stopped", ["child", "zygote"])
def test_a_renewal_that_was_told_in_time_counts_for_who_was_too_busy_to_read_it(
    zygote: DrivenZygote, project: Project, tmp_path: Path, stopped: str
) -> None:
    child = zygote.run(project, tmp_path, do="sleep")
    child.numbers("asleep")
    pid, name, to = {
        "child": (child.pid, "", child.talk),
        "zygote": (zygote.process.pid, child.name, zygote.talk),
    }[stopped]
    ends = boottime() + 1.0
    to.send(Lease(ends, name))
    until(lambda: not unread(to) and psutil.Process(pid).status() == psutil.STATUS_SLEEPING)
    os.kill(pid, signal.SIGSTOP)
    until(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    to.send(Lease(ends + LONG, name))
    wait_until(ends + 0.2)
    os.kill(pid, signal.SIGCONT)
    wait_until(boottime() + LOOK_AGAIN_SECONDS / 2)
    assert alive(child.pid)
    os.kill(child.pid, signal.SIGKILL)
    child.exited()


def test_the_lease_of_a_child_that_has_ended_harms_no_other(
    zygote: DrivenZygote, project: Project, tmp_path: Path
) -> None:
    child = zygote.run(project, tmp_path, do="echo")
    child.exited()
    zygote.talk.send(Lease(boottime(), child.name))
    assert isinstance(zygote.run(project, tmp_path, do="threads").answer(), Succeeded)


def test_a_closed_socket_is_noticed_by_a_child_with_a_lease(
    zygote: DrivenZygote, project: Project, tmp_path: Path
) -> None:
    child = zygote.fork()
    child.talk.send(Lease(boottime() + LONG))
    child.run(project, tmp_path / "folder", inputs={"do": "close_descriptors"})
    assert os.waitstatus_to_exitcode(child.exited()) == os.EX_OSERR


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone has this clock")
def test_leases_are_told_on_the_clock_that_counts_suspended_time() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= boottime() <= time.clock_gettime(time.CLOCK_BOOTTIME)


def test_where_there_is_no_such_clock_they_are_told_on_the_monotonic_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(time, "CLOCK_BOOTTIME", raising=False)
    assert runpy.run_path(str(lease.__file__))["CLOCK"] == time.CLOCK_MONOTONIC


def test_who_waits_for_the_end_of_a_lease_looks_at_the_clock_again_and_again() -> None:
    assert wait_for(None) is None
    assert wait_for(boottime() + LONG) == LOOK_AGAIN_SECONDS
    assert wait_for(boottime() - 1) == 0
    assert not has_lapsed(None)
    assert not has_lapsed(boottime() + LONG)
    assert has_lapsed(boottime())


def test_of_several_leases_the_one_that_ends_first_is_waited_for_and_taken_once() -> None:
    leases = Leases()
    assert leases.wait() is None
    leases.keep("later", boottime() + LONG)
    leases.keep("over", boottime() - 1)
    assert leases.wait() == 0
    assert leases.take_lapsed() == {"over"}
    assert leases.take_lapsed() == set()
    assert leases.wait() == LOOK_AGAIN_SECONDS
    assert leases.drop("over")
    assert not leases.drop("over")
    assert not leases.drop("later")
    assert leases.wait() is None
