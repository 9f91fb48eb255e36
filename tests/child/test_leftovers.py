"""Whatever crew code starts, nothing of it is left when its end is told."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from projects_for_tests.another_user import as_another_user, owned, zygote_of
from projects_for_tests.driver import DrivenZygote, until_gone
from projects_for_tests.ends import alive
from projects_for_tests.wild import wild
from windlass_child.process import processes
from windlass_child.process.channel import Channel
from windlass_child.process.zygote import ChildEnd, Zygote
from windlass_child.protocol.frames import Frames
from windlass_child.protocol.messages import Exited, Kill, Project, Signal, Succeeded

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only process groups are ended")

BOUND = 150
"""Processes of a fork bomb. Beside a high load their end takes longer than the report of the child's exit waits."""
BOMBER = 64_017
"""A user who has no other processes: those of a user are counted together."""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return wild(tmp_path / "project")


@pytest.fixture
def zygote(tmp_path: Path) -> Iterator[DrivenZygote]:
    with DrivenZygote(tmp_path / "zygote") as zygote:
        zygote.ready()
        yield zygote


def below(zygote: DrivenZygote) -> list[psutil.Process]:
    """Ended ones that were not reaped, too."""
    return psutil.Process(zygote.process.pid).children(recursive=True)


def test_what_a_child_that_came_to_its_end_left_is_gone_when_its_end_is_told(
    zygote: DrivenZygote, project: Project, tmp_path: Path
) -> None:
    child = zygote.run(project, tmp_path, do="leave")
    pids = child.numbers("daemon") + child.numbers("other")
    assert child.answer() == Succeeded("left")
    assert os.waitstatus_to_exitcode(child.exited()) == 0
    assert [pid for pid in pids if psutil.pid_exists(pid)] == []
    assert below(zygote) == []


def test_what_a_killed_child_started_is_gone_when_its_end_is_told(
    zygote: DrivenZygote, project: Project, tmp_path: Path
) -> None:
    child = zygote.run(project, tmp_path, do="leave_tree")
    pids = child.numbers("tree")
    assert all(map(alive, pids))
    zygote.talk.send(Kill(child.name))
    assert os.WTERMSIG(child.exited()) == signal.SIGKILL
    assert [pid for pid in pids if psutil.pid_exists(pid)] == []
    assert below(zygote) == []


def test_a_daemon_stays_below_the_child_that_started_it(zygote: DrivenZygote, project: Project, tmp_path: Path) -> None:
    child = zygote.run(project, tmp_path, do="leave", stay=True)
    (daemon,) = child.numbers("daemon")
    zygote.until(lambda: processes.parent_of(daemon) == child.pid)
    assert os.getsid(daemon) != os.getsid(child.pid)


def test_of_two_children_only_the_leftovers_of_the_one_that_ended_are_ended(
    zygote: DrivenZygote, project: Project, tmp_path: Path
) -> None:
    staying = zygote.run(project, tmp_path, do="leave", stay=True)
    kept = staying.numbers("daemon") + staying.numbers("other")
    ending = zygote.run(project, tmp_path, do="leave")
    ending.exited()
    assert all(map(alive, [staying.pid, *kept]))
    zygote.talk.send(Kill(staying.name))
    staying.exited()
    assert not any(map(alive, kept))


