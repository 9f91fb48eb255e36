from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from projects_for_tests.another_user import PYTHON
from projects_for_tests.making import written
from windlass.cli.project import notify_boundary
from windlass.kickoffs.boundary_parts import boundary_parts
from windlass.projects.findings import Level
from windlass_child.process.hardening import SCOPES_SIGNALS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.checker import Checker, Place
    from cli.the_command import Command

pytestmark = pytest.mark.xdist_group("served_crews")

EXAMPLES = Path(__file__).parents[2] / "examples"
FUNCTION = '[tool.windlass]\nentrypoint = "work:run"\n'
CREW = """\
from crewai import Agent, Crew, Task
from crewai.project import CrewBase, agent, crew, task


@CrewBase
class Tides:
    @agent
    def ann(self):
        return Agent(config=self.agents_config["ann"])

    @task
    def one(self):
        return Task(config=self.tasks_config["one"])

    @crew
    def crew(self):
        return Crew(agents=self.agents, tasks=self.tasks)
"""
AGENTS = "ann: {role: Ann, goal: Help, backstory: You help.}\n"
TASKS = "one: {description: About tea, expected_output: Words, agent: ann}\n"


def function(folder: Path, code: str, more: str = "") -> str:
    return str(written(folder / "project", {"pyproject.toml": FUNCTION + more, "work.py": code}))


def crew(folder: Path, code: str = CREW, tasks: str = TASKS) -> str:
    files = {"crew.py": code, "config/agents.yaml": AGENTS, "config/tasks.yaml": tasks}
    return str(written(folder / "project", {"pyproject.toml": '[tool.crewai]\ntype = "crew"\n'} | files))


def found(windlass: Command, *arguments: str, **variables: str) -> list[Place]:
    ended = windlass("check", "--json", *arguments, **variables)
    findings: list[dict[str, Any]] = json.loads(ended.out)
    assert ended.code == (1 if any(one["level"] == "error" for one in findings) else 0), ended
    assert ended.err == ""
    return [(one["code"], one["file"], one["line"]) for one in findings]


@pytest.fixture
def check_afresh(check: Checker) -> Iterator[Checker]:
    """Builds each project the second time in a fresh interpreter, as the command does."""
    check.forks = False
    yield check
    check.forks = True


def test_in_the_examples_nothing_is_found(windlass: Command, check: Checker) -> None:
    ended = windlass("check", "--strict", str(EXAMPLES / "invoice_function"))
    assert (ended.code, ended.out) == (0, "no errors, no warnings\n"), ended
    assert "crews get these variables of this environment: none" in ended.err
    assert "the boundary of runs " in ended.err
    assert check(str(EXAMPLES / "research_crew")) == []


def test_what_of_the_boundary_can_be_bypassed_here_is_told() -> None:
    told: list[str] = []
    whole = boundary_parts(None, "none", server=1000, landlock=SCOPES_SIGNALS, refused="not permitted")
    notify_boundary(whole, told.append)
    assert [line.partition(": ")[0] for line in told] == [
        "the boundary of runs holds in part on this machine (users)",
        "the boundary of runs does not hold on this machine (network)",
    ]
    assert "not permitted" in told[1]
    notify_boundary([one for one in whole if one.holds == "yes"], told.append)
    assert told[2:] == ["the boundary of runs holds on this machine: files (docs/concepts/security.md)"]


def test_a_finding_is_told_with_its_place_and_what_to_do_and_counted(windlass: Command, tmp_path: Path) -> None:
    ended = windlass("check", function(tmp_path, "def run(): pass\n", "concurency = 3\n"))
    assert ended.code == 1
    first, hint, counts = ended.out.splitlines()
    assert first.startswith("pyproject.toml:3: error: in [tool.windlass], concurency is no option;")
    assert first.endswith(" [option]")
    assert hint.startswith("    Correct it")
    assert counts == "1 error, 0 warnings"


def test_warnings_fail_only_where_that_is_wanted(windlass: Command, tmp_path: Path) -> None:
    more = '[project]\ndependencies = ["no-such-package"]\n'
    project = function(tmp_path, "def run(): pass\n", more)
    assert found(windlass, project) == [("missing_package", "pyproject.toml", 4)]
    ended = windlass("check", "--strict", project)
    assert (ended.code, ended.out.splitlines()[-1]) == (1, "0 errors, 1 warning")


