"""What runs in a process for crews before any line of Windlass does, and who can reach the process at that time."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from projects_for_tests.another_user import config_of
from projects_for_tests.making import Bench, Heard, function_project
from windlass.kickoffs.states import State
from windlass.runner import Runner
from windlass.runner.crew_account import crew_account
from windlass.runner.run_spec import TaskBounds, machine_environment
from windlass_child.process.hardening import become, confine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

OPEN_INTERPRETER = Path("/usr/bin/python3.11")

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or sys.platform != "linux" or not OPEN_INTERPRETER.exists(),
    reason="needs root, and an interpreter that every user can reach",
)

AT_THE_START = (
    "import os, resource; "
    "status = dict(line.split(':', 1) for line in open('/proc/self/status')); "
    "open({record!r}, 'w').write(__import__('json').dumps(dict("
    "uid=os.getuid(), groups=os.getgroups(), no_new_privs=status['NoNewPrivs'].strip(), "
    "core=resource.getrlimit(resource.RLIMIT_CORE), oom=int(open('/proc/self/oom_score_adj').read()), "
    "open=[os.path.realpath(f'/proc/self/fd/{{n}}').rpartition('/')[2] for n in os.listdir('/proc/self/fd')])))"
)

LOOKS_INTO_OTHERS = '''
import os, time

def run(seen, stop):
    """Opens the memory of each process that begins while this one runs, in its first moments.

    Makes a file for each, named by its number.
    """
    before, found = set(os.listdir("/proc")), []
    print("looking", flush=True)
    watched = {}
    while not os.path.exists(stop):
        now = time.monotonic()
        for pid in set(os.listdir("/proc")) - before:
            if pid.isdecimal():
                watched.setdefault(pid, now + 1)
        for pid in watched.keys() - before:
            open(f"{seen}/{pid}", "w").close()
        before |= watched.keys()
        for pid in [pid for pid, until in watched.items() if now < until]:
            try:
                with open(f"/proc/{pid}/mem", "rb"):
                    found.append(pid)
                    watched[pid] = 0
            except OSError:
                pass
    return found
'''

HAS_A_KEY = """
import os, time

def run(seen):
    while not all(os.path.exists(f"{seen}/{pid}") for pid in (os.getpid(), os.getppid())):
        time.sleep(0.01)
    return [os.getuid(), os.environ["MODEL_KEY"]]
"""


@pytest.fixture
async def runner(open_folder: Path) -> AsyncIterator[Runner]:
    machine = machine_environment(os.environ)  # noqa: TID251 - as windlass.config does it
    runner = Runner(open_folder / "scratch", machine, config_of(crew_account(None), tasks=TaskBounds(4096)))
    await runner.start()
    yield runner
    await runner.stop()


async def test_code_of_the_projects_environment_begins_with_no_more_rights_than_a_run(
    runner: Runner, open_folder: Path
) -> None:
    environment, record = open_folder / "environment", open_folder / "record"
    await asyncio.to_thread(
        subprocess.check_call, [str(OPEN_INTERPRETER), "-m", "venv", "--without-pip", str(environment)]
    )
    record.touch()
    record.chmod(0o666)
    (environment / "lib/python3.11/site-packages/first.pth").write_text(AT_THE_START.format(record=str(record)) + "\n")
    outcome = await Bench(runner, environment / "bin/python").run(
        function_project(open_folder / "project", "def run():\n    return 'ran'")
    )
    assert outcome.state is State.SUCCESS
    found = json.loads(record.read_text())
    assert found["uid"] != 0
    assert found["groups"] == []
    assert found["no_new_privs"] == "1"
    assert found["core"] == [0, 0]
    assert found["oom"] >= 500
    assert [name.partition(":")[0] for name in found["open"]].count("socket") == 1, found


def test_a_process_that_becomes_the_crews_has_no_group_of_the_server() -> None:
    account = crew_account(None)
    assert account is not None
    child = os.fork()
    if child == 0:
        os.setgroups([0, 4242])
        become(account.uid, account.gid)
        os._exit(os.getgroups() != [])
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.usefixtures("landlock")
@pytest.mark.parametrize("start", ["fork", "exec"])
async def test_a_run_can_not_open_the_memory_of_another_one_in_its_first_moments(
    runner: Runner, open_folder: Path, start: str
) -> None:
    bench, heard, stop, seen = Bench(runner, OPEN_INTERPRETER), Heard(), open_folder / "stop", open_folder / "seen"
    seen.mkdir()
    seen.chmod(0o777)
    spy = function_project(open_folder / "spy", LOOKS_INTO_OTHERS)
    looking = asyncio.create_task(bench.run(spy, {"seen": str(seen), "stop": str(stop)}, heard=heard))
    await heard.until(lambda one: getattr(one, "line", "") == "looking")
    project = function_project(open_folder / "project", HAS_A_KEY)
    for _ in range(3):  # each in a zygote of its own
        outcome = await bench.run(
            project, {"seen": str(seen)}, environment={"MODEL_KEY": "sk-1"}, start=start, isolated=True
        )
        assert outcome.json[1] == "sk-1"
        assert outcome.json[0] != 0
    stop.touch()
    outcome = await looking
    assert outcome.state is State.SUCCESS, outcome
    assert outcome.json == []


@pytest.mark.usefixtures("landlock")
@pytest.mark.parametrize("version", [2, 6])
def test_a_process_that_is_confined_reaches_no_other_and_works_as_before(tmp_path: Path, version: int) -> None:
    outside = os.getpid()
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "file").touch()
    child = os.fork()
    if child == 0:
        worked = confine(version=version) and closed(outside) and not closed(os.getpid())
        os.rename(tmp_path / "a" / "file", tmp_path / "b" / "file")  # noqa: PTH104 - a plain system call
        os._exit(not worked)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (tmp_path / "b" / "file").exists()


def closed(pid: int) -> bool:
    try:
        os.close(os.open(f"/proc/{pid}/mem", os.O_RDONLY))
    except PermissionError:
        return True
    return False


@pytest.fixture(scope="session")
def landlock() -> None:
    """Skips on a kernel without it, which docs/concepts/security.md names as a gap. Asks the kernel itself, for the
    version.
    """
    if ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), ctypes.c_uint(1)) < 2:
        pytest.skip("this kernel has no Landlock of version 2 (Linux 5.19 or newer has it)")
