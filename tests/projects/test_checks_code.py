"""What a project's own interpreter tells of it, before its code is imported (windlass_child.checks)."""

from __future__ import annotations

import datetime as dt
import sys
import time
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pytest

from projects_for_tests.making import written
from windlass.projects.findings import CODES
from windlass_child.checks import clock, findings, packages
from windlass_child.crewai import declarations
from windlass_child.crewai_files import configs
from windlass_child.kinds.importing import entry_module
from windlass_child.process.error_text import ProjectFault
from windlass_child.project_files.code import Code
from windlass_child.protocol.messages import Project

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from windlass_child.project_files.found import Found

CREW = """\
@CrewBase
class Tides:
    @agent
    def ann(self): return Agent(config=self.agents_config["ann"])

    @project.task()
    def one(self): return Task(config=self.tasks_config["one"])
"""
AGENTS = "ann: {role: r}\nbob: {role: r}\n"


def told(given: Iterable[Found]) -> list[tuple[str, str | None, int | None]]:
    found = list(given)
    assert {one["code"] for one in found} <= CODES.keys()
    assert all(one["hint"] for one in found)
    return [(one["code"], one["file"], one["line"]) for one in found]


KNOWN = {"agents": {"role"}, "tasks": {"agent", "context", "description", "output_file"}}


def of_configs(folder: Path, tasks: str, agents: str = AGENTS, crew: str = CREW) -> list[Found]:
    files = {"src/a/crew.py": crew, "src/a/config/tasks.yaml": tasks, "src/a/config/agents.yaml": agents}
    return list(configs.findings(Code(written(folder, files)), KNOWN))


def test_a_crew_whose_files_fit_has_no_findings(tmp_path: Path) -> None:
    assert of_configs(tmp_path, "one:\n  agent: ann\n  context: [one]\ntwo: {}\n") == []


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


RENAMED = CREW.replace("@agent", "@person").replace("@project.task()", "@step")
ASSIGNED = """\
@CrewBase
class Tides:
    def _ann(self): return Agent(config=self.agents_config["ann"])
    ann = agent(_ann)
    def _one(self): return Task(config=self.tasks_config["one"])
    one = task(_one)
"""


@pytest.mark.parametrize("crew", [RENAMED, ASSIGNED], ids=["renamed", "assigned"])
def test_agents_and_tasks_may_be_marked_under_other_names(tmp_path: Path, crew: str) -> None:
    tasks = "one: {agent: ann, context: [one]}\ntwo: {agent: eve, context: [none]}\n"
    found = of_configs(tmp_path, tasks, crew=crew)
    assert told(found) == [
        ("unknown_agent", "src/a/config/tasks.yaml", 2),
        ("unknown_context", "src/a/config/tasks.yaml", 2),
    ]


def test_an_agent_is_no_task_of_a_context_and_a_task_no_agent(tmp_path: Path) -> None:
    found = of_configs(tmp_path, "one: {agent: one, context: [ann]}\n")
    assert [code for code, *_ in told(found)] == ["unknown_agent", "unknown_context"]


@pytest.mark.parametrize(
    ("text", "line"), [("one: [\ntwo: 3\n", 3), ("one:\n  a: b: c\n", 2), ("- one\n", 1), ("a: &x 1\nb: *y\n", 2)]
)
def test_yaml_that_can_not_be_read_is_told_with_its_line(tmp_path: Path, text: str, line: int) -> None:
    assert told(of_configs(tmp_path, text)) == [("yaml_syntax", "src/a/config/tasks.yaml", line)]


@pytest.mark.parametrize(
    ("text", "words"), [("[" * 100_000, "the file is nested too deeply."), ("#" * (5 << 20), "larger than 4 MB.")]
)
def test_yaml_that_is_too_deep_or_too_large_is_told(tmp_path: Path, text: str, words: str) -> None:
    (found,) = of_configs(tmp_path, text)
    assert (found["code"], found["message"].endswith(words)) == ("yaml_syntax", True)


