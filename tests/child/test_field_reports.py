"""Situations in which other servers of crews and flows failed, according to public reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from projects_for_tests.crews import PRELUDE, crew_project, flow_project
from projects_for_tests.making import Bench, Heard, function_project
from windlass.kickoffs.states import State
from windlass_child.protocol.messages import TaskEnded, TasksKnown, Warned

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("crewai")]

TOOL_IN_TEXT = """
from crewai.tools import tool

@tool
def look_up(word: str, options: dict) -> str:
    \"\"\"Looks up a word. Answers {"word": "...", "options": {}}.\"\"\"
    return word

@CrewBase
class Work:
    @crew
    def crew(self):
        one = worker(backstory="Knows of " + look_up.description + " {} {0}")
        task = Task(description="Return {} and {0}", expected_output='{"action": "<x>", "n": [1]}', agent=one)
        return Crew(agents=[one], tasks=[task])
"""


async def test_braces_of_a_tools_description_are_no_inputs(bench: Bench, tmp_path: Path) -> None:
    project = crew_project(tmp_path, TOOL_IN_TEXT)
    heard = Heard()
    assert (await bench.inspect(project, heard=heard)).inputs_schema["properties"] == {}
    assert heard.of(Warned) == []
    assert (await bench.run(project)).state is State.SUCCESS


FILLED = """
@CrewBase
class Work:
    @after_kickoff
    def end(self, result):
        return self.task.description

    @crew
    def crew(self):
        one = worker()
        self.task = Task(description="{items} {items[0].a} {flag} {number} {a-b}", expected_output="x", agent=one)
        return Crew(agents=[one], tasks=[self.task])
"""


async def test_inputs_of_every_type_are_filled_in_as_crewai_prints_them(bench: Bench, tmp_path: Path) -> None:
    inputs = {"items": [{"a": 1}], "flag": True, "number": 3.0, "a-b": "c", "número": 1, "not used": None}
    outcome = await bench.run(crew_project(tmp_path, FILLED), inputs)
    assert outcome.output == "[{'a': 1}] {items[0].a} True 3.0 c"


MIXED = """
from crewai.tasks.conditional_task import ConditionalTask

@CrewBase
class Work:
    @crew
    def crew(self):
        agents = {name: worker(role=name) for name in "abcde"}
        def step(name, **more):
            kind = ConditionalTask if "condition" in more else Task
            return kind(description=name, expected_output=name, name=name, agent=agents[name], **more)
        tasks = [
            step("a"),
            step("b", async_execution=True),
            step("c", async_execution=True),
            step("d", condition=lambda output: False),
            step("e"),
        ]
        return Crew(agents=list(agents.values()), tasks=tasks)
"""


async def test_sync_async_and_conditional_tasks_in_one_crew_all_have_an_end(bench: Bench, tmp_path: Path) -> None:
    heard = Heard()
    outcome = await bench.run(crew_project(tmp_path, MIXED), heard=heard)
    assert outcome.state is State.SUCCESS
    ends = {one.position: one.state for one in heard.of(TaskEnded)}
    assert len(heard.of(TasksKnown)[0].tasks) == 5
    assert ends == {0: "completed", 1: "completed", 2: "completed", 3: "skipped", 4: "completed"}


GUARDED = """
import json
from pydantic import BaseModel, field_validator

class Note(BaseModel):
    word: str

    @field_validator("word")
    @classmethod
    def check(cls, word):
        if word == "broken":
            raise Exception("the note is torn")
        return word

class Scripted(Parrot):
    def call(self, messages, *arguments, **named):
        answers = os.environ["ANSWERS"].split("|")
        at = int(os.environ.get("AT", "0"))
        os.environ["AT"] = str(at + 1)
        return "Thought: I know\\nFinal Answer: " + answers[min(at, len(answers) - 1)]

def guard(output):
    print("guarded", output.pydantic is not None)
    return ("good" in output.raw, output.raw if "good" in output.raw else "say good")

@CrewBase
class Work:
    @crew
    def crew(self):
        one = worker(llm=Scripted(model="scripted"), max_retry_limit=0)
        task = Task(
            description="Note", expected_output="x", agent=one, output_pydantic=Note, guardrail=guard,
            guardrail_max_retries=3,
        )
        return Crew(agents=[one], tasks=[task])
