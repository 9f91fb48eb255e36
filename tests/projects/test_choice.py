"""The choice of the crew, flow or function in a project's code, and its messages."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

from projects_for_tests.layouts import CREW_BASE, FLOW, MAKE
from projects_for_tests.making import written
from windlass.errors import ProjectError
from windlass.projects import recognise
from windlass.projects.kinds import code
from windlass.projects.kinds.declared import placed

pytestmark = pytest.mark.unit


NAMED = '[project]\nname = "talk"\n'
FACTORY = MAKE.replace("def make", "def build_crew")
RUN = "def main():\n    return build_crew().kickoff()\n"
TRIP = """
class Trip:
    def __init__(self, origin, cities=None, *, days):
        self.origin = origin

    def run(self):
        crew = Crew(agents=[], tasks=[])
        return crew.kickoff()
"""


def chosen(path: Path) -> tuple[str, str]:
    found = recognise(path).project
    return found.kind, found.entrypoint


def fault_of(path: Path) -> ProjectError:
    with pytest.raises(ProjectError) as caught:
        recognise(path)
    return caught.value


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"crew.py": CREW_BASE, "main.py": FLOW}, ("flow", "main")),
        ({"crew.py": CREW_BASE, "other.py": CREW_BASE}, ("crew", "crew")),
        ({"crew.py": CREW_BASE + FACTORY}, ("crew", "crew:Work")),
        ({"main.py": FACTORY + RUN.replace("()", "(topic)")}, ("function", "main:main")),
        ({"main.py": FACTORY + RUN}, ("crew", "main:build_crew")),
        ({"src/__init__.py": "", "src/crew.py": CREW_BASE}, ("crew", "src.crew")),
        ({"talk/crew.py": CREW_BASE, "talk/sub/crew.py": CREW_BASE, "pyproject.toml": NAMED}, ("crew", "talk.crew")),
        ({"crew.py": CREW_BASE, "tests/crew.py": CREW_BASE, ".hidden/crew.py": CREW_BASE}, ("crew", "crew")),
        ({"crew.py": CREW_BASE, "in/pyproject.toml": "", "in/a.py": FLOW, "pyproject.toml": ""}, ("crew", "crew")),
        (
            {"a.py": CREW_BASE, "b.py": CREW_BASE.replace("Work", "Rest"), "main.py": (
                "from a import Work\nfrom b import Rest\n"
                "def main():\n    Work().crew().kickoff()\n    return Rest().crew().kickoff()\n"
            )},
            ("function", "main:main"),
        ),
    ],
)  # fmt: skip
def test_what_precedes(tmp_path: Path, files: dict[str, str], found: tuple[str, str]) -> None:
    assert chosen(written(tmp_path, files)) == found


def test_the_choice_is_the_same_each_time(tmp_path: Path) -> None:
    project = written(tmp_path, {f"part{number}.py": MAKE.replace("make", f"make_{number}") for number in range(20)})
    assert {fault_of(project).message for _ in range(3)} == {fault_of(project).message}
    assert "; and 12 more" in fault_of(project).message


def test_several_are_listed_with_places_and_the_line_to_add(tmp_path: Path) -> None:
    files = {"one.py": CREW_BASE, "two.py": "import os\n" + FACTORY, "pyproject.toml": NAMED}
    written(tmp_path, files | {"two.py": CREW_BASE.replace("Work", "Rest")})
    fault = fault_of(tmp_path)
    assert fault.message.endswith("Work (one.py:3, a class with @CrewBase); Rest (two.py:3, a class with @CrewBase).")
    command = f"windlass dev {tmp_path}/one.py:Work"
    assert fault.hint == (
        f'Add to pyproject.toml: [tool.windlass] crew = "one:Work", or name one: {command}. '
        f"To serve each under its own name: {command} {tmp_path}/two.py:Rest, "
        f"or windlass deploy {tmp_path} --entrypoint one.py:Work --name Work; "
        f"windlass deploy {tmp_path} --entrypoint two.py:Rest --name Rest"
    )
    (tmp_path / "pyproject.toml").unlink()
    assert fault_of(tmp_path).hint.startswith(
        'Create pyproject.toml with the lines [tool.windlass] and crew = "one:Work"'
    )


def test_several_flows_and_functions_are_listed_with_their_option(tmp_path: Path) -> None:
    flows = fault_of(written(tmp_path / "flows", {"one.py": FLOW, "two.py": FLOW}))
    assert 'flow = "one:Talk"' in flows.hint
    assert "--entrypoint two.py:Talk --name two-Talk" in flows.hint, "two of the same name get different ones"
    run = "def {}():\n    return crew.kickoff()\n"
    functions = fault_of(written(tmp_path / "functions", {"a.py": run.format("one") + run.format("two")}))
    assert 'entrypoint = "a:one"' in functions.hint


def test_the_line_to_add_is_taken(tmp_path: Path) -> None:
    written(tmp_path, {"one.py": CREW_BASE, "two.py": CREW_BASE})
    written(tmp_path, {"pyproject.toml": '[tool.windlass]\ncrew = "one:Work"\n'})
    assert chosen(tmp_path) == ("crew", "one:Work")


def test_a_class_that_needs_arguments_is_listed_with_a_function_to_write(tmp_path: Path) -> None:
    fault = fault_of(written(tmp_path, {"main.py": TRIP}))
    assert (
        "Trip (main.py:2, a class that makes a crew in run(), but its constructor needs origin, days)" in fault.message
    )
    assert "`def kickoff(origin, days): return Trip(origin=origin, days=days).run()`" in fault.hint
    assert 'entrypoint = "main:kickoff"' in fault.hint


def test_a_method_with_arguments_is_called_with_them_in_the_function_to_write(tmp_path: Path) -> None:
    code = TRIP.replace("def run(self)", "def run(self, days, topic, tone='dry')")
    function = "def kickoff(origin, days, topic): return Trip(origin=origin, days=days).run(days=days, topic=topic)"
    assert f"`{function}`" in fault_of(written(tmp_path, {"main.py": code})).hint


NEEDY = """
class Trip{base}:
    def __init__(self, origin, days, tone="dry"): ...
{body}
"""
CREW_METHOD = "    {mark}\n    def crew(self{more}): return Crew()"
START = "    @start()\n    def go(self): ..."


@pytest.mark.parametrize(
    ("code", "function"),
    [
        (
            "@CrewBase" + NEEDY.format(base="", body=CREW_METHOD.format(mark="@crew", more="")),
            "def kickoff(origin, days): return Trip(origin=origin, days=days).crew()",
        ),
        (
            NEEDY.format(base="", body=CREW_METHOD.format(mark="", more=", topic")),
            "def kickoff(origin, days, topic): return Trip(origin=origin, days=days).crew(topic=topic)",
        ),
        (NEEDY.format(base="(Flow)", body=START), "def kickoff(origin, days): return Trip(origin=origin, days=days)"),
    ],
    ids=["crew class", "plain class", "flow"],
)
def test_the_function_to_write_gives_each_class_its_arguments(tmp_path: Path, code: str, function: str) -> None:
    assert f"`{function}`" in fault_of(written(tmp_path, {"main.py": code})).hint


@pytest.mark.parametrize("code", ["input('Topic? ')", "import sys; sys.argv[1]", "argparse.ArgumentParser()"])
def test_a_function_that_asks_its_terminal_is_not_chosen(tmp_path: Path, code: str) -> None:
    fault = fault_of(written(tmp_path, {"main.py": f"def main():\n    {code}\n    return crew.kickoff()\n"}))
    assert "main (main.py:1, a function that runs a crew, but it " in fault.message


def test_a_type_that_no_code_fits_is_an_error_with_what_the_code_has(tmp_path: Path) -> None:
    fault = fault_of(written(tmp_path, {"main.py": FLOW, "pyproject.toml": '[tool.crewai]\ntype = "crew"\n'}))
    assert fault.message.startswith(f"no crew found in {tmp_path}: looked for ")
    assert fault.message.endswith("Its code has: Talk (main.py:10, a flow).")


def test_a_path_may_have_colons_before_the_object(tmp_path: Path) -> None:
    root = written(tmp_path / "a:b", {"crew.py": ""})
    (tmp_path / "a").mkdir()
    assert placed(root / "crew.py:build") == (root, ("crew.py", "build"))
    assert placed(root / "crew.py") == (root, ("crew.py", None))
    assert placed(Path(f"{root}:tea.crew:build")) == (root, (None, "tea.crew:build"))
    with pytest.raises(ProjectError, match=r"no.* folder|no file"):
        placed(tmp_path / "missing.py:build")


def test_a_folder_of_projects_is_none(tmp_path: Path) -> None:
    fault = fault_of(written(tmp_path, {f"{name}/pyproject.toml": NAMED for name in "ab"} | {"c/crew.py": CREW_BASE}))
    assert fault.message.endswith("These folders in it are projects: a, b.")


def test_a_usual_module_that_can_not_be_parsed_is_an_error_and_another_crew_is_not_served_for_it(
    tmp_path: Path,
) -> None:
    project = written(tmp_path, {"main.py": "x = 1\ndef (", "parts/crew.py": CREW_BASE})
    assert fault_of(project).message.startswith("main.py can't be parsed: line 2: ")
    written(project, {"pyproject.toml": '[tool.windlass]\ncrew = "parts.crew"\n'})
    assert chosen(project) == ("crew", "parts.crew")


@pytest.mark.parametrize(
    ("named", "found"),
    [
        ("all.py:Rest", ("crew", "all:Rest")),
        ("all.py:helper", ("function", "all:helper")),
        ("pkg/deep/crew.py", ("crew", "pkg.deep.crew:Work")),
        (":Rest", ("crew", "all:Rest")),
        (":pkg.deep.crew:Work", ("crew", "pkg.deep.crew:Work")),
    ],
)
def test_files_and_objects_can_be_named(tmp_path: Path, named: str, found: tuple[str, str]) -> None:
    everything = CREW_BASE + CREW_BASE.replace("Work", "Rest") + "\n\ndef helper(text):\n    return text\n"
    written(
        tmp_path, {"all.py": everything, "pkg/deep/__init__.py": "", "pkg/deep/crew.py": CREW_BASE, "crew.jsonc": "{}"}
    )
    written(tmp_path, {"pyproject.toml": NAMED})
    path = tmp_path.parent / f"{tmp_path.name}{named}" if named.startswith(":") else tmp_path / named
    assert chosen(path) == found
    assert recognise(path).project.root == str(tmp_path)


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ("all.py", "has more than one crew"),
        ("all.py:Other", "all.py has no Other to serve. There are: Work (all.py:3, "),
        ("all.py:TOPIC", "all.py has no TOPIC to serve."),
        ("gone.py", "there is no file "),
        ("gone.py:Work", "there is no file "),
        ("all.txt:Work", "is not a folder."),
        ("broken.py", "broken.py can't be read: line 1"),
        ("nothing.py", "no crew, flow or function found in nothing.py."),
    ],
)
def test_a_name_that_does_not_fit_is_an_error(tmp_path: Path, named: str, words: str) -> None:
    everything = "TOPIC = 1\n" + CREW_BASE.lstrip() + CREW_BASE.replace("Work", "Rest")
    written(tmp_path, {"all.py": everything, "broken.py": "def (", "nothing.py": "x = 1\n", "all.txt": ""})
    assert words in fault_of(tmp_path / named).message


def test_a_module_without_pyproject_belongs_to_the_folder_of_its_package(tmp_path: Path) -> None:
    written(tmp_path, {"pkg/__init__.py": "", "pkg/crew.py": CREW_BASE})
    assert recognise(tmp_path / "pkg" / "crew.py").project.root == str(tmp_path)


def test_hostile_files_are_left_out_and_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "LARGEST", 10_000)
    deep = "x = " + "(" * 90 + "1" + ")" * 90 + "\ny = " + "-" * 5000 + "1\n"
    written(tmp_path, {"crew.py": CREW_BASE, "deep.py": deep, "large.py": "#" * 20_000, "nul.py": "a\0", "a b.py": ""})
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "loop").symlink_to(".")
    (tmp_path / "out.py").symlink_to("/dev/zero")
    names, read = [], code.read

    def counted(path: Path, left: int) -> bytes:
        names.append(path.name)
        return read(path, left)

    monkeypatch.setattr(code, "read", counted)
    assert chosen(tmp_path) == ("crew", "crew")
    assert sorted(names) == ["crew.py", "deep.py", "large.py", "nul.py", "out.py", "pipe.py"]
    assert set(recognised_code(tmp_path).unread) >= {"large.py", "nul.py", "pipe.py", "out.py"}


def test_no_more_files_are_read_than_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "MOST_FILES", 5)
    written(tmp_path, {"crew.py": CREW_BASE} | {f"later/m{number}.py": "" for number in range(20)})
    assert chosen(tmp_path) == ("crew", "crew")
    assert len(recognised_code(tmp_path).modules) == 5


def recognised_code(root: Path) -> code.Code:
    return code.Code(root)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("def crew():\n    return Crew()\n", "crew"),
        ("def crew():\n    made = Crew()\n    made.verbose = True\n    return made\n", "crew"),
        ("def crew():\n    if x:\n        return Crew()\n    return make()\n", "crew"),
        ("def crew():\n    return Work().crew()\n", "crew"),
        ("def crew():\n    return Talk()\n", "flow"),
        ("from other import crew\n", "crew"),
        ("def crew(topic):\n    return Crew()\n", "function"),
        ("def crew(topic='tea'):\n    return Crew()\n", "function"),
        ("def crew(**inputs):\n    return Crew()\n", "function"),
        ("def crew():\n    return Crew().kickoff()\n", "function"),
        ("def crew():\n    return run(Crew())\n", "function"),
        ("def crew():\n    if x:\n        return Crew()\n", "crew"),
        ("def crew():\n    if x:\n        return 'no crew today'\n    return Crew()\n", "function"),
        ("def crew():\n    def inner():\n        return Crew()\n    return run(inner)\n", "function"),
        ("def crew():\n    made = Crew()\n    made = run(made)\n    return made\n", "function"),
        ("@decorated\ndef crew():\n    return Crew()\n", "function"),
        ("def crew():\n    return crew()\n", "function"),
        ("def crew():\n    pass\n", "function"),
    ],
)  # fmt: skip
def test_an_entrypoint_that_only_makes_a_crew_or_a_flow_is_a_project_of_that_kind(
    tmp_path: Path, code: str, kind: str
) -> None:
    files = {"other.py": "def crew():\n    return Crew()\n", "app.py": CREW_BASE + FLOW + MAKE + code}
    written(tmp_path, files | {"pyproject.toml": '[tool.windlass]\nentrypoint = "app:crew"\n'})
    assert chosen(tmp_path) == (kind, "app:crew")


def test_a_file_is_parsed_again_while_other_threads_parse(monkeypatch: pytest.MonkeyPatch) -> None:
    failures, parse = ["first", "second"], ast.parse

    def failing(source: bytes) -> ast.Module:
        if failures:
            raise SystemError(f"AST constructor recursion depth mismatch ({failures.pop()})")
        return parse(source)

    monkeypatch.setattr(ast, "parse", failing)
    assert ast.unparse(code.parsed(b"crew = 1")) == "crew = 1"