def test_what_is_no_folder_is_a_usage_error(windlass: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert windlass("check", str(tmp_path / "file")).code == 2
    assert windlass("check", str(tmp_path / "missing")).code == 2


def test_the_current_folder_is_checked_if_none_is_named(windlass: Command, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "windlass", "check", "--json"],
        cwd=function(tmp_path, "import no_such_package\n"),
        env=windlass.environment,
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, [one["file"] for one in json.loads(done.stdout)]) == (1, ["work.py"])


def test_every_variable_that_is_read_at_import_is_told(windlass: Command, tmp_path: Path) -> None:
    code = 'import os\nA = os.environ["FIRST"]\nB = int(os.environ["SECOND"])\ndef run(): pass\n'
    project = function(tmp_path, code)
    assert found(windlass, project) == [("unset_variable", "work.py", 2), ("unset_variable", "work.py", 3)]
    assert found(windlass, project, FIRST="a", SECOND="2", WINDLASS_CREW_ENV="FIRST,SECOND") == []
    Path(project, ".env").write_text("FIRST=a\nSECOND=two\n")
    assert found(windlass, project) == [("load_failed", "work.py", 3)]


def test_a_secret_is_in_no_finding(windlass: Command, tmp_path: Path) -> None:
    project = function(tmp_path, 'import os\nraise ValueError(os.environ["MY_KEY"])\n')
    ended = windlass("check", project, MY_KEY="hunter2hunter2", WINDLASS_CREW_ENV="MY_KEY")
    assert "work.py:2: error: ValueError: [secret]." in ended.out
    assert "hunter2" not in ended.out + ended.err


def test_a_dotenv_that_can_not_be_read_is_a_finding_among_others(windlass: Command, tmp_path: Path) -> None:
    project = function(tmp_path, "import no_such_package\n")
    Path(project, ".env").write_bytes(b"A=\xff\n")
    assert found(windlass, project) == [("env_file", ".env", None), ("missing_package", "work.py", 1)]


@pytest.mark.parametrize(
    ("code", "words"), [("import os\nos._exit(3)\n", "exit code 3"), ("def (:\n", "SyntaxError: invalid syntax.")]
)
def test_a_project_that_ends_its_process_is_told(windlass: Command, tmp_path: Path, code: str, words: str) -> None:
    ended = windlass("check", function(tmp_path, code))
    assert (ended.code, words in ended.out, "[load_failed]" in ended.out) == (1, True, True), ended


def test_an_environment_without_crewai_is_told_once_with_how_to_install_it(
    windlass: Command, open_folder: Path
) -> None:
    project = crew(open_folder, tasks="one: [\n")
    python = PYTHON if PYTHON.exists() else sys.executable  # one that the user of crews can reach
    subprocess.run([python, "-m", "venv", "--without-pip", f"{project}/.venv"], check=True)
    told, other = json.loads(windlass("check", project, "--json").out)
    assert (other["code"], other["file"]) == ("yaml_syntax", "config/tasks.yaml"), "it needs no package"
    assert (told["code"], told["level"]) == ("missing_package", "error")
    assert f"{project}/.venv/bin/python" in told["message"]
    assert f"windlass setup {project}" in told["hint"]


def test_an_environment_without_python_is_told_beside_the_rest(check: Checker, tmp_path: Path) -> None:
    project = written(tmp_path / "project", {"crew.jsonc": "{\n", ".venv/pyvenv.cfg": ""})
    assert check.places(str(project)) == [("interpreter", None, None), ("jsonc_syntax", "crew.jsonc", 2)]


def test_all_that_is_wrong_with_a_classic_crew_is_told_at_once(
    windlass: Command, check: Checker, tmp_path: Path
) -> None:
    code = CREW.replace("\n\n@CrewBase", '\nimport os\nKEY = os.environ["TIDES_KEY"]\n\n@CrewBase')
    project = crew(tmp_path, code, TASKS.replace("agent: ann", "\n  agent: anne"))
    told = check.places(project)
    assert told == [("unknown_agent", "config/tasks.yaml", 2), ("unset_variable", "crew.py", 5)]
    assert found(windlass, project, TIDES_KEY="x", WINDLASS_CREW_ENV="TIDES_KEY") == told[:1]


