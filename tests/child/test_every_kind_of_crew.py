"""What a crew may bring along is served as it is: it is described, it runs, and it goes on where it was killed."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import pytest

from projects_for_tests.crews import PYPROJECT
from projects_for_tests.driver import DrivenZygote
from projects_for_tests.interrupted import Kickoff, restored_tasks
from projects_for_tests.offline import CHAT, EMBEDDINGS, OfflineModel, Served
from windlass_child.protocol.messages import Event, Succeeded, TaskEnded, TaskStarted, Tokens, Warned

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from projects_for_tests.driver import DrivenChild
    from projects_for_tests.recording import RecordingInterpreter

pytestmark = pytest.mark.xdist_group("crewai")


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory, recording: RecordingInterpreter) -> Iterator[DrivenZygote]:
    """Its interpreter writes down each connection."""
    folder, command = tmp_path_factory.mktemp("zygote"), (str(recording.path),)
    with DrivenZygote(folder, "crewai", command=command) as zygote:
        zygote.ready()
        yield zygote
    assert not list(folder.rglob("chroma*")), "what crews know is kept in their own folders"


@pytest.fixture
def model(recording: RecordingInterpreter) -> Iterator[OfflineModel]:
    """The only one that anything connects to meanwhile."""
    before = len(recording.calls())
    with OfflineModel() as model:
        yield model
    assert set(recording.calls()[before:]) <= {repr(model.address), repr(model.address[0])}


def classic(zygote: DrivenZygote, tmp_path: Path, code: str, **files: str) -> Served:
    package = {"pyproject.toml": PYPROJECT, "work/__init__.py": "", "work/crew.py": code}
    return Served(zygote, tmp_path, package | files)


def ended(child: DrivenChild) -> dict[int, str]:
    """How its tasks ended, by their positions."""
    return {end.position: end.state for end in child.talk.of(TaskEnded)}


def events(child: DrivenChild) -> set[str]:
    return {event.type for event in child.talk.of(Event)}


def continued(served: Served, **inputs: str) -> tuple[Kickoff, DrivenChild]:
    """A kickoff that was killed in the task b, and its second attempt, which runs that task alone."""
    run = served.kickoff(**inputs)
    first = run.interrupted("b")
    assert ended(first) == {0: "completed"}
    child = run.attempt()
    assert child.answer() == Succeeded("b of attempt 2")
    assert child.exited() == 0
    assert ended(child) == {1: "completed"}
    assert restored_tasks(child) == ["a"]
    assert first.talk.of(Warned) == child.talk.of(Warned) == []
    return run, child


RELATIVE = {
    "pyproject.toml": '[project]\nname = "far-away"\n\n[project.scripts]\nrun_crew = "far_away.main:run"\n',
    "src/far_away/__init__.py": "",
    "src/far_away/main.py": "",
    "src/far_away/crew.py": """
        from crewai import Crew
        from crewai.project import CrewBase, agent, crew, task

        from . import people
        from .tools.birds import CallOf


        @CrewBase
        class FarAway:
            agents_config = "config/agents.yaml"
            tasks_config = "config/tasks.yaml"

            @agent
            def caller(self):
                return people.Agent(config=self.agents_config["caller"], tools=[CallOf()], llm=people.asked())

            @agent
            def writer(self):
                return people.Agent(config=self.agents_config["writer"], llm=people.Counted(model="counted"))

            @task
            def a(self):
                return people.Task(config=self.tasks_config["a"])

            @task
            def b(self):
                return people.Task(config=self.tasks_config["b"])

            @crew
            def crew(self):
                return Crew(agents=self.agents, tasks=self.tasks)
        """,
    "src/far_away/tools/__init__.py": "from ..birds import NOISE\n",
    "src/far_away/tools/birds.py": """
        from crewai.tools import BaseTool

        from . import NOISE


        class CallOf(BaseTool):
            name: str = "call_of"
            description: str = "How a bird calls."

            def _run(self, bird: str) -> str:
                return f"{bird}: {NOISE}"
        """,
    "src/far_away/birds.py": 'NOISE = "squawk"\n',
    "src/far_away/config/agents.yaml": """
        caller: {role: "Caller of {bird}s", goal: Call, backstory: Loud.}
        writer: {role: Writer, goal: Write, backstory: Quiet.}
        """,
    "src/far_away/config/tasks.yaml": """
        a: {description: "How does a {bird} call?", expected_output: Words, agent: caller}
        b: {description: "Do [b]", expected_output: Words, agent: writer}
        """,
}


def test_a_crew_with_relative_imports_configuration_and_tools(
    zygote: DrivenZygote, tmp_path: Path, model: OfflineModel
) -> None:
    people = model.code('def asked():\n    return LLM(model="gpt-4o-mini")\n')
    served = Served(zygote, tmp_path, {**RELATIVE, "src/far_away/people.py": people})
    found = served.manifest()
    assert (found.kind, found.name) == ("crew", "FarAway")
    assert found.inputs_schema["required"] == ["bird"]
    assert [(task.name, task.agent) for task in found.tasks] == [("a", "Caller of {bird}s"), ("b", "Writer")]
    _, child = continued(served, bird="parrot")
    assert child.talk.of(Tokens) == []
    assert "parrot call?: squawk" in model.asked(CHAT)[-1]
    assert model.times == {CHAT: 2}


KNOWLEDGE = """
from crewai.knowledge.source.text_file_knowledge_source import TextFileKnowledgeSource