@pytest.mark.parametrize("entry", ["", " text", " [ann]"])
def test_an_entry_without_members_is_told_with_its_name_and_line(tmp_path: Path, entry: str) -> None:
    (found,) = of_configs(tmp_path, f"one: {{agent: ann}}\nhigh_water:{entry}\n")
    assert told([found]) == [("config_invalid", "src/a/config/tasks.yaml", 2)]
    assert found["message"] == "the task high_water has no members."


def test_names_that_stand_twice_are_told_where_they_stand_again(tmp_path: Path) -> None:
    found = of_configs(tmp_path, "one: {agent: ann}\none:\n  agent: ann\n  agent: ann\n", agents=AGENTS + "ann: {}\n")
    assert told(found) == [
        ("config_unused", "src/a/config/agents.yaml", 3),
        ("config_unused", "src/a/config/tasks.yaml", 2),
        ("config_unused", "src/a/config/tasks.yaml", 4),
    ]
    assert found[1]["message"] == "the task 'one' is defined again. The definition in line 1 has no effect."


def test_a_member_that_crewai_does_not_know_is_told_with_the_nearest_that_it_does(tmp_path: Path) -> None:
    (found,) = of_configs(tmp_path, "one:\n  outptu_file: a.md\n")
    assert told([found]) == [("config_unused", "src/a/config/tasks.yaml", 2)]
    assert (found["level"], found["hint"]) == ("warning", "Did you mean output_file?")


@pytest.mark.parametrize(
    "ask", ["\nweight = self.tasks_config['one']['weight']", "\nclass Own(Task):\n    weight: int"]
)
def test_members_that_the_code_asks_for_itself_are_known(tmp_path: Path, ask: str) -> None:
    assert of_configs(tmp_path, "one: {weight: 3}\n", crew=CREW + ask) == []


MORE = f"""{CREW}
    @tool
    def kettle(self): ...

    @callback
    def after(self): ...

    @output_json
    class Tide: ...

    Level = output_pydantic(Tide)
"""


@pytest.mark.parametrize(
    ("agents", "tasks", "code"),
    [
        ("ann: {tools: [kettle], step_callback: after}\n", "one: {output_json: Tide, output_pydantic: Level}\n", None),
        ("ann: {tools: [ketle]}\n", "{}", "unknown_name"),
        ("ann: {tools: [after]}\n", "{}", "unknown_name"),
        ("ann: {step_callback: before}\n", "{}", "unknown_name"),
        ("{}", "one: {output_json: Tides}\n", "unknown_name"),
        ("{}", "one: {callbacks: [before]}\n", "unknown_name"),
        ("ann: {tools: kettle}\n", "{}", "config_invalid"),
        ("{}", "one: {context: one}\n", "config_invalid"),
        ("{}", "one: {agent: [ann]}\n", "config_invalid"),
        ("ann: {llm: {model: gpt}}\n", "{}", "config_invalid"),
        ("ann: {llm: gpt, tools: [], step_callback: null}\n", "one: {context: []}\n", None),
    ],
)
def test_a_member_that_names_no_method_or_has_another_form_is_told(
    tmp_path: Path, agents: str, tasks: str, code: str | None
) -> None:
    found = [one["code"] for one in of_configs(tmp_path, tasks, agents, MORE) if one["level"] == "error"]
    assert found == ([code] if code else [])


def test_a_class_that_sets_or_searches_its_config_itself_needs_no_file(tmp_path: Path) -> None:
    sets = CREW.replace("class Tides:", "class Tides:\n    def __init__(self): self.agents_config = {}")
    searches = CREW.replace('agents_config["ann"]', 'agents_config.get("ann")')
    for number, crew in enumerate((sets, searches)):
        files = {f"{number}/crew.py": crew, f"{number}/config/tasks.yaml": "one: {}\n"}
        assert list(configs.findings(Code(written(tmp_path / f"{number}", files)), KNOWN)) == []


