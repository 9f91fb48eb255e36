from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from projects_for_tests.ends import folders, gone, words_of, zygotes
from projects_for_tests.making import Bench, Heard, doing, function_project
from windlass.errors import ChildLost, ProjectError
from windlass.kickoffs.states import Reason, State
from windlass.projects import recognise
from windlass.runner import Output, Preparing, ResultSent, Runner, inspection
from windlass_child.protocol.messages import Message, TaskStarted

if TYPE_CHECKING:
    from pathlib import Path

ASLEEP = {"do": "sleep"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return doing("function", tmp_path)


async def test_all_runs_on_one_interpreter_share_a_zygote(bench: Bench, project: Path, scratch: Path) -> None:
    await asyncio.gather(*(bench.run(project) for _ in range(3)))
    assert len(zygotes(scratch)) == 1


async def test_a_zygote_can_be_started_ahead_of_need(bench: Bench, scratch: Path) -> None:
    await bench.runner.warm(bench.interpreter, None)
    assert len(zygotes(scratch)) == 1


async def test_a_run_whose_zygote_dies_is_lost_with_its_process(bench: Bench, project: Path, scratch: Path) -> None:
    heard = Heard()
    run = asyncio.create_task(bench.run(project, ASLEEP, heard=heard))
    pids = await heard.pids()
    zygotes(scratch)[0].kill()
    outcome = await run
    assert (outcome.state, outcome.reason) == (State.FAILED, Reason.LOST)
    assert outcome.error == "the crew's process was lost: the process that started it is gone"
    await gone(*pids)


async def test_after_the_death_of_a_zygote_the_next_run_has_another(bench: Bench, project: Path, scratch: Path) -> None:
    await bench.run(project)
    (former,) = zygotes(scratch)
    former.kill()
    outcome = await bench.run(project)
    assert outcome.state is State.SUCCESS
    assert [zygote.pid for zygote in zygotes(scratch)] != [former.pid]


async def test_a_zygote_that_is_stuck_is_ended_when_a_run_is_cancelled(
    bench: Bench, project: Path, monkeypatch: pytest.MonkeyPatch, scratch: Path
) -> None:
    monkeypatch.setattr("windlass.runner.zygote.STOP_SECONDS", 0.2)
    heard = Heard()
    run = asyncio.create_task(bench.run(project, ASLEEP, heard=heard))
    pids = await heard.pids()
    (stuck,) = zygotes(scratch)
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
    (zygote,) = zygotes(scratch)
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


async def test_stop_while_a_zygote_starts_ends_it(bench: Bench, project: Path, scratch: Path) -> None:
    run = asyncio.create_task(bench.run(project))
    async with asyncio.timeout(60):
        while not zygotes(scratch):  # noqa: ASYNC110 - nothing tells of the start of a process
            await asyncio.sleep(0.001)
    await bench.runner.stop()
    assert (await run).reason is Reason.LOST
    assert zygotes(scratch) == []


async def test_a_runner_that_is_not_running_loses_its_runs(scratch: Path, project: Path) -> None:
    bench = Bench(Runner(scratch, {}))
    outcome = await bench.run(project)
    assert (outcome.reason, outcome.error) == (Reason.LOST, "the runner is not running.")
    with pytest.raises(ChildLost):
        await bench.inspect(project)


async def test_what_report_raises_ends_the_run_and_is_raised(bench: Bench, project: Path) -> None:
    pids: list[int] = []

    async def fail_when_asleep(message: Message | Output | Preparing | ResultSent) -> None:
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

    async def report(message: Message | Output | Preparing | ResultSent) -> None:
        if isinstance(message, Output):
            await asyncio.wait_for(started.wait(), 60)
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

    async def report(message: Message | Output | Preparing | ResultSent) -> None:
        if isinstance(message, Output):
            await go_on.wait()

    order = bench.order(recognise(function_project(tmp_path, code)), {"counter": str(counter)}, {})
    run = asyncio.create_task(bench.runner.run(order, report))
    async with asyncio.timeout(60):
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


async def test_inputs_that_json_has_no_word_for_fail_in_words(bench: Bench, project: Path) -> None:
    outcome = await bench.run(project, {"number": float("nan")})
    assert outcome.reason is Reason.ERROR
    assert str(outcome.error).startswith("the inputs can't be given to the crew: Out of range float values")


async def test_a_project_whose_inputs_cannot_be_checked_is_refused_when_it_is_loaded(
    bench: Bench, tmp_path: Path
) -> None:
    code = """
from pydantic import BaseModel, ConfigDict

class Order(BaseModel):
    model_config = ConfigDict(json_schema_extra={"$ref": "http://127.0.0.1:9/x"})

def run(order: Order):
    return "never"
"""
    with pytest.raises(ProjectError, match=r"refers to http://127\.0\.0\.1:9/x, which is not in it"):
        await bench.inspect(function_project(tmp_path, code))


async def test_a_project_that_never_finishes_loading_is_given_up(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection, "INSPECTION_SECONDS", 0.3)
    project = function_project(tmp_path, "import time\ntime.sleep(600)\n")
    with pytest.raises(ProjectError, match="the project was not loaded within 0 s") as caught:
        await bench.inspect(project)
    assert caught.value.hint == "Check the project for code that blocks when it is imported."


async def test_what_a_project_writes_while_it_is_inspected_can_be_heard(bench: Bench, tmp_path: Path) -> None:
    found = recognise(function_project(tmp_path, "print('loading')\ndef run(): pass\n"))
    heard = Heard()
    await bench.runner.inspect(bench.interpreter, None, found.project, {}, heard.report)
    assert heard.lines("stdout") == ["loading"]


async def test_secrets_are_in_no_command_line_and_not_in_the_zygote(bench: Bench, project: Path, scratch: Path) -> None:
    heard = Heard()
    secret = {"MODEL_KEY": "sk-nowhere-else"}
    run = asyncio.create_task(bench.run(project, ASLEEP, secret, heard))
    pid, _ = await heard.pids()
    seen: list[Any] = [words_of(zygotes(scratch)[0]), psutil.Process(pid).cmdline()]
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
    kinds = [target.split(":")[0].rpartition("/")[2] for target in outcome.json]
    assert sorted(kinds) == ["anon_inode", "memfd", "null", "pipe", "pipe", "socket"]
