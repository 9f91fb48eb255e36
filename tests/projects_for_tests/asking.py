"""Crews and flows that ask a person, in each way to run them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from projects_for_tests.crews import flow_project
from projects_for_tests.interrupted import MODEL, Kickoff, kickoff_of_function
from windlass_child.protocol.messages import Asked, Failed, Inspected, Project, Succeeded

if TYPE_CHECKING:
    from pathlib import Path

    from projects_for_tests.driver import DrivenZygote

MODES = {
    "kickoff": "crew().kickoff()",
    "for each": "crew().kickoff_for_each([{}])[0]",
    "akickoff": "asyncio.run(crew().akickoff())",
    "kickoff_async": "asyncio.run(crew().kickoff_async())",
    "stream": "results_of(crew(stream=True).kickoff())",
    "async task": "crew(async_execution=True).kickoff()",
    "async task last": "crew(async_execution=True, names='ab').kickoff()",
    "akickoff of an async task": "asyncio.run(crew(async_execution=True).akickoff())",
    "max_execution_time": "crew(agent=one(max_execution_time=60)).kickoff()",
    "akickoff with max_execution_time": "asyncio.run(crew(agent=one(max_execution_time=60)).akickoff())",
    "hierarchical": "crew(manager_llm=Counted(model='counted'), process='hierarchical').kickoff()",
    "in a thread": "ThreadPoolExecutor(1).submit(crew().kickoff).result()",
    "in a task": "Crew(agents=[one()], tasks=[Task(name='o', description='[o]', expected_output='x', agent=one(), "
    "guardrail=lambda output: (True, str(crew().kickoff())))]).kickoff()",
}
"""The ways to run a crew whose second of three tasks asks a person."""

WAYS = """
from concurrent.futures import ThreadPoolExecutor


def crew(agent=None, async_execution=False, names="abc", **fields):
    agent = agent or one()
    asks = {"b": {"human_input": True, "async_execution": async_execution}}
    return Crew(agents=[agent], tasks=[step(name, agent, **asks.get(name, {})) for name in names], **fields)


def results_of(stream):
    for _ in stream:
        pass
    return stream.result
"""


def kickoff_in(zygote: DrivenZygote, folder: Path, mode: str, max_execution_time: int = 60) -> Kickoff:
    run = MODES[mode].replace("max_execution_time=60", f"max_execution_time={max_execution_time}")
    return kickoff_of_function(zygote, folder, f"{WAYS}\n\ndef run():\n    return str({run})\n")


def answered(kickoff: Kickoff, *answers: str) -> Succeeded | Failed | Inspected:
    """Answers the questions of a kickoff, in another attempt or in the same one. Returns how it ended."""
    child, number = kickoff.attempt(), 0
    for words in answers:
        one = kickoff.next_of(child, number)
        if not isinstance(one, Asked):
            return one
        if one.waits:
            kickoff.answer(one, words)
            number += 1
        else:
            kickoff.answer(kickoff.asked(child), words)
            child, number = kickoff.attempt(), 0
    return child.answer()


BASE = '''
from datetime import datetime
from pydantic import BaseModel
from crewai.flow.human_feedback import human_feedback


class Base(Flow):
    _skip_auto_memory = True


def run_step(step):
    """One call of the model."""
    return Counted(model="counted").call(f"[{step}]").partition("Final Answer: ")[2]
'''

REVIEW = """
class Review(Base):
    @start()
    def plan(self):
        self.state["seen"] = ["plan"]
        return run_step("plan")

    @listen(plan)
    @human_feedback(message="Publish this?", emit=["approved", "not_approved"], llm=Counted(model="counted"))
    def draft(self, planned):
        self.state["seen"].append("draft")
        return {"text": run_step("draft"), "at": datetime(2026, 1, 2)}

    @listen("approved")
    def publish(self, result):
        return ["published", result.output["text"], result.output["at"].year, self.state["seen"], result.feedback]

    @listen("not_approved")
    def discard(self, result):
        return ["discarded", result.feedback]
"""

ROUNDS = """
class State(BaseModel):
    rounds: int = 0


class Rounds(Flow[State]):
    _skip_auto_memory = True

    @start()
    def begin(self):
        return run_step("begin")

    @listen(or_(begin, "again"))
    @human_feedback(message="Well?", emit=["again", "done"], llm=Counted(model="counted"))
    def judge(self):
        self.state.rounds += 1
        return run_step(f"round{self.state.rounds}")

    @listen("done")
    def end(self, result):
        return [self.state.rounds, result.output]
"""

BOTH = """
class Both(Base):
    @start()
    @human_feedback(message="Left?")
    async def left(self):
        return run_step("left")

    @start()
    @human_feedback(message="Right?")
    def right(self):
        return run_step("right")

    @listen(and_(left, right))
    def join(self):
        return {one.method_name: one.feedback for one in sorted(self.human_feedback_history, key=str)}
"""

ASKS = """
class Asks(Base):
    @start()
    def begin(self):
        harbour = self.ask("Which harbour?")
        return f"{harbour} at {self.ask(f'When at {harbour}?')}"
"""

NESTED = """
class Nested(Base):
    @start()
    def plan(self):
        return run_step("plan")

    @listen(plan)
    async def work(self):
        agent = one()
        crew = Crew(agents=[agent], tasks=[step("a", agent), step("b", agent, human_input=True)])
        return str(await crew.akickoff())
"""


def kickoff_of_flow(zygote: DrivenZygote, folder: Path, code: str) -> Kickoff:
    project = flow_project(folder / "project", MODEL + BASE + code)
    return Kickoff(zygote, Project("flow", str(project), "main"), folder)