def test_an_error_in_the_files_of_a_class_that_the_load_does_not_build_is_a_warning(
    check: Checker, tmp_path: Path
) -> None:
    two = CREW[CREW.index("    @task") : CREW.index("    @crew")].replace("one", "two")
    start = CREW.index("@CrewBase")
    harbour = CREW[start:].replace("Tides", "Harbour").replace("one", "two")
    code = CREW.replace(
        "    @crew\n", f"{two}    kin = 'Harbour'\n\n    def other(self):\n        return Harbour\n\n    @crew\n"
    )
    tasks = TASKS + "two: {description: More, expected_output: Words, agent: ann, context: [one]}\n"
    project = crew(tmp_path, f"{code}\n\n{harbour}", tasks)
    option = '[tool.windlass]\ncrew = "crew:{}"\n'
    written(tmp_path / "project", {"pyproject.toml": option.format("Tides")})
    assert [(one.code, one.level) for one in check(project)] == [("unknown_context", "warning")]
    written(tmp_path / "project", {"pyproject.toml": option.format("Harbour")})
    assert ("unknown_context", "error") in [(one.code, one.level) for one in check(project)]


def test_descriptions_that_change_with_the_time_or_the_process_are_told(check_afresh: Checker, tmp_path: Path) -> None:
    dated = described("day", "date.today()")
    tasks = [dated, described("process", "object()"), described("noon", "'noon'")]
    ones = CREW.index("    @task"), CREW.index("    @crew")
    code = "from datetime import date\n" + CREW[: ones[0]] + "".join(tasks) + CREW[ones[1] :]
    assert check_afresh.places(crew(tmp_path, code)) == [
        ("unstable_task_description", "crew.py", 13),
        ("unstable_task_description", "crew.py", 17),
    ]


def described(name: str, made: str) -> str:
    """A task that has the value of an expression in its description."""
    task = f'Task(description=f"By {{{made}}}", expected_output="x", agent=self.ann())'
    return f"    @task\n    def {name}(self):\n        return {task}\n\n"


def test_all_that_is_wrong_with_a_json_crew_is_told_at_once(check: Checker, tmp_path: Path) -> None:
    text = """\
    {
      "agents": ["ann", "ghost"],  // one has no file
      "tasks": [
        {"name": "one", "description": "a", "expected_output": "b",
         "agent": "anne", "tols": []},
        {"description": "a", "expected_output": "b", "agent": "ann",
         "context": ["none"]},
      ],
      "proces": "sequential",
      "inputs": {"year": 2026},
    }
    """
    ann = '{"role": "Ann", "goal": "Help", "backstory": "You help."'
    project = written(tmp_path / "project", {"crew.jsonc": text, "agents/ann.jsonc": ann})
    assert check.places(str(project)) == [
        ("jsonc_syntax", "agents/ann.jsonc", 1),
        ("agent_file_missing", "crew.jsonc", 2),
        ("declaration_invalid", "crew.jsonc", 5),
        ("unknown_agent", "crew.jsonc", 5),
        ("unknown_context", "crew.jsonc", 7),
        ("declaration_invalid", "crew.jsonc", 9),
        ("unused_input", "crew.jsonc", 10),
    ]


def test_all_that_is_wrong_with_a_declarative_flow_is_told_at_once(check: Checker, tmp_path: Path) -> None:
    flow = """\
    schema: crewai.flow/v1
    name: Tides
    methods:
      begin:
        start: true
        do: {call: expresion, expr: state.topic}
      end:
        listen: begin
    """
    pyproject = '[tool.crewai]\ntype = "flow"\ndefinition = "flow.yaml"\n'
    project = written(tmp_path / "project", {"pyproject.toml": pyproject, "flow.yaml": flow})
    assert check.places(str(project)) == [
        ("declaration_invalid", "flow.yaml", 6),
        ("declaration_invalid", "flow.yaml", 7),
    ]


def test_what_no_kickoff_can_run_is_told(check: Checker, tmp_path: Path) -> None:
    generator = function(tmp_path / "generator", "def run():\n    yield 1\n")
    assert check.places(generator) == [("never_runs", None, None)]
    no_tasks = crew(tmp_path / "crew", CREW.replace("tasks=self.tasks", "tasks=[]"))
    assert check.places(no_tasks) == [("never_runs", None, None)]


def declarative(folder: Path, flow: str) -> str:
    pyproject = '[tool.crewai]\ntype = "flow"\ndefinition = "flow.yaml"\n'
    return str(written(folder / "project", {"pyproject.toml": pyproject, "flow.yaml": flow}))


def test_what_a_declarative_flow_waits_for_in_vain_or_does_not_have_is_told(check: Checker, tmp_path: Path) -> None:
    flow = """\
    name: Tides
    methods:
      begin:
        start: true
        router: true
        emit: [high]
        do: {call: expression, expr: state.topic}
      low:
        listen: {or: [begin, high, {and: [low_water, begin]}]}
        do:
          call: each
          in: state.places
          do:
            - name: one
              action: {call: crew, from_declaration: nope.jsonc}
      end:
        listen: nope
        do: {call: crew, from_declaration: ../outside.jsonc}
    """
    assert check.places(declarative(tmp_path, flow)) == [
        ("never_runs", "flow.yaml", 9),
        ("declaration_invalid", "flow.yaml", 15),
        ("never_runs", "flow.yaml", 17),
        ("declaration_invalid", "flow.yaml", 18),
    ]
    open_router = flow.replace("emit: [high]", "emit: null")
    codes = [code for code, _, _ in check.places(declarative(tmp_path, open_router))]
    assert codes == ["declaration_invalid"] * 2, "nobody knows what it gives"