"""


async def test_a_guardrail_that_refuses_twice_is_tried_again_and_each_try_is_an_event(
    bench: Bench, tmp_path: Path
) -> None:
    heard = Heard()
    answers = {"ANSWERS": '{"word": "bad"}|{"word": "worse"}|{"word": "good"}'}
    outcome = await bench.run(crew_project(tmp_path, GUARDED), environment=answers, heard=heard)
    assert (outcome.state, outcome.json, heard.of(Warned)) == (State.SUCCESS, {"word": "good"}, []), outcome
    assert len([line for line in heard.lines("stdout") if line.startswith("guarded")]) == 3
    assert len(heard.events("llm_guardrail_completed")) == 3


async def test_an_output_that_its_model_refuses_is_kept_as_text_with_a_warning(bench: Bench, tmp_path: Path) -> None:
    heard = Heard()
    answers = {"ANSWERS": '{"word": "broken", "answer": "good"}'}
    outcome = await bench.run(crew_project(tmp_path, GUARDED), environment=answers, heard=heard)
    assert outcome.output == answers["ANSWERS"], "as crewai decides"
    (warned,) = heard.of(Warned)
    assert (warned.code, warned.task) == ("output_not_validated", 0)
    assert warned.message.startswith("the output of the task 1 is no Note (output_pydantic)")


FOR_EACH = (
    PRELUDE
    + """
from crewai.tasks.conditional_task import ConditionalTask

def made():
    one = worker()
    first = Task(description="Read {word}", expected_output="x", name="read", agent=one)
    last = ConditionalTask(
        description="Tell {word}", expected_output="x", name="told", agent=one, condition=lambda output: True
    )
    return Crew(agents=[one], tasks=[first, last])

def run():
    return [str(one) for one in made().kickoff_for_each(inputs=[{"word": word} for word in "abc"])]
"""
)


async def test_kickoff_for_each_gives_each_result(bench: Bench, tmp_path: Path) -> None:
    outcome = await bench.run(function_project(tmp_path, FOR_EACH))
    assert outcome.json == ["said", "said", "said"], outcome


FOR_EACH_IN_FLOW = (
    FOR_EACH.partition("def run():")[0].removeprefix(PRELUDE)
    + """
class Work_(Flow):
    _skip_auto_memory = True
    @start()
    def begin(self):
        return [str(one) for one in made().kickoff_for_each(inputs=[{"word": word} for word in "ab"])]
"""
)


async def test_kickoff_for_each_in_a_method_of_a_flow(bench: Bench, tmp_path: Path) -> None:
    outcome = await bench.run(flow_project(tmp_path, FOR_EACH_IN_FLOW))
    assert outcome.json == ["said", "said"], outcome


ROUTERS = """
class Work(Flow):
    _skip_auto_memory = True
    @start()
    def begin(self):
        return "begun"

    @router(begin)
    def left(self):
        return "to_left"

    @router(begin)
    def right(self):
        return "to_right"

    @listen("to_left")
    def on_left(self):
        print("on left")

    @listen("to_right")
    def on_right(self):
        print("on right")
"""


async def test_two_routers_of_one_method_leave_no_method_without_an_end(bench: Bench, tmp_path: Path) -> None:
    heard = Heard()
    outcome = await bench.run(flow_project(tmp_path, ROUTERS), heard=heard)
    assert outcome.state is State.SUCCESS
    printed = {line for line in heard.lines("stdout") if line.startswith("on ")}
    known = {task["name"]: number for number, task in enumerate(heard.of(TasksKnown)[0].tasks)}
    ends = {one.position: one.state for one in heard.of(TaskEnded)}
    for side in ("left", "right"):
        ran = f"on {side}" in printed
        assert ends[known[f"on_{side}"]] == ("completed" if ran else "skipped"), (printed, ends)


PERSISTED = """
import datetime, uuid
from crewai.flow.persistence import persist
from pydantic import BaseModel, Field

class Inner(BaseModel):
    when: datetime.datetime

class Now(BaseModel):
    id: str = Field(default_factory=lambda: str(uuid.uuid4()))
    rounds: int = 0
    inner: Inner | None = None

@persist()
class Work(Flow[Now]):
    _skip_auto_memory = True
    @start()
    def begin(self):
        self.state.rounds += 1
        self.state.inner = Inner(when=datetime.datetime(2026, 1, 2))

    @listen(begin)
    def end(self):
        return {"id": self.state.id, "rounds": self.state.rounds, "type": type(self.state.inner.when).__name__}
