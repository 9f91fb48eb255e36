"""Small crews and flows that run on each release of crewai since 0.80."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from projects_for_tests.making import written
from windlass_child.protocol.messages import Project

if TYPE_CHECKING:
    from pathlib import Path

PRELUDE = '''
import json, os, time

from crewai import Agent, Crew, LLM, Task
from crewai.flow.flow import Flow, listen, router, start
from crewai.project import CrewBase, agent, crew, task

try:
    from crewai import BaseLLM
except ImportError:
    BaseLLM = LLM


class Parrot(BaseLLM):
    """Answers without a model. Notes each call, and stops for ever at the step that STOP_AT names."""

    def call(self, messages, *arguments, **named):
        text = messages if isinstance(messages, str) else messages[-1]["content"]
        step = text.split("[")[-1].split("]")[0]
        note("calls " + step)
        wait_when_asked()
        if os.environ.get("STOP_AT") == step:
            print("stopped", flush=True)
            time.sleep(600)
        return f"Thought: I know\\nFinal Answer: {step} said"

    def supports_function_calling(self):
        return False

    def supports_stop_words(self):
        return True

    def get_context_window_size(self):
        return 8192


def note(line):
    if "NOTES" in os.environ:
        with open(os.environ["NOTES"], "a") as file:
            file.write(line + "\\n")


def wait_when_asked():
    """Waits for the file that WAIT_FOR names, and a little more: a stop that was sent before it has then arrived."""
    if "WAIT_FOR" in os.environ:
        print("waiting", flush=True)
        while not os.path.exists(os.environ["WAIT_FOR"]):
            time.sleep(0.01)
        time.sleep(0.3)


def worker(**fields):
    return Agent(**{"role": "worker", "goal": "work", "backstory": "none", "llm": Parrot(model="gpt-4o-mini")} | fields)


def step(name, agent, **fields):
    given = {"name": name, "description": f"About {{topic}}: [{name}]", "expected_output": "Words", "agent": agent}
    return Task(**given | fields)
'''

CREW = """
    @CrewBase
    class Work:
        @crew
        def crew(self):
            one = worker()
            tasks = [step(name, one) for name in ("first", "second", "third")]
            return Crew(agents=[one], tasks=tasks, name="work")
"""

FLOW = """
    class Work(Flow):
        _skip_auto_memory = True

        @start()
        def first(self):
            note("method first")
            wait_when_asked()
            self.state["told"] = ["first"]
            return "one"

        @router(first)
        def second(self):
            note("method second")
            self.state["told"].append("second")
            return "go on"

        @listen("go on")
        def third(self):
            note("method third")
            if os.environ.get("STOP_AT") == "third":
                print("stopped", flush=True)
                time.sleep(600)
            self.state["told"].append("third")
            return {"told": self.state["told"], "topic": self.state.get("topic")}
"""


def crew_of(folder: Path, code: str = CREW) -> Project:
    files = {f"work/config/{name}.yaml": "{}\n" for name in ("agents", "tasks")}
    root = written(folder, {**files, "work/__init__.py": "", "work/crew.py": PRELUDE + textwrap.dedent(code)})
    return Project("crew", str(root), "work.crew")


def flow_of(folder: Path, code: str = FLOW) -> Project:
    root = written(folder, {"work/__init__.py": "", "work/main.py": PRELUDE + textwrap.dedent(code)})
    return Project("flow", str(root), "work.main")