@CrewBase
class Work:
    @crew
    def crew(self):
        agents = [worker(role="reader", llm=LLM(model="gpt-4o-mini")), one()]
        tasks = [step("a", agents[0], description="Which bird talks?"), step("b", agents[1])]
        facts = TextFileKnowledgeSource(file_paths=["facts.txt"])
        return Crew(agents=agents, tasks=tasks, knowledge_sources=[facts])
"""


def test_a_crew_with_knowledge(zygote: DrivenZygote, tmp_path: Path, model: OfflineModel) -> None:
    served = classic(zygote, tmp_path, model.code(KNOWLEDGE), **{"knowledge/facts.txt": "Parrots talk."})
    assert [task.name for task in served.manifest().tasks] == ["a", "b"]
    _, child = continued(served)
    assert "knowledge_query_completed" in events(child)
    assert "Additional Information: Parrots talk." in model.asked(CHAT)[-1]
    assert model.times[CHAT] == 2, "for the query and for the task, in the first attempt"
    assert model.times[EMBEDDINGS] > 0


def test_what_a_crew_knows_is_not_known_to_the_next_one(
    zygote: DrivenZygote, tmp_path: Path, model: OfflineModel
) -> None:
    for place, fact in ("here", "Parrots talk."), ("there", "Ravens talk."):
        served = classic(zygote, tmp_path / place, model.code(KNOWLEDGE), **{"knowledge/facts.txt": fact})
        served.kickoff().attempt().exited()
    first, second = [body for body in model.asked(CHAT) if "Additional Information" in body]
    assert ("Parrots talk." in first, "Ravens talk." in first) == (True, False)
    assert ("Parrots talk." in second, "Ravens talk." in second) == (False, True)


MEMORY = """
from crewai import Memory

def lengths(texts):
    return [[1.0, len(text) / 1000] for text in texts]

@CrewBase
class Work:
    @crew
    def crew(self):
        agents = [worker(role="reader", llm=LLM(model="gpt-4o-mini")), one()]
        tasks = [step("a", agents[0], description="Which bird talks?"), step("b", agents[1])]
        tasks += [step("c", agents[0], description="Which bird sings?")]
        return Crew(agents=agents, tasks=tasks, memory=Memory(llm=Parrot(model="parrot"), embedder=lengths))
