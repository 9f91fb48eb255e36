from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from projects_for_tests.ends import folders, gone
from projects_for_tests.making import Bench, Heard, doing, function_project
from windlass.errors import ChildLost, ProjectError
from windlass.kickoffs.states import Reason, State
from windlass.projects import recognise
from windlass.runner import Output, Runner, RunOrder
from windlass.runner import runner as runner_module
from windlass_crewside.messages import Message, TaskStarted

ASLEEP = {"do": "sleep"}


def zygotes() -> list[psutil.Process]:
    """Those of this process: the tests beside it have their own."""
    return [child for child in psutil.Process().children() if "windlass_crewside" in " ".join(child.cmdline())]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return doing("function", tmp_path)


async def test_all_runs_on_one_interpreter_share_a_zygote(bench: Bench, project: Path) -> None:
    await asyncio.gather(*(bench.run(project) for _ in range(3)))
    assert len(zygotes()) == 1


async def test_a_zygote_can_be_started_ahead_of_need(bench: Bench) -> None:
    await bench.runner.warm(bench.interpreter, None)
    assert len(zygotes()) == 1


async def test_a_run_whose_zygote_dies_is_lost_with_its_process(bench: Bench, project: Path) -> None:
    heard = Heard()
    run = asyncio.create_task(bench.run(project, ASLEEP, heard=heard))
    pids = await heard.pids()
    zygotes()[0].kill()
    outcome = await run
    assert (outcome.state, outcome.reason) == (State.FAILED, Reason.LOST)
    assert outcome.error == "the crew's process was lost: the process that started it is gone"
    await gone(*pids)


async def test_after_the_death_of_a_zygote_the_next_run_has_another(bench: Bench, project: Path) -> None:
    await bench.run(project)
    (former,) = zygotes()
    former.kill()
    outcome = await bench.run(project)
    assert outcome.state is State.SUCCESS
    assert [zygote.pid for zygote in zygotes()] != [former.pid]