def test_members_may_come_of_another_entry(tmp_path: Path) -> None:
    tasks = "all: &all {agent: ann}\none:\n  <<: *all\n  description: a\ntwo: {<<: *all, <<: *all}\n"
    assert of_configs(tmp_path, tasks) == []


def test_where_crewai_is_not_there_any_member_is_known(tmp_path: Path) -> None:
    code = Code(written(tmp_path, {"crew.py": CREW, "config/tasks.yaml": "one: {tols: 3}\n", "config/agents.yaml": ""}))
    assert list(configs.findings(code, {})) == []


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
    assert told(configs.findings(code, KNOWN)) == [("config_missing", "flows/crew.py", 6)]


def test_files_of_tools_and_tests_are_not_the_projects(tmp_path: Path) -> None:
    files = {f"{folder}/crew.py": CREW for folder in (".venv/lib", "tests", "node_modules", "src/__pycache__")}
    assert configs.crews(Code(written(tmp_path, files | {"broken.py": "def"}))) == []


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
    command = f"windlass setup {tmp_path}"
    assert {one["hint"] for one in found} == {
        f"Install the project's packages into an environment of its own: {command}"
    }


def test_packages_for_other_machines_are_not_missed(tmp_path: Path) -> None:
    assert of_packages(tmp_path, "no-such-package; python_version < '3'", "  ", "!") == []


@pytest.mark.parametrize("text", ["", "project = 3\n", '[project]\ndependencies = "pytest"\n'])
def test_a_project_may_say_nothing_of_packages(tmp_path: Path, text: str) -> None:
    assert list(packages.findings(written(tmp_path, {"pyproject.toml": text}))) == []


def test_packages_are_not_compared_without_a_reader_of_toml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "TOML", "no_such_reader")
    assert list(packages.findings(tmp_path)) == []
    assert of_packages(tmp_path, "no-such-package") == []


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


def function(folder: Path) -> Project:
    return Project("function", str(folder), "work:run")


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
    found = findings.finding(failed(tmp_path, code), function(tmp_path))
    assert told([found]) == [expected]
    assert words in found["message"]
    assert "work.py" not in found["message"]


@pytest.mark.parametrize("line", ["from brew import pot", "import brew.pot", "from brew.pot.lid import top"])
def test_a_missing_package_of_a_namespace_is_a_missing_package(
    tmp_path: Path, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "packages" / "brew").mkdir(parents=True)
    (tmp_path / "project").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))
    found = findings.finding(failed(tmp_path / "project", line), function(tmp_path / "project"))
    assert told([found]) == [("missing_package", "work.py", 1)]
    assert found["message"].startswith("the package 'brew.pot' is not installed in ")


def test_a_name_that_an_installed_package_does_not_have_is_a_missing_module(tmp_path: Path) -> None:
    found = [
        findings.finding(failed(tmp_path, line), function(tmp_path))
        for line in ("import pydantic.no", "from pydantic import no")
    ]
    assert [one["code"] for one in found] == ["missing_module", "missing_module"]


def test_a_project_of_two_crews_is_told_as_such(tmp_path: Path) -> None:
    fault = ProjectFault("a.py has two of them", "Choose one.", "several_crews")
    assert told([findings.finding(fault, function(tmp_path))]) == [("several_crews", None, None)]


def test_a_package_is_named_that_is_missing_where_another_fault_came_of_it(tmp_path: Path) -> None:
    code = "try: import no_such_thing\nexcept ImportError as error: raise ValueError('crew.jsonc: no') from error"
    found = findings.finding(failed(tmp_path, code), function(tmp_path))
    assert found["code"] == "missing_package"
    assert found["message"].startswith("the package 'no_such_thing' is not installed in ")
    assert found["hint"].endswith(f"run: windlass setup {tmp_path}")
    assert "no_such_thing" not in found["hint"], "a module of the project may have this name"