@pytest.mark.parametrize(
    ("flow", "code", "words"),
    [
        ("", "declaration_invalid", "is empty"),
        ("name: a\nmethods: {a: {start: true, do: {call: nosuch, expr: a}}}", "declaration_invalid", "'crew', 'agent'"),
        ("name: a\nmethods: {a: {listen: b, do: {call: code, ref: a}}}", "never_runs", "starts it"),
        ("name: a\nmethods: {a: {listen: {or: 3}, do: {call: code, ref: a}}}", "declaration_invalid", "TypeError"),
    ],
    ids=["empty", "unknown call", "no start", "another kind"],
)
def test_what_is_wrong_with_a_declarative_flow_is_told_with_its_file(
    check: Checker, tmp_path: Path, flow: str, code: str, words: str
) -> None:
    told = check(declarative(tmp_path, flow))
    of_it = [one for one in told if words in one.message]
    assert [(one.code, one.file) for one in of_it] == [(code, "flow.yaml")], told


ANN = '{"role": "Ann", "goal": "Help", "backstory": "You help."}'
JSON_CREW = '{"agents": ["ann"], "tasks": [{"description": "a", "expected_output": "b", "agent": "ann"MORE}]}'


@pytest.mark.parametrize(
    ("crew", "ann", "place", "words"),
    [
        (', "output_pydantic": {"python": "tides.Out"}', ANN, "tides.py:1", "the package 'no_such_package' is not"),
        ("", ANN[:-1], "agents/ann.jsonc:1", "a comma or } must stand here (column "),
        (
            "",
            ANN.replace("}", ', "max_rpm": 1e999}'),
            "agents/ann.jsonc:1",
            "max_rpm: Input should be a finite number.",
        ),
        ('}], "inputs": [{"a": 1', ANN, "crew.jsonc:1", "'inputs' must be an object."),
        (', "outptu_file": "x"', ANN, "crew.jsonc:1", "unsupported field(s): outptu_file"),
    ],
    ids=["package", "syntax", "infinite", "inputs", "unknown member"],
)
def test_what_is_wrong_with_a_json_crew_is_told_once_and_in_words(
    check: Checker, tmp_path: Path, crew: str, ann: str, place: str, words: str
) -> None:
    files = {
        "crew.jsonc": JSON_CREW.replace("MORE", crew),
        "agents/ann.jsonc": ann,
        "tides.py": "import no_such_package",
    }
    (finding,) = check(str(written(tmp_path / "project", files)))
    line = finding.lines()[0]
    assert line.startswith(f"{place}: error: ")
    assert words in line


def test_lines_of_a_dotenv_that_say_nothing_are_warned_of_without_what_they_hold(
    windlass: Command, tmp_path: Path
) -> None:
    project = function(tmp_path, "def run(): pass\n")
    Path(project, ".env").write_text('A=1\nhunter2 is no line\nB="hunter2\n')
    ended = windlass("check", project)
    first, _, second, _, count = ended.out.splitlines()
    assert (first.startswith(".env:2: warning: "), second.startswith(".env:3: warning: ")) == (True, True), ended
    assert count == "0 errors, 2 warnings"
    assert "hunter2" not in ended.out + ended.err


def test_the_steps_after_init_are_commands_whatever_the_folder_is_called(windlass: Command, tmp_path: Path) -> None:
    run = [sys.executable, "-m", "windlass"]
    made = subprocess.run(
        [*run, "init", "--kind", "function", "--", "-dash"],
        cwd=tmp_path, env=windlass.environment, check=True, capture_output=True, text=True,
    )  # fmt: skip
    step = next(line.strip() for line in made.stdout.splitlines() if "windlass check" in line)
    assert step == "windlass check ./-dash"
    done = subprocess.run([*run, *step.split()[1:]], cwd=tmp_path, env=windlass.environment, check=False)
    assert done.returncode == 0


FLOW = """
from crewai.flow.flow import Flow, start
from pydantic import BaseModel


class State(BaseModel):
    topic: str = "tea"


class Talk(Flow[State]):
    {member}

    @start()
    def say(self):
        return "said"
"""


