"""What kickoffs do on each release of crewai: load, run, records, results, stops, resumption, storage and calls."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import pytest

from projects_for_tests.any_version import CREW, FLOW, crew_of, flow_of
from projects_for_tests.driver import DrivenZygote, value_of
from projects_for_tests.interrupted import Kickoff
from projects_for_tests.model_server import ModelServer
from projects_for_tests.versions_page import (
    PAGE_IS_WRITTEN,
    capabilities_of,
    capabilities_on_the_page,
    note_capabilities,
)
from windlass_child.protocol.messages import (
    Abort,
    Answered,
    Asked,
    Budget,
    Event,
    Failed,
    Inspected,
    Preload,
    Project,
    Ready,
    Succeeded,
    TaskEnded,
    TaskStarted,
    Tokens,
    Warned,
)

if TYPE_CHECKING:
    from pathlib import Path

    from projects_for_tests.driver import DrivenChild
    from projects_for_tests.environments import Environment
    from projects_for_tests.recording import RecordingInterpreter

THREE = ["first", "second", "third"]
TOPIC = {"topic": "parrots"}
CAN = (0, 150)
"""The oldest release of which all is promised that it can do."""


WITH_TOKENS_IN_EVENTS = (1, 14)
ASKS_BY_PROVIDER = (1, 10)

REPORTING = '''
from crewai.utilities.token_counter_callback import TokenCalcHandler

class Answer(dict):
    """Stands for LiteLLM's class of an answer."""

class Reporting(Parrot):
    """Reports the tokens of each call to the callback as crewai and LiteLLM do, and of one to crewai's method too."""

    def call(self, messages, *arguments, **named):
        usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
        callback = TokenCalcHandler(None)
        callback.log_success_event({}, {"usage": usage}, 0, 0)
        callback.log_success_event({}, Answer(usage=usage), 0, 0)
        callback.log_success_event({"stream": True}, Answer(usage=dict(usage)), 0, 0)
        if hasattr(self, "_track_token_usage_internal") and "[second]" in str(messages):
            self._track_token_usage_internal(usage)
        return super().call(messages, *arguments, **named)

