import json
import time

from crewai import Agent, BaseLLM, Crew, Task

from windlass_child.process.report import Report

TASKS = 20
THINKING = 0.02
"""Seconds, far less than a model needs: what the server does beside the run is done by then, as it is in real ones."""


class Quick(BaseLLM):
    """A model in this process."""

    def call(self, messages, *arguments, **named):
        time.sleep(THINKING)
        return "Thought: I know\nFinal Answer: done"

    def supports_function_calling(self):
        return False

    def get_context_window_size(self):
        return 8192


def run(journaled: bool) -> str:
    """The seconds of each task of a crew, as JSON."""
    if not journaled:
        Report.finished = lambda *_, **__: True
    clerk = Agent(role="Clerk", goal="Answer", backstory="Brief.", llm=Quick(model="quick"))
    ends = [time.perf_counter()]
    note = lambda _: ends.append(time.perf_counter())  # noqa: E731 - crewai wants a callable with one argument
    tasks = [
        Task(description=f"Say {number}.", expected_output="A word.", agent=clerk, callback=note, context=[])
        for number in range(TASKS)
    ]
    Crew(agents=[clerk], tasks=tasks).kickoff()
    return json.dumps([after - before for before, after in zip(ends[1:], ends[2:])])
