"""Whatever a function's code raises is told in one line, with its place and a remedy where there is one."""

from __future__ import annotations

import errno
import io
import sys
import warnings
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from projects_for_tests.making import Bench, Heard, function_project, written
from windlass.errors import ProjectError
from windlass.kickoffs.states import Reason
from windlass_child.checks.findings import finding
from windlass_child.process import error_text
from windlass_child.process.error_text import ProjectFault, explain
from windlass_child.protocol.messages import Project, TaskEnded

if TYPE_CHECKING:
    from pathlib import Path

ROOT = "/project"

in_a_process = pytest.mark.asyncio(loop_scope="session")
functions = pytest.mark.xdist_group("functions")

OURS = """
def load(make):
    try:
        make()
    except KeyError as error:
        raise Fault("no agent") from error
"""
THEIRS = """def made():
    raise KeyError('reseacher')"""

WORDLESS = "(its text could not be made)"


class WordlessError(Exception):
    def __str__(self) -> str:
        raise LookupError


class ValidationError(Exception):
    """Named as pydantic's, and not like it."""

    def errors(self) -> list[str]:
        return ["city"]


class Nameless:
    def __repr__(self) -> str:
        raise LookupError


def function_in(file: str, code: str) -> Any:
    """Returns the function of the code, whose frames are in the file."""
    names: dict[str, Any] = {"Fault": ProjectFault}
    exec(compile(code, file, "exec"), names)
    return next(one for name, one in names.items() if name in {"load", "made"})


@pytest.mark.parametrize("file", [f"{ROOT}/app.py", "/usr/lib/library.py"], ids=["project", "library"])
def test_the_trace_of_a_failed_load_has_no_frames_of_windlass(file: str) -> None:
    load, made = function_in(str(error_text.OWN_CODE / "kinds/some.py"), OURS), function_in(file, THEIRS)
    with pytest.raises(ProjectFault) as caught:
        load(made)
    failed = explain(caught.value, "load", ROOT)
    assert failed.message == "no agent"
    assert f'File "{file}", line 2, in made' in failed.trace
    assert "windlass_child" not in failed.trace
    assert "direct cause" not in failed.trace


def test_a_fault_that_windlass_found_has_no_trace() -> None:
    with pytest.raises(ProjectFault) as caught:
        raise ProjectFault("app:Steps is a flow and no function", "Name it as one.")
    assert explain(caught.value, "load", ROOT).trace == ""


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (WordlessError(), f"WordlessError: {WORDLESS}"),
        (ValidationError(), f"ValidationError: {WORDLESS}"),
        (
            ExceptionGroup("-", [WordlessError(), ValueError("b")]),
            f"ExceptionGroup: WordlessError: {WORDLESS}; ValueError: b",
        ),
    ],
    ids=["error", "validation", "group"],
)
def test_an_error_whose_text_can_not_be_made_is_told_by_its_name(error: Exception, message: str) -> None:
    assert explain(error, "run", ROOT).message == message


def test_groups_of_the_backport_are_explained_on_a_python_without_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    backport = ModuleType("exceptiongroup")
    backport.BaseExceptionGroup = BaseExceptionGroup  # type: ignore[attr-defined]
    group = ExceptionGroup("-", [ValueError("a"), ValueError("b")])
    monkeypatch.setitem(sys.modules, "exceptiongroup", backport)
    monkeypatch.setattr(error_text, "builtins", ModuleType("builtins"))
    assert explain(group, "run", ROOT).message == "ExceptionGroup: ValueError: a; ValueError: b"
    monkeypatch.delitem(sys.modules, "exceptiongroup")
    assert explain(group, "run", ROOT).message.startswith("ExceptionGroup: - (2 sub-exceptions)")


def test_an_exit_with_a_value_that_can_not_be_shown_is_told() -> None:
    assert f"sys.exit({WORDLESS})" in explain(SystemExit(Nameless()), "run", ROOT).message


def test_what_reads_standard_input_learns_that_there_is_none() -> None:
    told = explain(EOFError("EOF when reading a line"), "run", ROOT)
    assert told.hint == "A kickoff has no standard input, and no one to answer."
    assert explain(EOFError("Ran out of input"), "run", ROOT).hint == ""


def test_a_syntax_error_of_text_that_is_no_file_of_the_project_keeps_its_place() -> None:
    with pytest.raises(SyntaxError) as caught:
        compile("def (", "<text>", "exec")
    assert explain(caught.value, "run", ROOT).message == f"SyntaxError: {caught.value.msg} (<text>, line 1)"


def raised(code: str) -> BaseException:
    with pytest.raises((RuntimeError, EOFError, NameError, AttributeError)) as caught:
        exec(compile(code, f"{ROOT}/crew.py", "exec"), {})
    return caught.value