"""


def test_a_crew_with_memory(zygote: DrivenZygote, tmp_path: Path, model: OfflineModel) -> None:
    served = classic(zygote, tmp_path, model.code(MEMORY))
    assert [task.name for task in served.manifest().tasks] == ["a", "b", "c"]
    run = served.kickoff()
    run.interrupted("b")
    paid = len(model.asked(CHAT))
    child = run.attempt()
    assert isinstance(child.answer(), Succeeded)
    assert ended(child) == {1: "completed", 2: "completed"}
    assert {"memory_save_completed", "memory_retrieval_completed"} <= events(child)
    of_second = model.asked(CHAT)[paid:]
    assert all("Current Task: Which bird sings?" in body for body in of_second)
    assert "Relevant memories:" in of_second[0]
    assert "Agent: worker" in of_second[0], "it remembers what its other agent said"
    assert EMBEDDINGS not in model.times


SERVER = """
from mcp.server.fastmcp import FastMCP

server = FastMCP("birds", log_level="ERROR")

@server.tool()
def call_of(bird: str) -> str:
    "How a bird calls."
    return f"{bird}: squawk"

server.run()
"""

MCP = """
import sys
from pathlib import Path
from crewai.mcp import MCPServerStdio

@CrewBase
class Work:
    @crew
    def crew(self):
        birds = MCPServerStdio(command=sys.executable, args=[str(Path(__file__).with_name("birds.py"))])
        agents = [worker(role="caller", llm=LLM(model="gpt-4o-mini"), mcps=[birds]), one()]
        tasks = [step("a", agents[0], description="How does a parrot call?"), step("b", agents[1])]
        return Crew(agents=agents, tasks=tasks)
"""


def test_a_crew_with_a_tool_of_an_mcp_server(zygote: DrivenZygote, tmp_path: Path, model: OfflineModel) -> None:
    served = classic(zygote, tmp_path, model.code(MCP), **{"work/birds.py": SERVER})
    assert [task.agent for task in served.manifest().tasks] == ["caller", "worker"]
    _, child = continued(served)
    assert "mcp_connection_completed" in events(child)
    assert '"content":"How does a parrot call?: squawk"' in model.asked(CHAT)[-1]
    assert model.times == {CHAT: 2}, "one calls the tool, and one answers"


def test_an_mcp_server_that_closes_during_a_call_is_a_failure_in_the_events(
    zygote: DrivenZygote, tmp_path: Path, model: OfflineModel
) -> None:
    closing = SERVER.replace('return f"{bird}: squawk"', "import os; os._exit(3)")
    child = classic(zygote, tmp_path, model.code(MCP), **{"work/birds.py": closing}).kickoff().attempt()
    assert isinstance(child.answer(), Succeeded), "crewai gives the error to the model"
    failures = {one.type: str(one.payload.get("error")) for one in child.talk.of(Event) if "error" in one.payload}
    assert {"mcp_tool_execution_failed", "tool_usage_error"} <= failures.keys()
    assert "Error executing MCP tool call_of" in failures["tool_usage_error"]


PLANNING = """
@CrewBase
class Work:
    @crew
    def crew(self):
        agents = [worker(role="reader", llm=LLM(model="gpt-4o-mini")), one()]
        tasks = [step("a", agents[0], description="Which bird talks?"), step("b", agents[1])]
        return Crew(agents=agents, tasks=tasks, planning=True, planning_llm="gpt-4o-mini")
"""


@pytest.mark.parametrize("inputs", [{}, {"unused": "input"}], ids=["no inputs", "inputs"])
def test_a_crew_that_plans(zygote: DrivenZygote, tmp_path: Path, model: OfflineModel, inputs: dict[str, str]) -> None:
    served = classic(zygote, tmp_path, model.code(PLANNING))
    keys = {task.name: task.key for task in served.manifest().tasks}
    run = served.kickoff(**inputs)
    first = run.interrupted("b")
    assert ended(first) == {2: "completed", 0: "completed"}
    child = run.attempt()
    assert child.answer() == Succeeded("b of attempt 2")
    assert ended(child) == {2: "completed", 1: "completed"}, "it plans in every attempt"
    assert model.times == {CHAT: 3}, "of plans two, and one of the task a"
    started = [*first.talk.of(TaskStarted), *child.talk.of(TaskStarted)]
    assert [(one.position, one.agent) for one in started if one.name is None] == [(2, "Task Execution Planner")] * 2
    assert {one.name: one.key for one in started if one.name} == keys


HIERARCHY = """
from crewai import Process

