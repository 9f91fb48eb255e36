"""What every kind of project does under the runner, whatever its framework. A kind joins by being in the registry."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from patience import DEADLINE
from projects_for_tests.ends import alive, gone, kickoff_folders
from projects_for_tests.making import Bench, Heard, code_of, doing
from windlass.errors import ProjectError
from windlass.kickoffs.states import Reason, State
from windlass.projects.kinds import KINDS, Kind
from windlass.runner.io import CUT, LONGEST_LINE
from windlass_child.process.process_env import quiet
from windlass_child.protocol.messages import TaskEnded, TasksKnown, TaskStarted


def group_of(kind: Kind) -> str:
    """The tests of one framework run in one process of pytest, and so share a zygote."""
    return "crewai" if kind.packages else "functions"


pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.parametrize(
        "kind", [pytest.param(kind.name, marks=pytest.mark.xdist_group(group_of(kind))) for kind in KINDS]
    ),
]

ANY_JSON: dict[str, Any] = {
    "text": 'é 漢字 🦜 "quoted" {braces} \\ \n\t',
    "nul": "a\x00b",
    "big": 2**70,
    "small": -1.5e-300,
    "nothing": None,
    "yes": True,
    "list": [1, [2, [3, {}]], []],
    "ключ with spaces": {"": ""},
}


@pytest.fixture
def project(kind: str, tmp_path: Path) -> Path:
    return doing(kind, tmp_path)


def first_line(project: Path, line: str) -> str:
    """Puts a line before the project's code; what it is called in errors."""
    code = code_of(project)
    code.write_text(f"{line}\n{code.read_text()}")
    return code.relative_to(project).as_posix()


async def test_inspection_finds_the_kind_and_its_tasks(bench: Bench, project: Path, kind: str) -> None:
    manifest = await bench.inspect(project)
    assert manifest.kind == kind.removeprefix("json_").removeprefix("declarative_")
    assert manifest.tasks
    assert all(len(task.key) == 32 and task.task_id == task.name for task in manifest.tasks)
    assert manifest.inputs_schema["type"] == "object"


async def test_inputs_reach_it_unchanged(bench: Bench, project: Path) -> None:
    outcome = await bench.run(project, ANY_JSON)
    assert outcome.state is State.SUCCESS, outcome.error
    assert {name: value for name, value in outcome.json.items() if name in ANY_JSON} == ANY_JSON


async def test_half_a_surrogate_pair_in_a_result_becomes_a_replacement_character(bench: Bench, project: Path) -> None:
    outcome = await bench.run(project, ANY_JSON | {"text": "a \ud800 b"})
    assert outcome.state is State.SUCCESS, outcome.error
    assert outcome.json["text"] == "a \ufffd b"


async def test_inputs_may_be_nested_deeply(bench: Bench, project: Path) -> None:
    deep: list[Any] = []
    for _ in range(150):
        deep = [deep]
    outcome = await bench.run(project, {"deep": deep})
    assert outcome.json["deep"] == deep


async def test_every_task_is_told_from_start_to_end(bench: Bench, project: Path) -> None:
    heard = Heard()
    await bench.run(project, heard=heard)
    (known,) = heard.of(TasksKnown)
    everywhere = list(range(len(known.tasks)))
    assert [started.position for started in heard.of(TaskStarted)] == everywhere
    assert [ended.position for ended in heard.of(TaskEnded)] == everywhere
    assert all(ended.state == "completed" and ended.seconds >= 0 for ended in heard.of(TaskEnded))
    assert [started.key for started in heard.of(TaskStarted)] == [task["key"] for task in known.tasks]


