from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from windlass.runner.processes import Families, all_processes, end_families, process, proportional, tasks_of_user

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
MB = 1 << 20


def test_a_family_is_a_process_and_all_below_it() -> None:
    code = "import subprocess, sys; subprocess.Popen(['sleep', '60']); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        family = Families(all_processes()).of(parent.pid)
        assert family[0].pid == parent.pid
        assert [one.parent for one in family[1:]] == [parent.pid]
        os.kill(family[1].pid, 9)
        parent.kill()


def test_a_process_that_is_gone_has_no_family() -> None:
    with subprocess.Popen(["true"]) as gone:
        pass
    assert process(gone.pid) is None
    assert Families(all_processes()).of(gone.pid) == []


def test_the_share_of_memory_of_a_process_grows_with_what_it_takes() -> None:
    before = proportional(os.getpid(), None)
    held = os.urandom(MB) * 100
    after = proportional(os.getpid(), None)
    assert before is not None
    assert after is not None
    assert 50 * MB < after - before < 150 * MB
    assert len(held) == 100 * MB


def test_the_share_is_read_again_and_again_from_one_descriptor() -> None:
    opened = os.open("/proc/self/smaps_rollup", os.O_RDONLY)
    before = proportional(os.getpid(), opened)
    held = os.urandom(MB) * 100  # what was freed before may be used again
    after = proportional(os.getpid(), opened)
    os.close(opened)
    assert before is not None
    assert after is not None
    assert after - before > 50 * MB
    assert held


def test_what_is_no_such_file_tells_nothing(tmp_path: Path) -> None:
    file = tmp_path / "other"
    file.write_text("nothing of the kind")
    with file.open() as opened:
        assert proportional(os.getpid(), opened.fileno()) is None


def test_the_tasks_of_a_user_are_its_processes_and_threads() -> None:
    mine = process(os.getpid())
    assert mine is not None
    assert tasks_of_user(os.getuid()) >= mine.threads
    assert tasks_of_user(54321) == 0


def test_killed_processes_have_ended_when_the_call_returns() -> None:
    for _ in range(20):
        sleeper = subprocess.Popen([sys.executable, "-c", "x = bytearray(50_000_000); import time; time.sleep(600)"])
        while (root := process(sleeper.pid)) is None or root.rss < 50_000_000:
            time.sleep(0.005)
        end_families([(root, None)])
        found = process(sleeper.pid)
        assert found is not None
        assert found.ended
        sleeper.wait()
