from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from projects_for_tests.making import Bench, Heard, doing
from windlass.errors import ChildLost, ProjectError
from windlass.kickoffs.states import Reason, State
from windlass.projects import recognise
from windlass.runner import Runner, RunSpec
from windlass.runner.spawning import state_of_environment


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return doing("function", tmp_path)


async def test_an_interpreter_without_the_framework_says_so(tmp_path: Path, bench: Bench, project: Path) -> None:
    python = bare_environment(tmp_path)
    with pytest.raises(ProjectError) as caught:
        await bench.runner.warm(python, "crewai")
    assert caught.value.message == f"crewai is not installed in {python}."
    with pytest.raises(ProjectError) as caught:
        await bench.runner.inspect(python, "crewai", recognise(project).project, {})
    assert caught.value.hint == f"Make the project's environment: windlass setup {project}"


async def test_crews_run_in_an_interpreter_that_knows_nothing_of_windlass(tmp_path: Path, scratch: Path) -> None:
    runner = Runner(scratch, {"PATH": os.defpath})
    await runner.start()
    outcome = await Bench(runner, bare_environment(tmp_path)).run(doing("function", tmp_path), {"do": "importable"})
    await runner.stop()
    assert outcome.state is State.SUCCESS, outcome.error
    assert outcome.json == {"windlass": False, "pydantic": False, "channel": False, "windlass_child": True}


def test_an_environment_that_is_made_again_gets_other_zygotes(tmp_path: Path) -> None:
    python = bare_environment(tmp_path)
    before = state_of_environment(python)
    assert before == state_of_environment(python)
    shutil.move(tmp_path / "bare", tmp_path / "former")
    assert state_of_environment(bare_environment(tmp_path)) != before
    assert state_of_environment(tmp_path / "bin" / "python") == ""


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


@pytest.mark.parametrize(("signal", "error"), [("KILL", ChildLost), ("SEGV", ProjectError)])
async def test_one_that_is_killed_before_it_is_ready_is_lost_and_one_that_crashes_is_broken(
    tmp_path: Path, bench: Bench, signal: str, error: type[Exception]
) -> None:
    ended = tmp_path / "python"
    ended.write_text(f"#!/bin/sh\nkill -{signal} $$\n")
    ended.chmod(0o755)
    with pytest.raises(error, match="before it could run crews"):
        await bench.runner.warm(ended, None)


async def test_a_run_on_a_broken_interpreter_fails_in_words(tmp_path: Path, bench: Bench, project: Path) -> None:
    found = recognise(project)
    order = RunSpec("some-kickoff", 1, tmp_path / "missing", None, found.project, {}, {})
    outcome = await bench.runner.run(order, Heard().report)
    assert outcome.reason is Reason.ERROR
    assert "missing can't be started" in str(outcome.error)