async def test_its_environment_is_what_it_was_given(
    bench: Bench, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WINDLASS_MASTER_KEY", "the server's alone")
    outcome = await bench.run(project, {"do": "environment"}, {"OPENAI_API_KEY": "sk-of-this-crew"})
    found = outcome.json
    of_the_runner = {"CREWAI_STORAGE_DIR", "TMPDIR", *quiet()}
    assert found["OPENAI_API_KEY"] == "sk-of-this-crew"
    assert not any(name.startswith(("WINDLASS", "PYTHON")) for name in found)
    assert set(found) - of_the_runner - {"OPENAI_API_KEY"} <= {"HOME", "LANG", "LC_ALL", "LC_CTYPE", "LANGUAGE"} | {
        *("LOGNAME", "PATH", "SSL_CERT_DIR", "SSL_CERT_FILE", "TZ", "USER", "VIRTUAL_ENV"),
    }


async def test_one_run_sees_nothing_of_the_environment_of_another(bench: Bench, project: Path) -> None:
    await bench.run(project, environment={"ONLY_HERE": "1"})
    outcome = await bench.run(project, {"do": "environment"})
    assert "ONLY_HERE" not in outcome.json


async def test_calls_home_are_off_unless_its_environment_wants_them(bench: Bench, project: Path) -> None:
    wanted = {"ANONYMIZED_TELEMETRY": "true"}
    found = (await bench.run(project, {"do": "environment"}, wanted)).json
    assert {name: found[name] for name in quiet()} == quiet() | wanted


async def test_it_works_in_a_folder_of_its_own_which_is_gone_after(bench: Bench, project: Path, scratch: Path) -> None:
    found = (await bench.run(project, {"do": "folder"})).json
    folder = Path(found["folder"])
    assert folder.is_relative_to(scratch)
    places = {name: folder.parent / name for name in ("home", "tmp", "storage")}
    assert (Path(found["home"]), Path(found["temporary"]), Path(found["storage"])) == tuple(places.values())
    assert found["in_home"] == []
    assert found["mode"] == "0o700"
    assert found["stdin"] == ""
    assert found["group"], "it leads a process group and a session of its own"
    assert kickoff_folders(scratch) == []


async def test_its_output_comes_line_by_line(bench: Bench, project: Path) -> None:
    heard = Heard()
    await bench.run(project, {"do": "lines"}, heard=heard)
    out = heard.lines("stdout")
    assert out[:3] == ["one", "two é", "not � utf-8"]
    assert out[3] == "x" * LONGEST_LINE + CUT
    assert "from a program" in out
    assert "without an end" in out[-1]
    assert "to standard error" in heard.lines("stderr")


async def test_a_failure_is_one_line_without_secrets(bench: Bench, project: Path) -> None:
    heard = Heard()
    outcome = await bench.run(project, {"do": "fail"}, {"SOME_API_KEY": "sk-very-secret"}, heard)
    assert (outcome.state, outcome.reason) == (State.FAILED, Reason.ERROR)
    assert re.fullmatch(
        r"ValueError: it could not be done with \[secret\] \((src/doing/)?deeds\.py:\d+\)", str(outcome.error)
    )
    assert "deeds.py" in outcome.trace
    assert "sk-very-secret" not in repr([outcome, heard.all])


@pytest.mark.parametrize(
    ("deed", "words"),
    [
        ("exit", "the crew's process ended with exit code 3 before it gave a result."),
        ("garbage", "the crew's code wrote to the socket that its process reports on."),
    ],
)
async def test_an_end_without_an_answer_is_a_crash(bench: Bench, project: Path, deed: str, words: str) -> None:
    outcome = await bench.run(project, {"do": deed})
    assert (outcome.state, outcome.reason) == (State.FAILED, Reason.CRASHED)
    assert outcome.error is not None
    assert outcome.error.startswith(words)


async def test_sys_exit_is_a_failure_with_its_words(bench: Bench, project: Path) -> None:
    outcome = await bench.run(project, {"do": "sys_exit"})
    assert outcome.reason is Reason.ERROR
    assert "sys.exit('enough')" in str(outcome.error)


async def test_a_process_that_is_killed_is_a_crash_and_takes_its_own_with_it(bench: Bench, project: Path) -> None:
    heard = Heard()
    run = asyncio.create_task(bench.run(project, {"do": "sleep"}, heard=heard))
    pid, other = await heard.pids()
    os.kill(pid, signal.SIGKILL)
    outcome = await run
    assert outcome.reason is Reason.CRASHED
    assert str(outcome.error).startswith("the crew's process was killed by SIGKILL.")
    await gone(pid, other)


async def test_a_run_that_is_cancelled_leaves_nothing(bench: Bench, project: Path, scratch: Path) -> None:
    heard = Heard()
    run = asyncio.create_task(bench.run(project, {"do": "sleep"}, heard=heard))
    pids = await heard.pids()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    await gone(*pids)
    assert kickoff_folders(scratch) == []


async def test_two_run_at_once(bench: Bench, project: Path, tmp_path: Path) -> None:
    met = await asyncio.gather(
        bench.run(project, {"do": "meet", "mine": str(tmp_path / "a"), "theirs": str(tmp_path / "b")}),
        bench.run(project, {"do": "meet", "mine": str(tmp_path / "b"), "theirs": str(tmp_path / "a")}),
    )
    assert [outcome.output for outcome in met] == ["met", "met"]


async def test_a_large_result_comes_whole(bench: Bench, project: Path) -> None:
    heard = Heard()
    outcome = await bench.run(project, {"do": "big"}, heard=heard)
    outputs = {ended.position: ended.output for ended in heard.of(TaskEnded)}
    output: Any = outcome.output or outputs[outcome.output_of]
    assert output.value == "ü" * 1_000_000  # a large field reaches the server encoded


async def test_a_thread_that_was_left_running_holds_nothing_up(bench: Bench, project: Path) -> None:
    outcome = await asyncio.wait_for(bench.run(project, {"do": "leave_thread"}), DEADLINE)
    assert outcome.output == "left"


async def test_a_process_that_it_leaves_holds_nothing_up_and_is_gone_before_its_end_is_told(
    bench: Bench, project: Path
) -> None:
    outcome = await asyncio.wait_for(bench.run(project, {"do": "leave_process"}), DEADLINE)
    assert outcome.state is State.SUCCESS
    assert not alive(outcome.json)


async def test_exit_handlers_run(bench: Bench, project: Path) -> None:
    heard = Heard()
    await bench.run(project, {"do": "register_exit"}, heard=heard)
    assert "exit handler" in heard.lines("stdout")[-1]


async def test_a_process_that_it_forks_says_nothing_in_its_name(bench: Bench, project: Path) -> None:
    heard = Heard()
    outcome = await bench.run(project, {"do": "fork"}, heard=heard)
    assert outcome.output == "waited"
    assert "forked" in heard.lines("stdout")


async def test_an_error_at_import_is_told_with_file_and_line(bench: Bench, project: Path) -> None:
    file = first_line(project, 'raise RuntimeError("not today")')
    with pytest.raises(ProjectError) as caught:
        await bench.inspect(project)
    assert caught.value.message == f"RuntimeError: not today ({file}:1)"


async def test_a_mistake_in_syntax_is_told_with_file_and_line(bench: Bench, project: Path) -> None:
    file = first_line(project, "def (:")
    with pytest.raises(ProjectError, match="SyntaxError") as caught:
        await bench.inspect(project)
    assert f"({file}:1)" in caught.value.message


async def test_a_missing_package_is_told_with_the_command_that_installs_it(bench: Bench, project: Path) -> None:
    file = first_line(project, "import no_such_package.inside")
    with pytest.raises(ProjectError) as caught:
        await bench.inspect(project)
    assert caught.value.message.startswith("the package 'no_such_package' is not installed in ")
    assert f"(imported at {file}:1)" in caught.value.message
    assert caught.value.hint == f"Name its package among the project's dependencies, and run: windlass setup {project}"


async def test_a_run_whose_project_can_not_be_loaded_fails_in_the_same_words(bench: Bench, project: Path) -> None:
    file = first_line(project, "1 / 0")
    outcome = await bench.run(project)
    assert (outcome.state, outcome.reason) == (State.FAILED, Reason.ERROR)
    assert outcome.error == f"ZeroDivisionError: division by zero ({file}:1)"


async def test_the_end_of_the_process_at_import_is_told(bench: Bench, project: Path) -> None:
    first_line(project, "import os; os._exit(4)")
    with pytest.raises(ProjectError, match="while the project was loaded the crew's process ended with exit code 4"):
        await bench.inspect(project)