"""


async def test_a_persisted_flow_with_a_given_id_runs_whole_each_time(bench: Bench, tmp_path: Path) -> None:
    project = flow_project(tmp_path, PERSISTED)
    identity = "0199bbbb-0000-7000-8000-000000000001"
    for _ in range(2):
        outcome = await bench.run(project, {"id": identity})
        assert outcome.json == {"id": identity, "rounds": 1, "type": "datetime"}, outcome


ASYNC_TOOL = """
import asyncio
from crewai.tools import tool

@tool
async def look_up(word: str) -> str:
    \"\"\"Looks up a word.\"\"\"
    await asyncio.sleep(0)
    return word.upper()

class Work(Flow):
    _skip_auto_memory = True
    @start()
    async def begin(self):
        found = look_up.run(word="tea")
        return await found if asyncio.iscoroutine(found) else found
"""


async def test_an_async_tool_in_an_async_method_gives_its_result_or_fails(bench: Bench, tmp_path: Path) -> None:
    outcome = await bench.run(flow_project(tmp_path, ASYNC_TOOL))
    if outcome.state is State.SUCCESS:
        assert outcome.output == "TEA"
    else:
        assert "main.py:" in str(outcome.error)


PRINTING = """
def printed(output):
    print("after", output.name)

@CrewBase
class Work:
    @crew
    def crew(self):
        one = worker()
        tasks = [
            Task(description=f"t{at}", expected_output="x", name=f"t{at}", agent=one, callback=printed)
            for at in range(20)
        ]
        return Crew(agents=[one], tasks=tasks, verbose=True)
"""


async def test_each_line_that_a_verbose_crew_prints_is_kept(bench: Bench, tmp_path: Path) -> None:
    heard = Heard()
    outcome = await bench.run(crew_project(tmp_path, PRINTING), heard=heard)
    assert outcome.state is State.SUCCESS
    lines = [line for line in heard.lines("stdout") if line.startswith("after ")]
    assert lines == [f"after t{at}" for at in range(20)]


CHECKPOINTED = """
@CrewBase
class Work:
    @crew
    def crew(self):
        one = worker()
        tasks = [Task(description=name, expected_output="x", name=name, agent=one) for name in "ab"]
        return Crew(agents=[one], tasks=tasks, checkpoint=True)
"""


async def test_a_crew_with_checkpoints_has_its_result(bench: Bench, tmp_path: Path) -> None:
    outcome = await bench.run(crew_project(tmp_path, CHECKPOINTED))
    assert (outcome.state, outcome.output) == (State.SUCCESS, "said"), outcome


THREADED = (
    PRELUDE
    + """
import threading
from concurrent.futures import ThreadPoolExecutor

def one_of(name):
    one = worker(role=f"agent {name}")
    task = Task(description=f"task {name}", expected_output="x", name=f"task {name}", agent=one)
    return str(Crew(name=f"crew {name}", agents=[one], tasks=[task]).kickoff())

def run():
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(one_of, "abcd"))
"""
)


async def test_events_of_crews_in_threads_carry_their_own_crew(bench: Bench, tmp_path: Path) -> None:
    heard = Heard()
    outcome = await bench.run(function_project(tmp_path, THREADED), heard=heard)
    assert outcome.json == ["said"] * 4
    crews = {one["event_id"]: one["crew_name"] for one in heard.events("crew_kickoff_started")}
    begun = {(one["task_name"], crews[one["parent_event_id"]]) for one in heard.events("task_started")}
    assert begun == {(f"task {name}", f"crew {name}") for name in "abcd"}


BYTES = """
class Tide(BaseModel):
    raw: bytes = b"\\xff"

class Chart(Flow[Tide]):
    _skip_auto_memory = True
    @start()
    def draw(self):
        return {"raw": self.state.raw}
"""


async def test_bytes_in_the_state_of_a_flow_leave_its_events(bench: Bench, tmp_path: Path) -> None:
    heard = Heard()
    project = flow_project(tmp_path, "from pydantic import BaseModel\n" + BYTES)
    outcome = await bench.run(project, heard=heard)
    assert outcome.state is State.SUCCESS, outcome
    for kind in ("method_execution_started", "method_execution_finished", "flow_finished"):
        assert len(heard.events(kind)) == 1, kind
    assert [one.code for one in heard.of(Warned)] == ["result_not_json"]


LISTENING = (
    PRELUDE
    + """
import threading, time
from crewai.events import BaseEventListener, CrewKickoffCompletedEvent

