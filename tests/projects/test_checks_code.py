"""What a project's own interpreter tells of it, before its code is imported (windlass_crewside.checking)."""

from __future__ import annotations

import datetime as dt
import sys
import time
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pytest

from projects_for_tests.making import written
from windlass.projects.checks.finding import CODES
from windlass_crewside.checking import clock, configs, declarations, failing, packages
from windlass_crewside.checking.code import Code
from windlass_crewside.faults import ProjectFault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from windlass_crewside.checking.found import Found

CREW = """\
@CrewBase
class Tides:
    @agent
    def ann(self): return Agent(config=self.agents_config["ann"])

    @project.task()
    def one(self): return Task(config=self.tasks_config["one"])
"""
AGENTS = "ann: {role: r}\nbob: {role: r}\n"


def told(findings: Iterable[Found]) -> list[tuple[str, str | None, int | None]]:
    found = list(findings)
    assert {one["code"] for one in found} <= CODES.keys()
    assert all(one["hint"] for one in found)
    return [(one["code"], one["file"], one["line"]) for one in found]


def of_configs(folder: Path, tasks: str, agents: str = AGENTS, crew: str = CREW) -> list[Found]:
    files = {"src/a/crew.py": crew, "src/a/config/tasks.yaml": tasks, "src/a/config/agents.yaml": agents}
    return list(configs.findings(Code(written(folder, files))))


def test_a_crew_whose_files_fit_has_no_findings(tmp_path: Path) -> None:
    assert of_configs(tmp_path, "one:\n  agent: ann\n  context: [one]\ntwo:\n") == []


def test_a_task_with_an_agent_that_is_not_there_is_told_with_its_line(tmp_path: Path) -> None:
    found = of_configs(tmp_path, "one:\n  description: >\n    Long\n    text\n  agent: anne\n")
    assert told(found) == [("unknown_agent", "src/a/config/tasks.yaml", 5)]
    assert found[0]["hint"] == "There are: ann."


def test_an_agent_that_is_in_yaml_and_not_in_the_class_is_told_as_such(tmp_path: Path) -> None:
    (found,) = of_configs(tmp_path, "one:\n  agent: bob\n")
    assert "Tides has no method of that name" in found["message"]


def test_a_class_with_a_base_may_have_agents_that_are_not_seen(tmp_path: Path) -> None:
    assert of_configs(tmp_path, "one:\n  agent: eve\n", crew=CREW.replace("Tides", "Tides(Base)")) == []


def test_a_context_that_names_no_task_is_told_with_its_line(tmp_path: Path) -> None:
    found = of_configs(tmp_path, "one:\n  context:\n    - one\n    - none\n")
    assert told(found) == [("unknown_context", "src/a/config/tasks.yaml", 4)]


@pytest.mark.parametrize(
    ("text", "line"), [("one: [\ntwo: 3\n", 3), ("one:\n  a: b: c\n", 2), ("- one\n", 1), ("a: &x 1\nb: *y\n", 2)]
)
def test_yaml_that_can_not_be_read_is_told_with_its_line(tmp_path: Path, text: str, line: int) -> None:
    assert told(of_configs(tmp_path, text)) == [("yaml_syntax", "src/a/config/tasks.yaml", line)]


def test_both_files_are_looked_at_though_one_can_not_be_read(tmp_path: Path) -> None:
    found = of_configs(tmp_path, "one: {agent: eve}\n", agents="ann: [\n")
    assert sorted(told(found)) == [
        ("unknown_agent", "src/a/config/tasks.yaml", 1),
        ("yaml_syntax", "src/a/config/agents.yaml", 2),
    ]


def test_a_file_that_a_class_asks_for_and_that_is_not_there_is_told_where_it_asks(tmp_path: Path) -> None:
    named = CREW.replace(
        "class Tides:\n", 'class Tides:\n    agents_config = "people.yaml"\n    tasks_config: dict = {}\n'
    )
    code = Code(written(tmp_path, {"flows/crew.py": named}))
    assert told(configs.findings(code)) == [("config_missing", "flows/crew.py", 6)]


def test_files_of_tools_and_tests_are_not_the_projects(tmp_path: Path) -> None:
    files = {f"{folder}/crew.py": CREW for folder in (".venv/lib", "tests", "node_modules", "src/__pycache__")}
    assert Code(written(tmp_path, files | {"broken.py": "def"})).crews == []


def test_the_place_of_a_task_is_its_marked_method_where_there_is_one(tmp_path: Path) -> None:
    code = Code(written(tmp_path, {"a.py": CREW, "b.py": "def one(): pass\n"}))
    assert code.place_of("one") == {"file": "a.py", "line": 7}
    assert code.place_of(None) == code.place_of("two") == {"file": None, "line": None}


def of_packages(folder: Path, *wanted: str) -> list[Found]:
    listed = "".join(f'  "{one}",\n' for one in wanted)
    return list(packages.findings(written(folder, {"pyproject.toml": f"[project]\ndependencies = [\n{listed}]\n"})))


def test_packages_that_are_not_installed_or_in_another_version_are_told_with_their_lines(tmp_path: Path) -> None:
    found = of_packages(tmp_path, "pytest", "no-such-package[all]>=2", f"pytest!={version('pytest')}", "pytest[x]>=1")
    assert told(found) == [("missing_package", "pyproject.toml", 4), ("package_version", "pyproject.toml", 5)]
    assert {one["level"] for one in found} == {"warning"}
    assert found[0]["hint"].endswith("'no-such-package[all]>=2'")