'''

LATE = """
class Work(Flow):
    @start()
    def first(self):
        class Late(Parrot):
            def call(self, messages, *arguments, **named):
                note("late")
                return "late"

        model = Late(model="gpt-4o-mini")
        return [model.call("now") for _ in range(3)]
"""


@pytest.fixture
def crew(tmp_path: Path) -> Project:
    return crew_of(tmp_path / "project")


@pytest.fixture
def flow(tmp_path: Path) -> Project:
    return flow_of(tmp_path / "project")


def names(child: DrivenChild, kind: type[Any]) -> list[Any]:
    return [one.name if isinstance(one, TaskStarted) else one.position for one in child.talk.of(kind)]


def tokens_of(child: DrivenChild) -> list[tuple[int, int, int]]:
    return [(one.prompt, one.completion, one.total) for one in child.talk.of(Tokens)]


def test_the_page_shows_what_it_can_do(zygote: DrivenZygote, environment: Environment, tmp_path: Path) -> None:
    ready = zygote.ready()
    assert isinstance(ready, Ready), ready
    assert environment.name.partition("-")[0] in ("newest", ready.version)
    found = capabilities_of(zygote, tmp_path)
    if PAGE_IS_WRITTEN:
        note_capabilities(environment, str(ready.version), found)
    else:
        assert capabilities_on_the_page(str(ready.version)) == found


def test_a_crew_is_described(zygote: DrivenZygote, crew: Project, tmp_path: Path) -> None:
    child = zygote.fork()
    child.inspect(crew, tmp_path / "inspection")
    answer = child.answer()
    assert isinstance(answer, Inspected), answer
    assert [task["name"] for task in answer.manifest["tasks"]] == THREE
    assert answer.manifest["inputs_schema"]["required"] == ["topic"]


def test_a_crew_runs_to_its_result(zygote: DrivenZygote, crew: Project, tmp_path: Path) -> None:
    child = zygote.run(crew, tmp_path, **TOPIC)
    answer = child.answer()
    assert isinstance(answer, Succeeded), answer
    assert names(child, TaskStarted) == THREE
    assert names(child, TaskEnded) == [0, 1, 2]
    assert all(end.state == "completed" and (end.seconds or 0) >= 0 for end in child.talk.of(TaskEnded))
    assert [str(end.output) for end in child.talk.of(TaskEnded)] == [f"{name} said" for name in THREE]
    assert child.exited() == 0


def test_a_flow_runs_to_its_result(zygote: DrivenZygote, flow: Project, tmp_path: Path) -> None:
    child = zygote.run(flow, tmp_path, **TOPIC)
    assert value_of(child.answer()) == {"told": THREE, **TOPIC}
    assert names(child, TaskStarted) == THREE
    assert [end.state for end in child.talk.of(TaskEnded)] == ["completed"] * 3


def test_its_events_have_no_key(zygote: DrivenZygote, crew: Project, tmp_path: Path, environment: Environment) -> None:
    child = zygote.fork()
    child.run(crew, tmp_path / "run", inputs=TOPIC, environment={"OPENAI_API_KEY": "sk-very-secret"})
    assert isinstance(child.answer(), Succeeded)
    kinds = [event.type for event in child.talk.of(Event)]
    if environment.crewai >= CAN:
        assert {"crew_kickoff_started", "task_started", "task_completed", "crew_kickoff_completed"} <= set(kinds)
    assert "sk-very-secret" not in repr(child.talk.messages)


def test_tokens_of_model_calls_are_counted_once(zygote: DrivenZygote, tmp_path: Path, environment: Environment) -> None:
    code = CREW.replace("worker()", 'worker(llm=LLM(model="openai/gpt-4o-mini"))')
    project = crew_of(tmp_path / "project", code)
    child = zygote.fork()
    with ModelServer() as model:
        given = model.environment | {"OPENAI_API_BASE": model.url}
        child.run(project, tmp_path / "run", inputs=TOPIC, environment=given)
        assert isinstance(child.answer(), Succeeded), child.errors.data.decode()
        asked = len(model.requests)
    used = tokens_of(child)
    assert used == [(11, 7, 18)] * len(used)
    assert 1 <= len(used) <= asked  # on the oldest a thread of LiteLLM reports the last one, perhaps after the run
    if environment.crewai >= CAN:
        assert (asked, len(used)) == (3, 3)


def test_tokens_that_are_reported_in_several_ways_are_counted_once(
    zygote: DrivenZygote, tmp_path: Path, environment: Environment
) -> None:
    code = REPORTING + textwrap.dedent(CREW).replace("worker()", 'worker(llm=Reporting(model="gpt-4o-mini"))')
    child = zygote.run(crew_of(tmp_path / "project", code), tmp_path, **TOPIC)
    assert isinstance(child.answer(), Succeeded), child.errors.data.decode()
    assert tokens_of(child) == ([] if environment.crewai >= WITH_TOKENS_IN_EVENTS else [(11, 7, 18)] * 3)


def test_a_model_that_is_imported_during_the_run_is_limited(zygote: DrivenZygote, tmp_path: Path) -> None:
    child, notes = zygote.fork(), tmp_path / "notes"
    given = {"inputs": TOPIC, "environment": {"NOTES": str(notes)}, "budget": Budget(model_call_limit=2)}
    child.run(flow_of(tmp_path / "project", LATE), tmp_path / "run", **given)
    assert child.failure().reason == "limit"
    assert notes.read_text().split() == ["late", "late"]


def test_a_project_is_preloaded(environment: Environment, tmp_path: Path) -> None:
    """Its module makes a flow at its import, which emits an event of crewai in the zygote."""
    project = flow_of(tmp_path / "project", textwrap.dedent(FLOW) + "\nmade = Work()\n")
    order = Preload(project, {"HOME": str(tmp_path)})
    with DrivenZygote(tmp_path / "zygote", "crewai", order, command=[str(environment.python)]) as zygote:
        answer = zygote.ready()
        assert isinstance(answer, Ready), answer
        assert value_of(zygote.run(project, tmp_path, **TOPIC).answer()) == {"told": THREE, **TOPIC}


def test_a_failure_is_reported(zygote: DrivenZygote, tmp_path: Path) -> None:
    code = CREW.replace("[step(name, one)", "[step(name, one, callback=fail)").replace(
        "@CrewBase", 'def fail(output):\n        raise ValueError("it could not be done")\n\n    @CrewBase', 1
    )
    child = zygote.run(crew_of(tmp_path / "project", code), tmp_path, **TOPIC)
    assert "it could not be done" in child.failure().message
    assert child.failure().stage == "run"


@pytest.mark.parametrize("make", [crew_of, flow_of])
def test_a_run_ends_soon_after_a_stop(zygote: DrivenZygote, tmp_path: Path, make: Any) -> None:
    """At the next model call, task or method: the run waits in the first one, and is let go when it is stopped."""
    project = make(tmp_path / "project")
    child, go = zygote.fork(), tmp_path / "go"
    notes = tmp_path / "notes"
    child.run(project, tmp_path / "run", inputs=TOPIC, environment={"WAIT_FOR": str(go), "NOTES": str(notes)})
    zygote.until(lambda: "waiting" in child.printed or child.talk.of(Failed))
    child.talk.send(Abort("it was stopped"))
    go.touch()
    assert child.failure().message == "it was stopped"
    assert "third" not in notes.read_text()


def test_a_limit_of_model_calls_holds(zygote: DrivenZygote, crew: Project, tmp_path: Path) -> None:
    child = zygote.fork()
    notes = tmp_path / "notes"
    given = {"inputs": TOPIC, "environment": {"NOTES": str(notes)}, "budget": Budget(model_call_limit=2)}
    child.run(crew, tmp_path / "run", **given)
    failure = child.failure()
    assert (failure.reason, failure.message[:20]) == ("limit", "made 2 model calls; ")
    assert notes.read_text().split() == ["calls", "first", "calls", "second"]


def test_a_task_asks_a_person(zygote: DrivenZygote, tmp_path: Path) -> None:
    asking = CREW.replace('"third")', '"third")[:1]').replace("step(name, one)", "step(name, one, human_input=True)")
    child = zygote.fork()
    child.run(crew_of(tmp_path / "project", asking), tmp_path / "run", inputs=TOPIC)
    asked = child.asked()
    assert (asked.draft, asked.question[:36]) == ("first said", "Approve the result of the task first")
    if not asked.waits:  # what follows is in tests of the newest release
        assert child.exited() == 0
        return
    child.talk.send(Answered(asked.number, approved=False, feedback="say [other]"))
    again = zygote.until(lambda: child.talk.of(Asked)[1:])[0]
    assert (again.draft, again.waits) == ("other said", True)
    child.talk.send(Answered(again.number, approved=True))
    assert child.answer() == Succeeded("other said")


OWN_QUESTION = """
from crewai.agents.agent_builder.base_agent_executor_mixin import CrewAgentExecutorMixin

CrewAgentExecutorMixin._ask_human_input = lambda executor, draft: note("own") or ""
"""


def test_a_project_that_replaces_the_question_of_crewai_keeps_it(
    zygote: DrivenZygote, tmp_path: Path, environment: Environment
) -> None:
    code = OWN_QUESTION + textwrap.dedent(CREW).replace("step(name, one)", "step(name, one, human_input=True)")
    child, notes = zygote.fork(), tmp_path / "notes"
    variables = {"NOTES": str(notes)}
    child.run(crew_of(tmp_path / "project", code), tmp_path / "run", inputs=TOPIC, environment=variables)
    ended = zygote.until(lambda: [one for one in child.talk.messages if isinstance(one, Asked | Succeeded | Failed)])
    answer = ended[0]
    if isinstance(answer, Failed):  # a release without this class
        assert "has no module crewai.agents.agent_builder.base_agent_executor_mixin" in answer.message
    elif isinstance(answer, Asked):  # a release that has the class and does not call this method
        assert environment.crewai >= ASKS_BY_PROVIDER
    else:
        assert answer == Succeeded("third said")
        assert notes.read_text().split().count("own") == 3


ASKING_FLOW = """
    try:
        from crewai.flow.human_feedback import human_feedback
    except ImportError:
        def human_feedback(**_):
            return lambda method: method

    class Work(Flow):
        _skip_auto_memory = True

        @start()
        @human_feedback(message="Publish?", emit=["yes", "no"], llm="gpt-4o-mini")
        def draft(self):
            return "a draft"

        @listen("yes")
        def publish(self):
            return "published"
"""


def test_a_flow_asks_a_person(zygote: DrivenZygote, tmp_path: Path) -> None:
    child = zygote.fork()
    key = {"OPENAI_API_KEY": "sk-none"}
    child.run(flow_of(tmp_path / "project", ASKING_FLOW), tmp_path / "run", environment=key)
    ended = zygote.until(lambda: [one for one in child.talk.messages if isinstance(one, Asked | Succeeded | Failed)])
    if not isinstance(ended[0], Asked):  # a release without @human_feedback
        assert ended[0] == Succeeded("a draft")
        return
    asked = ended[0]
    assert (asked.question, asked.draft, asked.choices) == ("Publish?", "a draft", ["yes", "no"])
    if asked.waits:
        child.talk.send(Answered(asked.number, approved=True, feedback="yes"))
        assert child.answer() == Succeeded("published")
    else:
        assert child.exited() == 0


def test_a_killed_crew_goes_on_after_its_finished_tasks(zygote: DrivenZygote, crew: Project, tmp_path: Path) -> None:
    kickoff = Kickoff(zygote, crew, tmp_path, inputs=TOPIC)
    kickoff.interrupted("third", journaled=2)
    child = kickoff.attempt()
    assert child.answer() == Succeeded("", output_of=2) or child.answer().output == "third said"  # type: ignore[union-attr]
    assert dict(kickoff.calls) == {"first": 1, "second": 1, "third": 2}
    assert names(child, TaskStarted) == ["third"]


def test_a_killed_flow_goes_on_after_its_finished_methods(zygote: DrivenZygote, flow: Project, tmp_path: Path) -> None:
    kickoff = Kickoff(zygote, flow, tmp_path, inputs=TOPIC)
    kickoff.interrupted("third", journaled=2)
    child = kickoff.attempt()
    assert value_of(child.answer()) == {"told": THREE, **TOPIC}
    assert kickoff.noted("method") == [*THREE, "third"]
    assert [one for one in child.talk.of(Warned) if one.code.startswith(("journal", "not_", "flow_"))] == []


def test_its_storage_is_in_its_own_folder(
    zygote: DrivenZygote, crew: Project, tmp_path: Path, environment: Environment
) -> None:
    child = zygote.run(crew, tmp_path / "runs", **TOPIC)
    child.answer()
    stored = {path.relative_to(tmp_path / "runs" / child.name).parts[0] for path in tmp_path.rglob("*.db")}
    assert stored == {"storage"}


def test_no_one_else_is_called(
    zygote: DrivenZygote, crew: Project, tmp_path: Path, recording: RecordingInterpreter
) -> None:
    zygote.run(crew, tmp_path, **TOPIC).exited()
    assert [call for call in recording.calls() if "127.0.0.1" not in call] == []


@pytest.mark.parametrize("make", [crew_of, flow_of])
def test_its_check_finds_no_fault(zygote: DrivenZygote, tmp_path: Path, make: Any) -> None:
    """Runs the part of `windlass check` that needs the project's interpreter, as the server does."""
    project = make(tmp_path / "project")
    examiner = Project("function", project.root, "windlass_child.checks:examine")
    given = {"kind": project.kind, "root": project.root, "entrypoint": project.entrypoint}
    found = value_of(zygote.run(examiner, tmp_path, **given).answer())
    assert found["findings"] == []
    assert [task["name"] for task in found["tasks"]] == THREE
