from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING

import pytest

from projects_for_tests.crews import crew_project, one_task
from projects_for_tests.making import Bench, Heard, doing, written
from projects_for_tests.model_server import ModelServer
from windlass.client.event_payloads import PAYLOADS
from windlass.kickoffs.states import State
from windlass_child.process import library_logs
from windlass_child.protocol.messages import Event, Tokens

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from projects_for_tests.recording import RecordingInterpreter

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("crewai")]

DOCUMENTED = {
    "task_started": {"task_name", "task_id"},
    "task_completed": {"task_name", "task_id", "output"},
    "agent_execution_started": {"task_prompt"},
    "agent_execution_completed": {"output"},
    "llm_call_started": {"model", "call_id", "messages"},
    "llm_call_completed": {"model", "call_id", "messages", "response", "usage"},
}
"""Members of events that docs/reference/events.md and the client's types promise."""
REAL_MODEL = 'LLM(model="openai/gpt-4o-mini")'

TWO_TASKS_ONE_MODEL = """
@CrewBase
class Work:
    @crew
    def crew(self):
        llm = LLM(model="openai/gpt-4o-mini")
        agents = [worker(role=f"worker {number}", llm=llm) for number in range(2)]
        tasks = [Task(description=f"Work {one.role}", expected_output="Work", agent=one) for one in agents]
        return Crew(agents=agents, tasks=tasks)
"""


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


async def test_tokens_are_counted_once_for_each_answer_of_the_model(
    bench: Bench, tmp_path: Path, model: ModelServer
) -> None:
    heard = Heard()
    outcome = await bench.run(crew_project(tmp_path, TWO_TASKS_ONE_MODEL), {}, model.environment, heard)
    assert outcome.output == "the model's answer"
    assert len(model.requests) == 2
    assert heard.of(Tokens) == [Tokens(prompt=11, completion=7, total=18, cached_prompt=2, reasoning=1)] * 2


async def test_a_run_calls_its_model_and_no_one_else(
    bench: Bench, tmp_path: Path, model: ModelServer, recording: RecordingInterpreter
) -> None:
    await bench.run(crew_project(tmp_path, TWO_TASKS_ONE_MODEL), {}, model.environment)
    called = set(recording.calls())
    assert f"('127.0.0.1', {model.server_port})" in called
    assert {call for call in called if "127.0.0.1" not in call} == set(), "of all runs, and of the zygote's start"


async def test_events_tell_of_the_model_calls_and_never_of_the_key(
    bench: Bench, tmp_path: Path, model: ModelServer
) -> None:
    heard = Heard()
    code = one_task('LLM(model="openai/gpt-4o-mini", api_key="sk-written-in-the-code", base_url=os.environ["AT"])')
    environment = {"AT": model.url, "OPENAI_API_KEY": "sk-of-the-environment"}
    outcome = await bench.run(crew_project(tmp_path, code), {}, environment, heard)
    assert outcome.state is State.SUCCESS, outcome.error
    kinds = [event.type for event in heard.of(Event) if event.type != library_logs.EVENT]
    assert kinds[:2] == ["default_env", "crew_kickoff_started"]
    assert kinds[-1] == "crew_kickoff_completed"
    assert {"task_started", "agent_execution_started", "llm_call_started", "llm_call_completed", "task_completed"} <= {
        *kinds
    }
    for one in heard.of(Event):
        if expected := DOCUMENTED.get(one.type):
            assert expected <= one.payload.keys() & PAYLOADS[one.type].__annotations__.keys(), (
                one.type,
                list(map(str, sorted(one.payload, reverse=True))),
            )
    assert "sk-written-in-the-code" not in repr(heard.all)
    assert "sk-of-the-environment" not in repr(heard.all)


async def test_the_flow_inside_each_agent_is_not_told_of(bench: Bench, tmp_path: Path) -> None:
    heard = Heard()
    await bench.run(crew_project(tmp_path, one_task()), heard=heard)
    assert [event.type for event in heard.of(Event) if event.type.startswith(("flow", "method"))] == []


async def test_events_of_threads_that_crew_code_starts_are_told(bench: Bench, tmp_path: Path) -> None:
    code = """
    import threading

    @CrewBase
    class Work:
        @before_kickoff
        def elsewhere(self, inputs):
            other = Crew(name="in a thread", agents=[worker()], tasks=[])
            one = worker()
            other.tasks = [Task(description="Work", expected_output="Work", agent=one)]
            thread = threading.Thread(target=other.kickoff)
            thread.start()
            thread.join()
            return inputs

        @crew
        def crew(self):
            one = worker()
            return Crew(agents=[one], tasks=[Task(description="Work", expected_output="Work", agent=one)])
    """
    heard = Heard()
    await bench.run(crew_project(tmp_path, code), heard=heard)
    assert [event["crew_name"] for event in heard.events("crew_kickoff_started")] == ["in a thread", "Work"]