async def test_a_zygote_that_is_stuck_is_ended_when_a_run_is_cancelled(
    bench: Bench, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.runner.zygote.STOP_SECONDS", 0.2)
    heard = Heard()
    run = asyncio.create_task(bench.run(project, ASLEEP, heard=heard))
    pids = await heard.pids()
    (stuck,) = zygotes()
    stuck.suspend()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    await gone(stuck.pid, *pids)


async def test_a_run_is_cancelled_while_its_zygote_starts(bench: Bench, project: Path) -> None:
    run = asyncio.create_task(bench.run(project))
    await asyncio.sleep(0)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert (await bench.run(project)).state is State.SUCCESS


async def test_stop_leaves_no_process_and_no_folder(bench: Bench, project: Path, scratch: Path) -> None:
    heard = Heard()
    run = asyncio.create_task(bench.run(project, ASLEEP, heard=heard))
    pids = await heard.pids()
    (zygote,) = zygotes()
    await bench.runner.stop()
    assert folders(scratch) == []
    await gone(zygote.pid, *pids)
    assert (await run).reason is Reason.LOST


async def test_stop_may_come_twice_and_before_start(scratch: Path) -> None:
    runner = Runner(scratch, {})
    await runner.stop()
    await runner.start()
    await runner.start()
    await runner.stop()
    await runner.stop()
    assert folders(scratch) == []


async def test_stop_while_a_zygote_starts_ends_it(bench: Bench, project: Path) -> None:
    run = asyncio.create_task(bench.run(project))
    async with asyncio.timeout(20):
        while not zygotes():  # noqa: ASYNC110 - nothing tells of the start of a process
            await asyncio.sleep(0.001)
    await bench.runner.stop()
    assert (await run).reason is Reason.LOST
    assert zygotes() == []


async def test_a_runner_that_is_not_running_loses_its_runs(scratch: Path, project: Path) -> None:
    bench = Bench(Runner(scratch, {}))
    outcome = await bench.run(project)
    assert (outcome.reason, outcome.error) == (Reason.LOST, "the runner is not running.")
    with pytest.raises(ChildLost):
        await bench.inspect(project)


async def test_what_report_raises_ends_the_run_and_is_raised(bench: Bench, project: Path) -> None:
    pids: list[int] = []

    async def fail_when_asleep(message: Message | Output) -> None:
        if isinstance(message, Output) and message.line.startswith("asleep"):
            pids.extend(int(pid) for pid in message.line.split()[1:])
            raise LookupError("the database is away")

    order = bench.order(recognise(project), ASLEEP, {})
    with pytest.raises(LookupError, match="the database is away"):
        await bench.runner.run(order, fail_when_asleep)
    await gone(*pids)


async def test_a_worker_that_is_busy_with_output_still_hears_messages(bench: Bench, tmp_path: Path) -> None:
    project = function_project(tmp_path, "def run():\n    print('busy')\n    return 'done'\n")
    heard, started = Heard(), asyncio.Event()

    async def report(message: Message | Output) -> None:
        if isinstance(message, Output):
            await asyncio.wait_for(started.wait(), 10)
        await heard.report(message)
        if isinstance(message, TaskStarted):
            started.set()

    outcome = await bench.runner.run(bench.order(recognise(project), {}, {}), report)
    assert (outcome.output, heard.lines("stdout")) == ("done", ["busy"])


async def test_a_worker_that_is_busy_holds_the_crew_up_instead_of_taking_all_its_output(
    bench: Bench, tmp_path: Path
) -> None:
    code = """
    import os

    def run(counter):
        os.set_blocking(1, False)
        written = 0
        try:
            while written < 50_000_000:
                written += os.write(1, b"x" * 999 + b"\\n")
        except BlockingIOError:
            open(counter, "w").write(str(written))
        return written
    """
    counter, go_on = tmp_path / "counter", asyncio.Event()

    async def report(message: Message | Output) -> None:
        if isinstance(message, Output):
            await go_on.wait()

    order = bench.order(recognise(function_project(tmp_path, code)), {"counter": str(counter)}, {})
    run = asyncio.create_task(bench.runner.run(order, report))
    async with asyncio.timeout(20):
        while not counter.exists():  # noqa: ASYNC110 - a file tells of it
            await asyncio.sleep(0.01)
    go_on.set()
    assert (await run).json < 1_000_000


async def test_all_that_was_written_before_the_end_is_told(bench: Bench, tmp_path: Path) -> None:
    project = function_project(tmp_path, "def run():\n    for number in range(20_000):\n        print(number)\n")
    heard = Heard()
    await bench.run(project, heard=heard)
    assert heard.lines("stdout") == [str(number) for number in range(20_000)]


async def test_folders_of_a_runner_that_was_killed_are_swept(scratch: Path) -> None:
    left = scratch / "runner-left" / "some-kickoff"
    left.mkdir(parents=True)
    living = Runner(scratch, {})
    await living.start()
    other = Runner(scratch, {})
    await other.start()
    assert len(folders(scratch)) == 2, "the two that live"
    await living.stop()
    await other.stop()


async def test_an_interpreter_without_the_framework_says_so(tmp_path: Path, bench: Bench) -> None:
    python = bare_environment(tmp_path)
    with pytest.raises(ProjectError) as caught:
        await bench.runner.warm(python, "crewai")
    assert caught.value.message.startswith(f"crewai is not installed in {python}. Install it: ")
    assert caught.value.message.endswith(" crewai")


async def test_crews_run_in_an_interpreter_that_knows_nothing_of_windlass(tmp_path: Path, scratch: Path) -> None:
    runner = Runner(scratch, {"PATH": os.defpath})
    await runner.start()
    outcome = await Bench(runner, bare_environment(tmp_path)).run(doing("function", tmp_path), {"do": "importable"})
    await runner.stop()
    assert outcome.state is State.SUCCESS, outcome.error
    assert outcome.json == {"windlass": False, "pydantic": False, "channel": False, "windlass_crewside": True}


def bare_environment(folder: Path) -> Path:
    """As `python -m venv --without-pip` makes it, without starting another process for it."""
    binaries = folder / "bare" / "bin"
    binaries.mkdir(parents=True)
    base = Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    (binaries / "python").symlink_to(base)
    (folder / "bare" / "pyvenv.cfg").write_text(f"home = {base.parent}\ninclude-system-site-packages = false\n")
    return binaries / "python"


async def test_an_interpreter_that_is_not_there_says_so(tmp_path: Path, bench: Bench) -> None:
    with pytest.raises(ProjectError, match=r"missing can't be started: No such file or directory\."):
        await bench.runner.warm(tmp_path / "missing", None)


async def test_an_interpreter_that_ends_at_once_says_its_last_words(tmp_path: Path, bench: Bench) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no home for this python >&2\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(ProjectError, match="ended before it could run crews: no home for this python"):
        await bench.runner.warm(broken, None)


async def test_a_run_on_a_broken_interpreter_fails_in_words(tmp_path: Path, bench: Bench, project: Path) -> None:
    found = recognise(project)
    order = RunOrder("some-kickoff", 1, tmp_path / "missing", None, found.project, {}, {})
    outcome = await bench.runner.run(order, Heard().report)
    assert outcome.reason is Reason.ERROR
    assert "missing can't be started" in str(outcome.error)


async def test_a_project_that_never_finishes_loading_is_given_up(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_module, "INSPECTION_SECONDS", 0.3)
    project = function_project(tmp_path, "import time\ntime.sleep(600)\n")
    with pytest.raises(ProjectError, match="the project was not loaded within 0 s") as caught:
        await bench.inspect(project)
    assert caught.value.hint == "Look for code that waits at import."


async def test_what_a_project_writes_while_it_is_inspected_can_be_heard(bench: Bench, tmp_path: Path) -> None:
    found = recognise(function_project(tmp_path, "print('loading')\ndef run(): pass\n"))
    heard = Heard()
    await bench.runner.inspect(bench.interpreter, None, found.project, {}, heard.report)
    assert heard.lines("stdout") == ["loading"]


async def test_secrets_are_in_no_command_line_and_not_in_the_zygote(bench: Bench, project: Path) -> None:
    heard = Heard()
    secret = {"MODEL_KEY": "sk-nowhere-else"}
    run = asyncio.create_task(bench.run(project, ASLEEP, secret, heard))
    pid, _ = await heard.pids()
    seen: list[Any] = [zygotes()[0].environ(), zygotes()[0].cmdline(), psutil.Process(pid).cmdline()]
    run.cancel()
    await asyncio.wait([run])
    assert "sk-nowhere-else" not in repr(seen)


async def test_a_child_holds_no_descriptor_but_its_own(bench: Bench, project: Path) -> None:
    heard = Heard()
    first = asyncio.create_task(bench.run(project, ASLEEP, heard=heard))
    await heard.pids()
    outcome = await bench.run(project, {"do": "descriptors"})
    first.cancel()
    await asyncio.wait([first])
    kinds = [target.split(":")[0] for target in outcome.json]
    assert sorted(kinds) == ["/dev/null", "pipe", "pipe", "socket"]


async def test_nothing_that_runs_is_left_of_a_server_that_was_killed(tmp_path: Path, project: Path) -> None:
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SERVER, str(tmp_path / "scratch"), str(project)),
        stdout=asyncio.subprocess.PIPE,
        env={"PATH": os.defpath, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert server.stdout is not None
    line = await asyncio.wait_for(server.stdout.readline(), 30)
    pids = [int(pid) for pid in line.split()[1:]]
    below = psutil.Process(server.pid).children(recursive=True)
    assert {*pids} <= {process.pid for process in below}
    server.kill()
    await server.wait()
    await gone(*(process.pid for process in below))


async def test_not_even_when_its_zygote_is_killed_with_it(tmp_path: Path, project: Path) -> None:
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SERVER, str(tmp_path / "scratch"), str(project)),
        stdout=asyncio.subprocess.PIPE,
        env={"PATH": os.defpath, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert server.stdout is not None
    pids = [int(pid) for pid in (await asyncio.wait_for(server.stdout.readline(), 30)).split()[1:]]
    (zygote,) = psutil.Process(server.pid).children()
    os.kill(server.pid, signal.SIGSTOP)  # it must not notice
    zygote.kill()
    server.kill()
    await server.wait()
    await gone(zygote.pid, *pids)


SERVER = """
import asyncio, sys
from pathlib import Path
from windlass.projects import recognise
from windlass.runner import Output, Runner, RunOrder

async def report(message):
    if isinstance(message, Output):
        print(message.line, flush=True)

async def main(scratch, project):
    runner = Runner(Path(scratch), {})
    await runner.start()
    found = recognise(Path(project)).project
    await runner.run(RunOrder("some-kickoff", 1, Path(sys.executable), None, found, {}, {"do": "sleep"}), report)

asyncio.run(main(*sys.argv[1:]))
"""