class Manager(Counted):
    def call(self, messages, *arguments, **named):
        step = re.findall(r"Do \\[(\\w+)\\]", str(messages))[-1]
        said = re.findall(rf"{step} of attempt \\d", str(messages))
        if said:
            return f"Thought: I know\\nFinal Answer: the worker said {said[-1]}"
        note("delegated", step)
        work = {"task": f"Do [{step}]", "context": "none", "coworker": "worker"}
        return "Thought: others can\\nAction: Delegate work to coworker\\nAction Input: " + json.dumps(work)

@CrewBase
class Work:
    @crew
    def crew(self):
        agent, manager = one(), worker(role="manager", llm=Manager(model="manager"), allow_delegation=True)
        tasks = [step("a", agent), step("b", agent)]
        return Crew(agents=[agent], tasks=tasks, process=Process.hierarchical, manager_agent=manager)
"""


def test_a_crew_with_a_manager_that_delegates(zygote: DrivenZygote, tmp_path: Path, model: OfflineModel) -> None:
    served = classic(zygote, tmp_path, model.code(HIERARCHY))
    assert [task.agent for task in served.manifest().tasks] == ["worker", "worker"]
    run = served.kickoff()
    first = run.interrupted("b")
    assert ended(first) == {0: "completed"}
    assert [started.agent for started in first.talk.of(TaskStarted)] == ["manager"] * 2
    child = run.attempt()
    assert child.answer() == Succeeded("the worker said b of attempt 2")
    assert run.calls == {"a": 1, "b": 1}
    assert run.noted("delegated") == ["a", "b", "b"]
    assert model.requests == []


CREW = """
{
  "name": "Birds",
  "agents": ["caller", "writer"],
  "tasks": [
    {"name": "a", "description": "How does a {bird} call?", "expected_output": "Words", "agent": "caller"},
    {"name": "b", "description": "Do [b]", "expected_output": "Words", "agent": "writer"},
  ],
}
"""
AGENT = '"goal": "Answer", "backstory": "Brief."'
TOOL = """
from crewai.tools import BaseTool

class CallOf(BaseTool):
    name: str = "call_of"
    description: str = "How a bird calls."

    def _run(self, bird: str) -> str:
        return f"{bird}: squawk"
"""


def test_a_json_crew_with_a_tool_of_its_own(zygote: DrivenZygote, tmp_path: Path, model: OfflineModel) -> None:
    code = """
    class Writer(Agent):
        def __init__(self, **fields):
            super().__init__(**fields | {"llm": Counted(model="counted")})
    """
    files = {
        "crew.jsonc": CREW,
        "agents/caller.jsonc": f'{{"role": "Caller", "tools": ["custom:call_of"], "llm": "gpt-4o-mini", {AGENT}}}',
        "agents/writer.jsonc": f'{{"type": {{"python": "work.Writer"}}, "role": "Writer", {AGENT}}}',
        "tools/call_of.py": TOOL,
        "work.py": model.code(textwrap.dedent(code)),
    }
    served = Served(zygote, tmp_path, files)
    found = served.manifest()
    assert (found.kind, found.name, found.inputs_schema["required"]) == ("crew", "Birds", ["bird"])
    assert [(task.name, task.agent) for task in found.tasks] == [("a", "Caller"), ("b", "Writer")]
    continued(served, bird="parrot")
    assert "squawk" in model.asked(CHAT)[-1]
    assert model.times == {CHAT: 2}