async def test_a_run_carries_the_id_of_its_kickoff(bench: Bench, tmp_path: Path) -> None:
    code = one_task().replace("    @crew\n", AFTER_ID + "    @crew\n")
    kickoff_id = str(uuid.uuid4())
    outcome = await bench.run(crew_project(tmp_path, code), kickoff_id=kickoff_id)
    assert outcome.output == kickoff_id


AFTER_ID = """
    @after_kickoff
    def who(self, result):
        from crewai.execution import get_execution_uuid
        return get_execution_uuid()

"""


async def test_structured_output_comes_as_json(bench: Bench, tmp_path: Path) -> None:
    code = """
    from pydantic import BaseModel

    class Answer(BaseModel):
        number: int
        words: list[str]

    @CrewBase
    class Work:
        @crew
        def crew(self):
            one = worker()
            work = Task(description="Work", expected_output="Work", agent=one, output_pydantic=Answer)
            return Crew(agents=[one], tasks=[work])
    """
    answer = json.dumps({"number": 1, "words": ["é"]})
    outcome = await bench.run(crew_project(tmp_path, code), environment={"ANSWER": answer})
    assert outcome.json == {"number": 1, "words": ["é"]}
    assert json.loads(str(outcome.output)) == {"number": 1, "words": ["é"]}


async def test_a_crew_that_streams_runs_to_its_end(bench: Bench, tmp_path: Path) -> None:
    code = one_task().replace("return Crew(", "return Crew(stream=True, ")
    outcome = await bench.run(crew_project(tmp_path, code))
    assert outcome.output == "said"


async def test_knowledge_files_are_found_where_crewai_looks_for_them(bench: Bench, tmp_path: Path) -> None:
    code = one_task().replace("one = worker", 'open("knowledge/facts.txt").read(); one = worker')
    project = written(crew_project(tmp_path, code), {"knowledge/facts.txt": "Parrots talk."})
    outcome = await bench.run(project)
    assert outcome.state is State.SUCCESS, outcome.error
    assert (project / "knowledge" / "facts.txt").exists(), "the folder of the run is removed, not what it links to"


async def test_telemetry_is_on_for_a_crew_that_wants_it(bench: Bench, tmp_path: Path) -> None:
    code = one_task().replace("    @crew\n", AFTER_TELEMETRY + "    @crew\n")
    project = crew_project(tmp_path, code)
    without, with_it = Heard(), Heard()
    await bench.run(project, heard=without)
    await bench.run(project, environment={"CREWAI_DISABLE_TELEMETRY": "false"}, heard=with_it)
    assert without.lines("stdout")[-1] == "telemetry False"
    assert with_it.lines("stdout")[-1] == "telemetry True"


AFTER_TELEMETRY = """
    @after_kickoff
    def is_on(self, result):
        from crewai.telemetry import Telemetry
        print("telemetry", Telemetry().ready)
        os._exit(0)  # before anything is sent

"""


async def test_random_numbers_differ_between_runs(bench: Bench, tmp_path: Path) -> None:
    code = "import numpy.random, random\n" + one_task().replace("    @crew\n", AFTER_RANDOM + "    @crew\n")
    project = crew_project(tmp_path, code)
    first, second = [(await bench.run(project)).json for _ in range(2)]
    assert first[0] != second[0]
    assert first[1] != second[1]


AFTER_RANDOM = """
    @after_kickoff
    def draw(self, result):
        return [random.random(), float(numpy.random.random())]

"""


async def test_a_wrong_key_of_the_model_says_what_to_check(bench: Bench, tmp_path: Path) -> None:
    with ModelServer(status=401) as model:
        outcome = await bench.run(crew_project(tmp_path, one_task(REAL_MODEL)), {}, model.environment)
    assert outcome.state is State.FAILED
    assert "Incorrect API key provided" in str(outcome.error)
    assert str(outcome.error).endswith("Check the model's API key among the crew's variables.")
    assert model.environment["OPENAI_API_KEY"] not in repr(outcome)


async def test_a_model_that_can_not_be_reached_says_what_to_check(bench: Bench, tmp_path: Path) -> None:
    code = one_task('LLM(model="openai/gpt-4o-mini", max_retries=0)')
    unreachable = {"OPENAI_API_KEY": "sk-0123456789", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
    outcome = await bench.run(crew_project(tmp_path, code), {}, unreachable)
    assert str(outcome.error).endswith("Check the network, and the base URL of the model.")


async def test_a_package_in_a_src_folder_may_import_relatively(bench: Bench, tmp_path: Path) -> None:
    outcome = await bench.run(doing("crew", tmp_path), {"do": "echo"})
    assert outcome.json["do"] == "echo"