def test_a_fork_bomb_is_ended_to_the_last_process(zygote: DrivenZygote, project: Project, tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.touch()
    child = zygote.run(project, tmp_path, do="bomb", counter=str(counter), bound=BOUND)
    zygote.until(lambda: counter.stat().st_size > BOUND // 4)
    zygote.talk.send(Kill(child.name))
    assert os.WTERMSIG(child.exited()) == signal.SIGKILL
    zygote.until(lambda: not below(zygote))


@as_another_user
def test_a_fork_bomb_that_fills_up_again_what_is_killed_is_ended() -> None:
    with tempfile.TemporaryDirectory() as made, zygote_of(BOMBER, Path(made)) as zygote:
        zygote.ready()
        child = zygote.fork()
        project = wild(Path(made) / "project")
        child.run(project, owned(BOMBER, Path(made) / "bomb"), inputs={"do": "bomb_for_ever", "bound": BOUND})
        zygote.until(lambda: len(below(zygote)) > BOUND // 2)
        zygote.talk.send(Kill(child.name))
        assert os.WTERMSIG(child.exited()) == signal.SIGKILL
        zygote.until(lambda: not below(zygote))


def test_processes_that_start_the_next_and_end_are_caught(
    zygote: DrivenZygote, project: Project, tmp_path: Path
) -> None:
    child = zygote.run(project, tmp_path, do="chain")
    zygote.until(lambda: "chained" in child.printed)
    zygote.talk.send(Kill(child.name))
    child.exited()
    zygote.until(lambda: not below(zygote))


class Overrun(Zygote):
    """Finds leftovers as often as it is told to."""

    passes = 0
    needed = 3

    def _end_leftovers(self) -> bool:
        self.passes += 1
        return self.passes < self.needed


def test_what_outlasts_the_wait_for_it_is_ended_all_the_same() -> None:
    ours, theirs = socket.socketpair()
    with ours, contextlib.ExitStack() as stack:
        zygote = Overrun(Channel(theirs.detach()), {})
        for open_end in (zygote._channel, zygote._bell, zygote._ringer):
            stack.callback(open_end.close)
        zygote._endings, zygote._untidy = [ChildEnd(Exited("late", 300, 0), until=0.0)], True
        zygote._report_exits()
        assert list(Frames().feed(ours.recv(4096))) == [Exited("late", 300, 0)], "the wait for it is over"
        for _ in range(5):
            zygote._report_exits()
        assert zygote.passes == zygote.needed, "as long as there is something left, and no longer"


def test_other_children_are_forked_while_one_is_ended(zygote: DrivenZygote, project: Project, tmp_path: Path) -> None:
    child = zygote.run(project, tmp_path, do="leave_tree")
    child.numbers("tree")
    zygote.talk.send(Kill(child.name))
    assert zygote.run(project, tmp_path, do="threads").answer() == Succeeded("threads")
    assert os.WTERMSIG(child.exited()) == signal.SIGKILL


def test_a_child_and_what_it_started_end_with_the_zygote(
    zygote: DrivenZygote, project: Project, tmp_path: Path
) -> None:
    child = zygote.run(project, tmp_path, do="leave_tree")
    pids = child.numbers("tree")
    zygote.process.kill()
    until_gone(child.pid, *pids)


def test_a_child_and_what_it_started_end_with_the_worker(
    zygote: DrivenZygote, project: Project, tmp_path: Path
) -> None:
    child = zygote.run(project, tmp_path, do="leave_tree")
    pids = child.numbers("tree")
    zygote.channel.shutdown(2)
    zygote.process.wait(60)
    until_gone(child.pid, *pids)


def test_an_exec_child_ends_with_its_zygote(zygote: DrivenZygote, project: Project, tmp_path: Path) -> None:
    child = zygote.fork("exec")
    child.run(project, tmp_path / "folder", inputs={"do": "leave_tree"})
    pids = child.numbers("tree")
    zygote.process.kill()
    until_gone(child.pid, *pids)


def test_a_signal_goes_to_the_child_alone(zygote: DrivenZygote, project: Project, tmp_path: Path) -> None:
    child = zygote.run(project, tmp_path, do="leave", stay=True)
    (other,) = child.numbers("other")
    zygote.talk.send(Signal(child.name, signal.SIGSTOP))
    zygote.until(lambda: psutil.Process(child.pid).status() == psutil.STATUS_STOPPED)
    assert psutil.Process(other).status() == psutil.STATUS_SLEEPING


def test_a_signal_goes_to_all_below_when_wanted(zygote: DrivenZygote, project: Project, tmp_path: Path) -> None:
    child = zygote.run(project, tmp_path, do="leave_tree")
    pids = [child.pid, *child.numbers("tree")]
    zygote.talk.send(Signal(child.name, signal.SIGSTOP, below=True))
    zygote.until(lambda: all(psutil.Process(pid).status() == psutil.STATUS_STOPPED for pid in pids))


def test_a_signal_to_a_child_that_has_ended_is_nothing(zygote: DrivenZygote, project: Project, tmp_path: Path) -> None:
    child = zygote.run(project, tmp_path, do="echo")
    child.exited()
    zygote.talk.send(Signal(child.name, signal.SIGTERM, below=True))
    other = zygote.run(project, tmp_path, do="echo")
    assert os.waitstatus_to_exitcode(other.exited()) == 0


def test_sigterm_ends_a_child_that_does_nothing_about_it(
    zygote: DrivenZygote, project: Project, tmp_path: Path
) -> None:
    child = zygote.run(project, tmp_path, do="sleep")
    child.numbers("asleep")
    zygote.talk.send(Signal(child.name, signal.SIGTERM))
    assert os.WTERMSIG(child.exited()) == signal.SIGTERM


def test_a_process_is_reached_only_while_it_has_the_parent_that_it_was_found_with() -> None:
    other = subprocess.Popen(["sleep", "600"])
    try:
        assert not processes.reach(other.pid, 1, signal.SIGKILL)
        assert other.poll() is None
        assert processes.reach(other.pid, os.getpid(), signal.SIGKILL)
        assert other.wait(60) == -signal.SIGKILL
    finally:
        other.kill()
        other.wait()