def test_a_module_of_the_project_that_is_not_there_is_no_missing_package(tmp_path: Path) -> None:
    with pytest.raises(ProjectFault) as caught:
        entry_module(Project("function", str(tmp_path), "nowhere.work:run"))
    found = findings.finding(caught.value, function(tmp_path))
    assert (found["code"], "names a module that is not there" in found["message"]) == ("no_crew", True)


def test_a_package_that_was_known_to_be_missing_is_told_once(tmp_path: Path) -> None:
    known = of_packages(tmp_path, "no_such_thing")
    at_import = findings.finding(failed(tmp_path, "import no_such_thing"), function(tmp_path))
    assert told(findings.with_it(known, at_import)) == [("missing_package", "work.py", 1)]
    nowhere = findings.finding(ModuleNotFoundError(name="no_such_thing"), function(tmp_path))
    (found,) = findings.with_it(known, nowhere)
    assert (found["level"], found["file"], found["line"]) == ("error", "pyproject.toml", 3)


def test_without_a_yaml_library_the_files_are_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert of_configs(tmp_path, "one: [\n") == []


def test_of_a_value_that_fits_no_form_the_nearest_form_is_told() -> None:
    yaml = import_module("yaml")
    root = yaml.compose("do:\n  call: expresion\n", Loader=yaml.SafeLoader)

    def fault(place: tuple[str, ...], words: str, kind: str = "missing") -> dict[str, Any]:
        return {"loc": place, "msg": words, "type": kind}

    def word(place: tuple[str, ...], expected: str) -> dict[str, Any]:
        return fault(place, "Should be another", "literal_error") | {"ctx": {"expected": expected}}

    of_code = [fault(("do", "Code", "ref"), "Field required"), fault(("do", "Code", "to"), "Field required")]
    of_expression = word(("do", "Expression", "call"), "'expression'")
    name = fault(("name",), "Field required")
    assert list(declarations.in_words(root, [*of_code, of_expression, name])) == [
        ((), "name: Field required."),
        (("do",), "do.ref: Field required; do.to: Field required."),
    ], "its call is code"
    assert list(declarations.in_words(root, [*of_code, word(("do", "Code", "call"), "'code'"), of_expression])) == [
        (("do",), "do.call: Input should be one of 'code', 'expression'."),
    ]
    assert declarations.line_at(root, ("do", "call")) == 2


@pytest.mark.parametrize(
    ("code", "message", "hint"),
    [
        ("from tools.gone import Search", "the project has no module 'tools'.", "There is src/pkg/tools."),
        ("import utils", "the project has no module 'utils'.", "There is src/pkg/utils.py."),
        ("import pytest.gone.deep", f"pytest {version('pytest')} has no module pytest.gone.", "Change the import"),
        ("from pytest import Gone", f"pytest {version('pytest')} has no Gone in pytest.", "Change the import"),
    ],
)  # fmt: skip
def test_a_module_that_is_not_there_is_told_from_a_package(tmp_path: Path, code: str, message: str, hint: str) -> None:
    written(tmp_path, {"src/pkg/tools/search.py": "", "src/pkg/utils.py": ""})
    found = findings.finding(failed(tmp_path, code), function(tmp_path))
    assert told([found]) == [("missing_module", "work.py", 1)]
    assert found["message"] == message
    assert hint in found["hint"]
    assert "install" not in found["hint"].lower()


@pytest.mark.parametrize("code", ["{}['a']", "open('gone.csv')", "exec('x = (')", "import json; json.loads('{')"])
def test_every_failure_has_a_hint_of_its_own(tmp_path: Path, code: str) -> None:
    hint = findings.finding(failed(tmp_path, code), function(tmp_path))["hint"]
    assert hint
    assert "there" not in hint