def test_packages_for_other_machines_are_not_missed(tmp_path: Path) -> None:
    assert of_packages(tmp_path, "no-such-package; python_version < '3'", "  ", "!") == []


@pytest.mark.parametrize("text", ["", "project = 3\n", '[project]\ndependencies = "pytest"\n'])
def test_a_project_may_say_nothing_of_packages(tmp_path: Path, text: str) -> None:
    assert list(packages.findings(written(tmp_path, {"pyproject.toml": text}))) == []


CLOCKS: list[Callable[[], Any]] = [
    lambda: dt.datetime.now().isoformat(),  # noqa: DTZ005 - what projects do
    lambda: dt.datetime.now(dt.UTC).year,
    lambda: dt.datetime.today().strftime("%A"),  # noqa: DTZ002 - as above
    lambda: dt.datetime.utcnow().day,  # noqa: DTZ003 - as above
    lambda: dt.date.today().month,  # noqa: DTZ011 - as above
    lambda: int(time.time()),
    lambda: time.strftime("%Y"),
    lambda: time.localtime().tm_wday,
    lambda: time.ctime(),  # noqa: PLW0108 - looked up when it is called
]


@pytest.mark.parametrize("tell", CLOCKS, ids=range(len(CLOCKS)))
def test_every_clock_tells_another_time_while_it_is_ahead(tell: Callable[[], Any]) -> None:
    before = tell()
    with clock.ahead():
        assert tell() != before


def test_a_clock_that_is_ahead_leaves_the_rest_as_it_is() -> None:
    moment, real = dt.datetime(2026, 1, 2, tzinfo=dt.UTC), (dt.datetime, dt.date, time.time, time.strftime)
    with clock.ahead():
        assert isinstance(moment, dt.datetime)
        assert isinstance(moment, dt.date)
        assert not isinstance(moment.date(), dt.datetime)
        assert dt.datetime(2026, 1, 2, tzinfo=dt.UTC) == moment
        assert time.strftime("%Y", time.gmtime(0)) == "1970"
    assert (dt.datetime, dt.date, time.time, time.strftime) == real


CAUGHT = "import os\ntry: os.environ['NO_KEY']\nexcept KeyError as error: raise ValueError from error"


def failed(folder: Path, code: str) -> BaseException:
    path = folder / "work.py"
    path.write_text(code)
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - any
        exec(compile(code, str(path), "exec"), {"__name__": "work"})
    return caught.value


@pytest.mark.parametrize(
    ("code", "expected", "words"),
    [
        ("import os\nos.environ['NO_SUCH_KEY']", ("unset_variable", "work.py", 2), "reads the variable NO_SUCH_KEY"),
        (CAUGHT, ("unset_variable", "work.py", 3), "NO_KEY"),
        ("\nimport no_such_thing.part", ("missing_package", "work.py", 2), "'no_such_thing' is not installed in"),
        ("{}['NO_SUCH_KEY']", ("load_failed", "work.py", 1), "KeyError: 'NO_SUCH_KEY'."),
        ("raise SystemExit(4)", ("load_failed", "work.py", 1), "sys.exit(4)"),
    ],
)  # fmt: skip
def test_what_fails_while_a_project_is_loaded_is_told_with_its_place(
    tmp_path: Path, code: str, expected: tuple[str, str, int], words: str
) -> None:
    found = failing.finding(failed(tmp_path, code), tmp_path)
    assert told([found]) == [expected]
    assert words in found["message"]
    assert "work.py" not in found["message"]


def test_a_project_of_two_crews_is_told_as_such(tmp_path: Path) -> None:
    fault = ProjectFault("a.py has more than one crew: A and B", "Choose one.")
    assert told([failing.finding(fault, tmp_path)]) == [("several_crews", None, None)]


def test_a_package_that_was_known_to_be_missing_is_told_once(tmp_path: Path) -> None:
    known = of_packages(tmp_path, "no_such_thing")
    at_import = failing.finding(failed(tmp_path, "import no_such_thing"), tmp_path)
    assert told(failing.with_it(known, at_import)) == [("missing_package", "work.py", 1)]
    nowhere = failing.finding(ModuleNotFoundError(name="no_such_thing"), tmp_path)
    (found,) = failing.with_it(known, nowhere)
    assert (found["level"], found["file"], found["line"]) == ("error", "pyproject.toml", 3)


def test_without_a_yaml_library_the_files_are_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert of_configs(tmp_path, "one: [\n") == []


def test_of_a_value_that_fits_no_form_the_nearest_form_is_told() -> None:
    yaml = import_module("yaml")
    root = yaml.compose("do:\n  call: expresion\n", Loader=yaml.SafeLoader)

    def fault(place: tuple[str, ...], words: str, kind: str = "literal") -> dict[str, Any]:
        return {"loc": place, "msg": words, "type": kind}

    faults = [
        fault(("do", "Code", "call"), "Should be 'code'"),
        fault(("do", "Code", "ref"), "Field required", "missing"),
        fault(("do", "Expression", "call"), "Should be 'expression'"),
        fault(("name",), "Field required", "missing"),
    ]
    assert list(declarations.in_words(root, faults)) == [
        ((), "name: Field required."),
        (("do",), "do.call: Should be 'expression'."),
    ]
    assert declarations.line_at(root, ("do", "call")) == 2