@pytest.mark.parametrize(
    ("code", "asked", "hint"),
    [
        (
            "import click\nclick.confirm(\"You are missing the 'tavily' package. Would you like to install it?\")",
            "\"You are missing the 'tavily' package. Would you like to install it?\"",
            "Name the package among the project's dependencies, and run: windlass setup /project",
        ),
        ("import click\nclick.prompt('Topic')", "'Topic'", "Make it an input of the kickoff, or let a person"),
        ("import getpass\ngetpass.fallback_getpass('Key: ')", "'Key:'", "Make it an input of the kickoff, or let"),
    ],
    ids=["confirm", "prompt", "password"],
)
def test_what_asks_at_a_terminal_is_named_with_its_question(
    monkeypatch: pytest.MonkeyPatch, code: str, asked: str, hint: str
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a password that would be shown
        found = explain(raised(code), "run", ROOT)
    assert found.message == f"the code asked {asked} at the terminal, but a kickoff has no one to answer (crew.py:2)."
    assert found.hint.startswith(hint)


@pytest.mark.parametrize(
    "code", ["print(OPENAI_API_KEY)", "import math\nmath.OPENAI_API_KEY"], ids=["name", "attribute"]
)
def test_a_name_that_the_code_does_not_have_is_no_variable_to_set(code: str) -> None:
    found = explain(raised(code), "run", ROOT)
    assert "among the crew's variables" not in found.hint
    if "print" in code:
        assert found.hint.endswith('os.environ["OPENAI_API_KEY"].')


def test_a_path_that_can_not_be_written_is_to_be_one_in_the_working_folder() -> None:
    for path, words in ((f"{ROOT}/out.txt", "own folder is read-only"), ("/etc/out.txt", "WINDLASS_CREW_FILES")):
        hint = explain(PermissionError(errno.EACCES, "Permission denied", path), "run", ROOT).hint
        assert words in hint
        assert "open('result.md', 'w')" in hint


async def error_of(bench: Bench, folder: Path, code: str) -> str:
    outcome = await bench.run(function_project(folder, code))
    assert outcome.reason is Reason.ERROR
    assert outcome.error is not None
    return outcome.error


@functions
@in_a_process
async def test_an_error_without_words_ends_the_run_and_not_its_process(bench: Bench, tmp_path: Path) -> None:
    code = "class Mute(Exception):\n    def __str__(self): raise LookupError\n\ndef run():\n    raise Mute\n"
    assert await error_of(bench, tmp_path, code) == f"Mute: {WORDLESS} (work.py:5)"


@functions
@in_a_process
async def test_a_run_that_gives_a_generator_fails_with_its_task(bench: Bench, tmp_path: Path) -> None:
    heard = Heard()
    outcome = await bench.run(function_project(tmp_path, "def run():\n    return (one for one in 'ab')\n"), heard=heard)
    assert outcome.error == "the crew's code returned a generator, which is no result. Return a list, for example."
    assert [ended.state for ended in heard.of(TaskEnded)] == ["failed"]


@functions
@in_a_process
@pytest.mark.parametrize("code", ["def run():\n    yield 1\n", "async def run():\n    yield 1\n"])
async def test_a_function_that_is_a_generator_is_refused_when_it_is_loaded(
    bench: Bench, tmp_path: Path, code: str
) -> None:
    with pytest.raises(ProjectError, match="no kickoff can run work:run: it is a generator"):
        await bench.inspect(function_project(tmp_path, code))


@functions
@in_a_process
async def test_input_finds_nothing_to_read_and_it_is_said_why(bench: Bench, tmp_path: Path) -> None:
    told = await error_of(bench, tmp_path, "def run():\n    return input()\n")
    assert told == (
        "the code called input() and asked, but a kickoff has no one to answer (work.py:2). "
        "Make it an input of the kickoff, or let a person approve the result after the kickoff."
    )


@functions
@in_a_process
@pytest.mark.parametrize("name", ["CancelledError", "KeyboardInterrupt"])
async def test_an_error_that_says_nothing_is_told_with_its_place(bench: Bench, tmp_path: Path, name: str) -> None:
    code = f"from asyncio import CancelledError\n\ndef run():\n    raise {name}\n"
    assert await error_of(bench, tmp_path, code) == f"{name}: without a message (work.py:4)"


@functions
@in_a_process
async def test_a_task_that_is_cancelled_is_told_with_the_line_that_waited(bench: Bench, tmp_path: Path) -> None:
    code = "import asyncio\n\nasync def run():\n    asyncio.current_task().cancel()\n    await asyncio.sleep(9)\n"
    assert await error_of(bench, tmp_path, code) == (
        "CancelledError: without a message, raised in sleep of asyncio/tasks.py (work.py:5)"
    )


@functions
@in_a_process
async def test_a_locked_database_is_named_with_what_to_do(bench: Bench, tmp_path: Path) -> None:
    code = """
import sqlite3

def save(path):
    with sqlite3.connect(path, timeout=0) as conn:
        conn.execute("CREATE TABLE notes (text)")

def run():
    holder = sqlite3.connect("notes.db", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    try:
        save("notes.db")
    except sqlite3.Error as error:
        raise RuntimeError(f"saving failed: {error}") from error
"""
    told = await error_of(bench, tmp_path, code)
    assert told.startswith("RuntimeError: saving failed: database is locked (work.py:14). Another process holds the")
    assert "notes.db for longer than this code waits. Let each kickoff use a file of its own" in told


@in_a_process
async def test_a_task_of_a_configuration_with_an_unknown_agent_names_it_and_the_agents(
    bench: Bench, tmp_path: Path
) -> None:
    code = """
from crewai import Crew

def run(role):
    agents = [{"role": "writer", "goal": "g", "backstory": "b"}]
    tasks = [{"description": "d", "expected_output": "e", "agent": role}]
    return len(Crew(config={"agents": agents, "tasks": tasks}).tasks)
"""
    project = function_project(tmp_path, code)
    assert (await bench.run(project, {"role": "writer"})).json == 1
    assert (await bench.run(project, {"role": "wrtier"})).error == (
        "StopIteration: a task names the agent 'wrtier', and the crew has 'writer' (work.py:7)"
    )


@functions
@in_a_process
async def test_a_syntax_error_tells_its_place_once(bench: Bench, tmp_path: Path) -> None:
    with pytest.raises(ProjectError) as caught:
        await bench.inspect(function_project(tmp_path, "def run():\n    return (]\n"))
    assert caught.value.message.endswith(" (work.py:2)")
    assert "line 2" not in caught.value.message


@functions
@in_a_process
async def test_a_syntax_error_of_what_is_imported_while_running_tells_its_place(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text("x = (]\n")
    told = await error_of(bench, tmp_path, "def run():\n    import late\n")
    assert told.endswith(" (late.py:1)")
    assert "line 1" not in told


@functions
@in_a_process
async def test_a_missing_package_of_a_namespace_is_named_with_the_namespace(bench: Bench, tmp_path: Path) -> None:
    words = []
    for line in ("from brew import pot", "import brew.pot.lid", "from brew.pot import lid"):
        code = f"import sys\nsys.path.append({str(tmp_path / 'packages')!r})\n\ndef run():\n    {line}\n"
        (tmp_path / "packages" / "brew").mkdir(parents=True, exist_ok=True)
        words.append(await error_of(bench, tmp_path / "project", code))
    assert all(one.startswith("the package 'brew.pot' is not installed in ") for one in words), words


EXTRA = 'OpenTea client not available, to install: uv add "brew[green-tea]"'


ASK = f"raise ImportError({EXTRA!r})"


@pytest.mark.parametrize("code", [ASK, f"try: import brewing\nexcept ImportError: {ASK}"], ids=["alone", "chained"])
def test_a_missing_extra_is_to_be_named_among_the_dependencies(tmp_path: Path, code: str) -> None:
    with pytest.raises(ImportError) as caught:
        exec(compile(code, str(tmp_path / "work.py"), "exec"), {})
    hint = f"Add 'brew[green-tea]' to the project's dependencies, and run: windlass setup {tmp_path}"
    assert explain(caught.value, "run", str(tmp_path)).hint == hint
    assert finding(caught.value, Project("function", str(tmp_path), "work:run"))["hint"] == hint


def test_a_missing_package_of_a_deployed_project_is_added_by_a_deploy() -> None:
    told = explain(ModuleNotFoundError("No module named 'brew'", name="brew"), "run", f"/var/home/sources/{'a' * 64}")
    assert told.message == "the package 'brew' is not installed."
    assert told.hint == "Name its package among the project's dependencies, and deploy the project again."


@functions
@in_a_process
async def test_metadata_of_a_project_that_is_no_package_is_named_so(bench: Bench, tmp_path: Path) -> None:
    for name, start in (
        ("Green_Tea", "the project itself, Green_Tea, is no package, so it has no metadata "),
        ("other", "the package 'other' is not installed in "),
    ):
        code = f"from importlib.metadata import version\n\ndef run():\n    return version({name!r})\n"
        own = '[project]\nname = "green-tea"\nversion = "1"\n[tool.windlass]\nentrypoint = "work:run"\n'
        root = written(tmp_path / name, {"pyproject.toml": own, "work.py": code})
        outcome = await bench.run(root)
        assert str(outcome.error).startswith(start), outcome.error


@functions
@in_a_process
@pytest.mark.parametrize("line", ["from calendar import plan", "import calendar.plan"])
async def test_a_module_with_the_name_of_a_loaded_one_is_to_be_renamed(bench: Bench, tmp_path: Path, line: str) -> None:
    root = written(tmp_path, {"calendar.py": "plan = 1\n"})
    words = await error_of(bench, root, f"import sys\n\ndef run():\n    {line}\n")
    assert words.startswith("calendar.py of the project is not imported, because /")
    assert "/calendar.py has the same name (imported at work.py:4). Rename calendar.py." in words


@functions
@in_a_process
async def test_an_error_of_a_run_names_the_line_of_the_crews_code(bench: Bench, tmp_path: Path) -> None:
    code = """def run():
    return pour(None)

def pour(leaf):
    return leaf.strip()
"""
    words = "AttributeError: 'NoneType' object has no attribute 'strip'"
    assert await error_of(bench, tmp_path, code) == f"{words} (work.py:5)"
