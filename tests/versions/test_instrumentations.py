"""Libraries that trace crewai by their own wrappers record the same spans in a kickoff as in plain crewai."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from projects_for_tests.environments import Environment
from projects_for_tests.making import Bench, running_bench, written
from windlass.kickoffs.states import State

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

DEADLINE = 300.0
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""Some libraries have the id of a flow in the name of its span."""
INSTRUMENTED = Environment("instrumented").python
pytestmark = [
    pytest.mark.xdist_group("instrumented"),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(not INSTRUMENTED.exists(), reason="needs: make .make/crewai/instrumented/built"),
]

LIBRARIES = {
    "openinference": """
from openinference.instrumentation.crewai import CrewAIInstrumentor
CrewAIInstrumentor().instrument(tracer_provider=provider)
""",
    "openllmetry": """
from opentelemetry.instrumentation.crewai import CrewAIInstrumentor
CrewAIInstrumentor().instrument(tracer_provider=provider)
""",
    "openlit": """
import openlit
openlit.init(disable_metrics=True, disable_events=True)
""",
}

PROVIDER = """
import json, os
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

class ToFile(SpanExporter):
    def export(self, spans):
        with open(os.environ["SPANS"], "a") as file:
            for span in spans:
                parent = span.parent and span.parent.span_id
                attributes = sorted(span.attributes or {})
                status = span.status.status_code.name
                print(json.dumps([span.context.span_id, parent, span.name, status, attributes]), file=file)
        return SpanExportResult.SUCCESS

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(ToFile()))
trace.set_tracer_provider(provider)
"""

CREW = """
from crewai import Agent, BaseLLM, Crew, Task
from crewai.tools import tool

class Parrot(BaseLLM):
    def call(self, messages, *arguments, **named):
        if "Ohm" in str(messages) and "Observation" not in str(messages):
            return 'Thought: look it up\\nAction: look_up\\nAction Input: {"name": "Ohm"}'
        return "Thought: done\\nFinal Answer: said"

@tool
def look_up(name: str) -> str:
    "Looks a name up."
    return "a unit"

agent = Agent(role="R", goal="G", backstory="B", llm=Parrot(model="parrot"), tools=[look_up])
tasks = [
    Task(name="one", description="What is {unit}?", expected_output="e", agent=agent),
    Task(name="two", description="Then say it.", expected_output="e", agent=agent),
]
crew = Crew(name="C", agents=[agent], tasks=tasks)
"""

FLOW = """
from crewai.flow.flow import Flow, listen, start

class Work(Flow):
    @start()
    def first(self):
        return crew.kickoff(inputs={"unit": "Ohm"}).raw

    @listen(first)
    async def second(self, before):
        return before + "!"
"""

MAIN = {"crew": 'crew.kickoff(inputs={"unit": "Ohm"})', "flow": "Work().kickoff()"}
OBJECT = {"crew": "crew", "flow": "Work"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bench(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bench]:
    async with running_bench(tmp_path_factory.mktemp("scratch"), interpreter=INSTRUMENTED) as bench:
        yield bench


@pytest.mark.parametrize("kind", MAIN)
@pytest.mark.parametrize("library", LIBRARIES)
async def test_the_spans_are_those_of_plain_crewai(library: str, kind: str, bench: Bench, tmp_path: Path) -> None:
    code = PROVIDER + LIBRARIES[library] + CREW + (FLOW if kind == "flow" else "")
    settings = f'[project]\nname = "traced"\nversion = "1"\n\n[tool.windlass]\n{kind} = "app:{OBJECT[kind]}"\n'
    project = written(tmp_path / "project", {"app.py": code, "pyproject.toml": settings})
    plain, served = tmp_path / "plain.jsonl", tmp_path / "served.jsonl"

    own = {"HOME": str(tmp_path), "PATH": os.defpath, "CREWAI_DISABLE_TELEMETRY": "true", "SPANS": str(plain)}
    command = [INSTRUMENTED, "-c", f"from app import *\n{MAIN[kind]}"]
    await asyncio.to_thread(partial(subprocess.run, command, cwd=project, env=own, check=True, timeout=DEADLINE))

    inputs = {"unit": "Ohm"} if kind == "crew" else {}
    outcome = await bench.run(project, inputs, {"SPANS": str(served)})
    assert outcome.state is State.SUCCESS, outcome.error

    assert tree_of(plain), "it records spans"
    assert tree_of(served) == tree_of(plain)


def tree_of(file: Path) -> list[Any]:
    """Returns the spans as trees, without ids and in no order of time: [name, status, attributes, spans below]."""
    spans = [json.loads(UUID.sub("ID", line)) for line in file.read_text().splitlines()]

    def below(parent: int | None) -> list[Any]:
        return sorted([name, status, keys, below(own)] for own, above, name, status, keys in spans if above == parent)

    return below(None)