@pytest.mark.parametrize(
    ("member", "words"),
    [
        ("def __init__(self, word): super().__init__()", "its constructor needs word"),
        (
            "def __init__(self, word=None): super().__init__(); word.upper()",
            "it can't be constructed: AttributeError: ",
        ),
        ("initial_state = type('Bare', (BaseModel,), {})", "Flow state model must have an 'id' field"),
    ],
)
def test_a_flow_that_can_not_be_constructed_is_found(check: Checker, tmp_path: Path, member: str, words: str) -> None:
    project = written(tmp_path / "project", {"main.py": FLOW.replace("{member}", member)})
    (found,) = check(str(project))
    assert found.code in {"never_runs", "no_crew"}
    assert words in found.message


def test_a_flow_that_can_be_constructed_has_no_findings(check: Checker, tmp_path: Path) -> None:
    assert check(str(written(tmp_path / "project", {"main.py": FLOW.replace("{member}", "")}))) == []


TALKING = """
from crewai import Agent, Crew, Task

def talking():
    ann = Agent(role="Ann", goal="Talk", backstory="Talks")
    return Crew(agents=[ann], tasks=[Task(description="Talk", expected_output="Words", agent=ann)])
"""


def test_the_check_does_not_run_the_crew_that_a_constructor_kicks_off(check: Checker, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    member = f"def __init__(self): super().__init__(); talking().kickoff(); open({str(ran)!r}, 'w').close()"
    code = f"{FLOW.replace('{member}', member)}\n{TALKING}"
    assert check(str(written(tmp_path / "project", {"main.py": code}))) == []
    assert not ran.exists()


def test_files_of_classes_that_the_crew_does_not_use_are_not_checked(check: Checker, tmp_path: Path) -> None:
    project = crew(tmp_path)
    written(Path(project), {"old/crew.py": CREW.replace("Tides", "Old"), "old/config/agents.yaml": "ann: [\n"})
    assert check(project) == []


def test_a_task_that_asks_a_person_is_served(check: Checker, tmp_path: Path) -> None:
    project = crew(tmp_path, CREW.replace('tasks_config["one"])', 'tasks_config["one"], human_input=True)'))
    assert check(project) == []


ASKS = """\
from crewai.flow import Flow, start
from crewai.flow.human_feedback import human_feedback

class Asks(Flow):
    @start()
    @human_feedback(message="ok?"{more})
    def begin(self):
        return 1{ask}

def run():
    return str(Asks().kickoff())
"""


@pytest.mark.parametrize(
    ("option", "more", "ask", "places"),
    [
        ("", "", "", []),
        ("", "", " + len(self.ask('How many?'))", [("waits_alive", "main.py", 8)]),
        ("", ", learn=True", "", [("waits_alive", "main.py", 7)]),
        ('[tool.windlass]\nentrypoint = "main:run"\n', "", "", [("waits_alive", "main.py", 7)]),
    ],
    ids=["pauses", "ask", "learn", "in a function"],
)
def test_questions_for_which_a_process_waits_are_told(
    check: Checker, tmp_path: Path, option: str, more: str, ask: str, places: list[tuple[str, str, int]]
) -> None:
    files = {"main.py": ASKS.format(more=more, ask=ask)} | ({"pyproject.toml": option} if option else {})
    found = check(str(written(tmp_path / "project", files)))
    assert [(one.code, one.file, one.line) for one in found] == places
    assert {one.level for one in found} <= {Level.WARNING}


@pytest.mark.parametrize(
    "patch",
    [
        "Agent._ask_human_input = lambda self, draft: ''",
        "setattr(Agent, '_ask_human_input', lambda self, draft: '')",
        "unittest.mock.patch.object(Agent, '_ask_human_input', create=True).start()",
    ],
)
def test_a_replaced_method_that_crewai_does_not_call_is_told(check: Checker, tmp_path: Path, patch: str) -> None:
    (found,) = check(crew(tmp_path, f"{CREW}\n\nimport unittest.mock\nfrom crewai import Agent\n\n{patch}\n"))
    assert (found.code, found.level, found.file) == ("own_question_ignored", Level.WARNING, "crew.py")


def test_a_crew_is_checked_by_the_name_of_its_file(windlass: Command, check: Checker, tmp_path: Path) -> None:
    project = crew(tmp_path)
    assert check(f"{project}/crew.py:Tides") == []
    assert windlass("check", f"{project}/crew.py:Gone").out.startswith(
        "pyproject.toml: error: crew.py has no Gone to serve."
    )
