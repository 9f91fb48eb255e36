import os
import re
import subprocess
import time
from pathlib import Path

from crewai import Agent, BaseLLM, Crew, Task
from crewai.project import CrewBase, agent, before_kickoff, crew, task
from crewai.tools import tool

ORDER = {"tool": "be_short", "place": ""}


def tell(*pids):
    """To who measures: which processes there are, once it works."""
    place = Path(ORDER["place"])
    whole = place.with_suffix(".part")
    whole.write_text(" ".join(map(str, pids)))
    whole.rename(place)


@tool("be_short")
def be_short(number: int) -> str:
    """Works for a short time."""
    tell(os.getpid())
    time.sleep(0.1)
    return f"worked {number} times"


@tool("block_in_c")
def block_in_c(number: int) -> str:
    """Starts a program, and never comes back from a C function, which lets no other thread run."""
    tell(os.getpid(), subprocess.Popen(["sleep", "600"], start_new_session=True).pid)
    re.match(r"(a+)+$", "a" * 64 + "b")
    return "never"


class Caller(BaseLLM):
    """A model in this process that asks for one tool, again and again."""

    def call(self, messages, *arguments, **named):
        self._calls = getattr(self, "_calls", 0) + 1
        return f'Thought: once more\nAction: {ORDER["tool"]}\nAction Input: {{"number": {self._calls}}}'

    def supports_function_calling(self):
        return False

    def get_context_window_size(self):
        return 1_000_000


@CrewBase
class Stoppable:
    agents_config = None
    tasks_config = None

    @before_kickoff
    def take(self, inputs):
        ORDER.update(inputs)
        return inputs

    @agent
    def worker(self) -> Agent:
        llm, tools = Caller(model="caller"), [be_short, block_in_c]
        return Agent(role="Worker", goal="Work", backstory="Busy.", llm=llm, tools=tools, max_iter=10_000)

    @task
    def work(self) -> Task:
        return Task(description="Work.", expected_output="Work.", agent=self.worker())

    @crew
    def crew(self) -> Crew:
        return Crew(agents=self.agents, tasks=self.tasks)