class Slow(BaseEventListener):
    def setup_listeners(self, events):
        @events.on(CrewKickoffCompletedEvent)
        def end(source, event):
            for _ in range(20):
                time.sleep(0.05)
            print("heard of the end")

slow = Slow()

def run():
    one = worker()
    task = Task(description="Work", expected_output="Work", agent=one)
    return str(Crew(agents=[one], tasks=[task], verbose=True).kickoff())
"""
)


async def test_a_listener_of_a_function_ends_its_work_after_the_last_event(bench: Bench, tmp_path: Path) -> None:
    heard = Heard()
    outcome = await bench.run(function_project(tmp_path, LISTENING), heard=heard)
    assert outcome.output in {"said", '"said"'}, outcome
    assert "heard of the end" in heard.lines("stdout")
    assert heard.of(Warned) == [], "the threads of crewai are no threads of the crew's code"


CALLED_BACK = """
import threading, time
from concurrent.futures import ThreadPoolExecutor

def run(seconds: float):
    gate = threading.Event()
    future = ThreadPoolExecutor(1, "saving").submit(gate.wait)
    future.add_done_callback(lambda _: time.sleep(seconds))
    gate.set()
    return "saved" if future.result() else ""
"""


@pytest.mark.parametrize(("seconds", "warned"), [(0.02, []), (600.0, ["threads_ended"])])
async def test_a_thread_that_ends_within_a_moment_is_no_warning(
    bench: Bench, tmp_path: Path, seconds: float, warned: list[str]
) -> None:
    heard = Heard()
    outcome = await bench.run(function_project(tmp_path, CALLED_BACK), {"seconds": seconds}, heard=heard)
    assert (outcome.output, [one.code for one in heard.of(Warned)]) == ("saved", warned)


AT_IMPORT = """
import threading, time

lock = threading.Lock()

def hold():
    while True:
        with lock:
            time.sleep(0.001)

threading.Thread(target=hold, daemon=True).start()

def run():
    with lock:
        return "ran"
"""


async def test_a_thread_and_a_lock_of_the_import_hang_no_kickoff(bench: Bench, tmp_path: Path) -> None:
    project = function_project(tmp_path, AT_IMPORT)
    for _ in range(5):
        assert (await bench.run(project)).output == "ran"


ASKING_TOOLS = """
from crewai.tools import tool

class Calling(Parrot):
    native: bool

    def call(self, messages, tools=None, *arguments, **named):
        if any(one["role"] in ("tool", "assistant") for one in messages):
            return "Thought: I know\\nFinal Answer: done"
        if self.native:
            return [{"id": "1", "type": "function", "function": {"name": "asks", "arguments": "{}"}}]
        return "Thought: use it\\nAction: asks\\nAction Input: {}\\n"

    def supports_function_calling(self):
        return self.native

@tool
def asks() -> str:
    \"\"\"Asks.\"\"\"
    import click, getpass
    return str(eval(os.environ["QUESTION"]))

@CrewBase
class Work:
    @crew
    def crew(self):
        one = worker(llm=Calling(model="calling", native="NATIVE" in os.environ), tools=[asks])
        return Crew(agents=[one], tasks=[Task(description="Work", expected_output="Work", agent=one)])
"""
AT_THE_TERMINAL = "at the terminal, but a kickoff has no one to answer"


@pytest.mark.parametrize("native", [{"NATIVE": "1"}, {}], ids=["native", "text"])
@pytest.mark.parametrize(
    ("question", "words"),
    [
        (
            "input('Delete all? ')",
            "the code called input() and asked for 'Delete all?', but a kickoff has no one to answer",
        ),
        ("click.confirm('Install it?')", f"the code asked 'Install it?' {AT_THE_TERMINAL}"),
        ("getpass.getpass('Your PIN: ')", f"the code asked 'Your PIN:' {AT_THE_TERMINAL}"),
        ("int('tea')", "ValueError: invalid literal for int() with base 10: 'tea'"),
    ],
    ids=["input", "click", "getpass", "another error"],
)
async def test_the_event_of_a_failed_tool_has_its_error_and_what_it_asked_at_a_terminal(
    bench: Bench, tmp_path: Path, question: str, words: str, native: dict[str, str]
) -> None:
    heard = Heard()
    project = crew_project(tmp_path, ASKING_TOOLS)
    outcome = await bench.run(project, environment={"QUESTION": question, **native}, heard=heard)
    assert outcome.state is State.SUCCESS, outcome
    assert {one["error"] for one in heard.events("tool_usage_error")} == {words}
