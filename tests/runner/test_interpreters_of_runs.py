from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from projects_for_tests.making import Bench, Heard, doing, function_project, written
from windlass.errors import ChildLost, ProjectError
from windlass.kickoffs.states import Reason, State
from windlass.projects import recognise
from windlass.runner import Runner, RunSpec
from windlass.runner.prepared_interpreters import copy_programs
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


STARTS_PROGRAMS = """
import os, subprocess, sys

def run():
    started = subprocess.run(["python", "-c", "import sys; print(sys.prefix)"], stdout=subprocess.PIPE, text=True)
    hello = subprocess.run(["hello"], stdout=subprocess.PIPE, text=True)
    home, active = os.environ.get("PYTHONHOME"), os.environ.get("VIRTUAL_ENV")
    return {"own": sys.prefix, "started": started.stdout.strip(), "hello": hello.stdout, "home": home, "active": active}
"""


@pytest.mark.parametrize("how", [{}, {"start": "exec"}, {"preload_project": True}])
async def test_programs_that_a_crew_starts_by_name_are_those_of_its_environment(
    tmp_path: Path, bench: Bench, how: dict[str, Any]
) -> None:
    bench.interpreter = bare_environment(tmp_path)
    hello = bench.interpreter.with_name("hello")
    hello.write_text("#!/bin/sh\necho of the environment\n")
    hello.chmod(0o755)
    own = {"PATH": "/usr/bin:/bin", "VIRTUAL_ENV": "/nowhere", "PYTHONHOME": "/nowhere"}
    outcome = await bench.run(function_project(tmp_path / "project", STARTS_PROGRAMS), {}, own, **how)
    assert outcome.state is State.SUCCESS, outcome.error
    prefix = str(tmp_path / "bare")
    assert outcome.json == {
        "own": prefix, "started": prefix, "hello": "of the environment\n", "home": None, "active": prefix
    }  # fmt: skip


async def test_a_crew_on_the_interpreter_of_windlass_starts_that_python(tmp_path: Path, bench: Bench) -> None:
    code = """
        import subprocess, sys

        def run():
            found = subprocess.run(["python", "-c", "import sys; print(sys.prefix)"], stdout=subprocess.PIPE, text=True)
            return found.stdout.strip() == sys.prefix
    """
    outcome = await bench.run(function_project(tmp_path / "project", code))
    assert outcome.json is True, outcome.error


def test_a_copy_of_an_environment_has_its_programs_and_its_scripts_run_on_the_copy(tmp_path: Path) -> None:
    source, target = tmp_path / "source" / "bin", tmp_path / "target" / "bin"
    written(source, {"tool": f"#!{source}/python3\nimport sys\nprint(sys.prefix)\n", "activate": "export PATH\n"})
    written(source, {"windlass": f"#!{source}/python\n", "other": "#!/bin/sh\n"})
    shutil.copy("/bin/true", source / "uvx")
    python = bare_environment(tmp_path)
    target.mkdir(parents=True)
    copy_programs(source, target, python)
    assert sorted(path.name for path in target.iterdir()) == ["tool", "uvx"]
    printed = subprocess.run([target / "tool"], check=True, capture_output=True, text=True).stdout
    assert printed == f"{tmp_path / 'bare'}\n"
    assert subprocess.run([target / "uvx"], check=False).returncode == 0


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
