from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from patience import DEADLINE
from projects_for_tests.able import able
from projects_for_tests.ends import zygotes
from projects_for_tests.making import Bench, Heard, function_project, running_bench
from windlass.kickoffs.states import Reason, State
from windlass.projects import recognise
from windlass.runner import Preparing, RunnerConfig

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return able(tmp_path / "project")


async def until_zygotes(scratch: Path, count: int) -> None:
    async with asyncio.timeout(DEADLINE):
        while len(zygotes(scratch)) != count:  # noqa: ASYNC110 - processes tell nobody of their end
            await asyncio.sleep(0.02)


async def test_an_idle_zygote_is_stopped_and_another_is_started_when_needed(
    scratch: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.runner.zygote_pool.TIDY_EVERY", 0.05)
    async with running_bench(scratch, RunnerConfig(zygote_idle=0.2)) as bench:
        await bench.run(project)
        await until_zygotes(scratch, 0)
        assert (await bench.run(project)).state is State.SUCCESS


async def test_a_zygote_with_a_run_is_not_idle(scratch: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.runner.zygote_pool.TIDY_EVERY", 0.02)
    async with running_bench(scratch, RunnerConfig(zygote_idle=0.01)) as bench:
        inputs = {"do": "allocate_in_forks", "megabytes": 1, "forks": 0, "seconds": 0.6}
        assert (await bench.run(project, inputs)).output == "shared"


async def test_idle_zygotes_make_room_for_a_new_one(scratch: Path, project: Path) -> None:
    async with running_bench(scratch, RunnerConfig(zygote_memory=1)) as bench:
        await bench.run(project)
        (first,) = zygotes(scratch)
        await bench.run(project, preload_project=True)
        (second,) = zygotes(scratch)
        assert first.pid != second.pid


async def test_a_new_zygote_waits_while_those_in_use_hold_all_the_memory(scratch: Path, project: Path) -> None:
    async with running_bench(scratch, RunnerConfig(zygote_memory=1)) as bench:
        inputs = {"do": "allocate_in_forks", "megabytes": 1, "forks": 0, "seconds": 0.5}
        first, heard = Heard(), Heard()
        holding = asyncio.create_task(bench.run(project, inputs, heard=first))
        await first.until(lambda one: one == Preparing(None))
        waiting = asyncio.create_task(bench.run(project, heard=heard, preload_project=True))
        await heard.until(lambda one: one == Preparing("zygote"))
        assert len(zygotes(scratch)) == 1
        assert [outcome.state for outcome in await asyncio.gather(holding, waiting)] == [State.SUCCESS] * 2


async def test_a_new_zygote_starts_in_the_end_though_those_in_use_hold_all_the_memory(
    scratch: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.runner.zygote_pool.ROOM_SECONDS", 0.1)
    async with running_bench(scratch, RunnerConfig(zygote_memory=1)) as bench:
        first = Heard()
        inputs = {"do": "allocate_in_forks", "megabytes": 1, "forks": 0, "seconds": DEADLINE}
        holding = asyncio.create_task(bench.run(project, inputs, heard=first))
        await first.until(lambda one: one == Preparing(None))
        assert (await bench.run(project, preload_project=True)).state is State.SUCCESS
        assert not holding.done()
        holding.cancel()
        await asyncio.wait([holding])


async def test_a_run_that_is_to_be_alone_has_a_zygote_of_its_own_which_goes_with_it(
    bench: Bench, project: Path, scratch: Path
) -> None:
    await bench.run(project)
    (shared,) = zygotes(scratch)
    parent = await bench.run(project, {"do": "parent"}, isolated=True)
    assert parent.json != shared.pid
    await until_zygotes(scratch, 1)


async def test_a_run_in_a_fresh_interpreter_shares_nothing_with_others(bench: Bench, tmp_path: Path) -> None:
    project = function_project(
        tmp_path / "fresh",
        "import gc, os, sys\ndef run():\n"
        "    return {'frozen': gc.get_freeze_count(), 'cwd': os.getcwd(), 'arguments': sys.orig_argv[1:3]}\n",
    )
    forked, fresh = await bench.run(project), await bench.run(project, start="exec")
    assert forked.json["frozen"] > 0
    assert fresh.json["frozen"] == 0
    assert fresh.state is State.SUCCESS


async def test_a_preloaded_project_is_imported_once_in_its_environment(bench: Bench, tmp_path: Path) -> None:
    project = function_project(
        tmp_path / "loaded",
        "import os\nIMPORTED_IN, READ = os.getpid(), os.environ.get('FLAVOUR')\n"
        "def run():\n    return [IMPORTED_IN, READ, os.environ.get('FLAVOUR')]\n",
    )
    runs = [await bench.run(project, environment={"FLAVOUR": "sweet"}, preload_project=True) for _ in range(2)]
    assert runs[0].json == runs[1].json
    assert runs[0].json[1:] == ["sweet", "sweet"]
    other = await bench.run(project, environment={"FLAVOUR": "sour"}, preload_project=True)
    assert other.json[1:] == ["sour", "sour"]


async def test_a_project_that_can_not_be_preloaded_fails_in_words(bench: Bench, tmp_path: Path) -> None:
    project = function_project(tmp_path / "broken", "import no_such_package\ndef run():\n    pass\n")
    outcome = await bench.run(project, preload_project=True)
    assert (outcome.state, outcome.reason) == (State.FAILED, Reason.ERROR)
    assert "no_such_package" in str(outcome.error)


async def test_what_a_run_waits_for_is_told(bench: Bench, project: Path) -> None:
    heard, again = Heard(), Heard()
    await bench.run(project, heard=heard)
    await bench.run(project, heard=again)
    assert heard.of(Preparing) == [Preparing("zygote"), Preparing(None)]
    assert again.of(Preparing) == []
    assert recognise(project).preload is None
