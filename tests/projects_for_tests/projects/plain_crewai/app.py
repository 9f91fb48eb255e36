"""Crews and flows that run in plain crewai (`python app.py`) and in kickoffs.

CASES has them by name. Each run writes the events of crewai, and what the code of the project sees, to the file RECORD.
"""

import asyncio
import json
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context

from crewai import Agent, BaseLLM, Crew, Process, Task
from crewai.events.event_bus import crewai_event_bus
from crewai.events.types.task_events import TaskCompletedEvent
from crewai.flow.flow import Flow, and_, listen, or_, router, start
from crewai.flow.persistence import persist
from crewai.project import CrewBase, after_kickoff, agent, before_kickoff, crew, task
from crewai.tasks.conditional_task import ConditionalTask
from crewai.tools import tool
from pydantic import BaseModel



def note(kind, text):
    descriptor = os.open(os.environ["RECORD"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, (json.dumps([kind, text]) + "\n").encode())
    os.close(descriptor)


emit = crewai_event_bus.emit


def noted(source, event, *arguments, **named):
    internal = event.type.startswith("flow_") and getattr(type(source), "is_crewai_internal", False)
    note("internal" if internal else "event", event.type)
    return emit(source, event, *arguments, **named)


crewai_event_bus.emit = noted


class Model(BaseLLM):
    """Answers from a script. The marks in prompts are words in square brackets."""

    def call(self, messages, *arguments, **named):
        text = messages if isinstance(messages, str) else "\n".join(str(one["content"]) for one in messages)
        note("model", type(self).__name__)
        return self.reply(text)

    def reply(self, text):
        return final(text.split("[")[-1].split("]")[0])

    def supports_function_calling(self):
        return False

    def supports_stop_words(self):
        return True

    def get_context_window_size(self):
        return 100_000


def final(text):
    return f"Thought: I know\nFinal Answer: {text}"


def act(name, **arguments):
    return f"Thought: I use it\nAction: {name}\nAction Input: {json.dumps(arguments)}"


def model(reply=None):
    kind = Model if reply is None else type("Scripted", (Model,), {"reply": staticmethod(reply)})
    return kind(model="gpt-4o-mini")


def using(name, **arguments):
    """Uses the tool once, and answers with what it gave. Results of tools begin with `seen`."""
    return model(lambda text: final(text[text.rindex("seen ") :].split("\n")[0]) if "seen " in text else act(name, **arguments))


def worker(llm=None, **fields):
    return Agent(**{"role": "worker", "goal": "work", "backstory": "none", "llm": llm or model(), "max_iter": 4} | fields)


def step(name, one, **fields):
    return Task(**{"name": name, "description": f"Do [{name}]", "expected_output": "Words", "agent": one} | fields)


def team(*tasks, **fields):
    agents = list({id(one.agent): one.agent for one in tasks if one.agent}.values())
    return Crew(**{"agents": agents, "tasks": list(tasks), "name": "team"} | fields)


CASES = {}


def case(kind, **about):
    def add(made):
        CASES[made.__name__] = (kind, made, about)
        return made

    return add


# crews


@tool("later")
async def later(text: str) -> str:
    """Looks later."""
    await asyncio.sleep(0)
    note("tool", text)
    return f"seen {text}"


@case("crew")
def async_tool():
    return team(step("a", worker(using("later", text="x"), tools=[later])))


@tool("own_loop")
def own_loop(text: str) -> str:
    """Runs an event loop."""

    async def look():
        await asyncio.sleep(0)
        return text

    note("tool", "loop" if has_loop() else "no loop")
    return f"seen {asyncio.run(look())}"


def has_loop():
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@case("crew")
def asyncio_run_in_a_tool():
    one = worker(using("own_loop", text="x"), tools=[own_loop])
    return team(step("a", one), step("b", one, context=[]))


SET = ContextVar("set", default="default")
LOCAL = threading.local()


@tool("in_threads")
def in_threads(text: str) -> str:
    """Looks in threads."""
    found = []
    thread = threading.Thread(target=lambda: found.append(SET.get()))
    thread.start()
    thread.join()
    with ThreadPoolExecutor(1) as pool:
        found.append(pool.submit(SET.get).result())
        found.append(pool.submit(copy_context().run, SET.get).result())
    local = getattr(LOCAL, "text", None)
    LOCAL.text = text
    note("tool", [SET.get(), *found, local])
    SET.set("of the tool")
    return f"seen {found}"


@case("crew")
def threads_and_context_variables():
    SET.set("of the module")
    one = worker(using("in_threads", text="x"), tools=[in_threads])
    return team(step("a", one), step("b", one, context=[]))


@case("crew")
def listeners_and_callbacks():
    @crewai_event_bus.on(TaskCompletedEvent)
    def heard(source, event):
        if os.environ["RECORD"].endswith("listeners_and_callbacks"):
            note("heard", event.output.raw)

    one = worker(using("later", text="x"), tools=[later], step_callback=lambda made: note("step", type(made).__name__))
    return team(
        step("a", one, callback=lambda output: note("callback", output.raw)),
        step("b", worker()),
        task_callback=lambda output: note("of the crew", output.raw),
    )


class Streams(Model):
    def reply(self, text):
        for part in ("Final ", "Answer"):
            if hasattr(self, "_emit_stream_chunk_event"):
                self._emit_stream_chunk_event(part)
        return final("streamed")


@case("crew")
def streaming():
    more = {"stream": True} if "stream" in Crew.model_fields else {}
    return team(step("a", worker(Streams(model="gpt-4o-mini"))), step("b", worker()), **more)


@case("crew")
def guardrail():
    tried = []

    def check(output):
        tried.append(output.raw)
        note("guardrail", len(tried))
        return (True, "accepted " + output.raw) if len(tried) > 1 else (False, "once more [again]")

    return team(step("a", worker(), guardrail=check), step("b", worker()))


@case("crew")
def guardrail_that_never_passes():
    return team(step("a", worker(), guardrail=lambda output: (False, "no"), **retries(1)))


def retries(count):
    name = "guardrail_max_retries" if "guardrail_max_retries" in Task.model_fields else "max_retries"
    return {name: count}


def manage(text):
    if "written by" in text:
        return final("the worker wrote")
    return act("Delegate work to coworker", task="Write", context="none", coworker="writer")


@case("crew")
def hierarchical():
    writer = worker(model(lambda text: final("written by the writer")), role="writer")
    todo = Task(name="a", description="Have it written", expected_output="Words")
    return Crew(agents=[writer], tasks=[todo], process=Process.hierarchical, manager_llm=model(manage), name="team")


def ask(text):
    if "blue" in text:
        return final("it is blue")
    return act("Ask question to coworker", question="Which colour?", context="none", coworker="expert")


@case("crew")
def delegation():
    expert = worker(model(lambda text: final("blue")), role="expert")
    asks = worker(model(ask), role="asker", allow_delegation=True)
    return team(step("a", asks), agents=[asks, expert])


@case("crew")
def knowledge():
    from crewai.knowledge.source.string_knowledge_source import StringKnowledgeSource

    def answer(text):
        note("knows", "Parrots talk." in text)
        return final("Which bird?")

    facts = StringKnowledgeSource(content="Parrots talk.")
    return team(step("a", worker(model(answer))), knowledge_sources=[facts])


@case("crew")
def memory():
    try:
        from crewai import Memory
    except ImportError:  # an older release
        return team(step("a", worker()), step("b", worker()), memory=True)
    return team(step("a", worker()), step("b", worker()), memory=Memory(llm=model()))


@case("crew")
def conditional():
    one = worker()
    maybe = {"description": "Do [maybe]", "expected_output": "Words", "agent": one}
    return team(
        step("a", one),
        ConditionalTask(name="skipped", condition=lambda output: output.raw == "b", **maybe),
        ConditionalTask(name="run", condition=lambda output: note("asked", output.raw) or True, **maybe),
    )


@case("crew")
def human_input():
    return team(step("a", worker(), human_input=True))


class Bird(BaseModel):
    name: str
    talks: bool


@case("crew")
def output_pydantic():
    llm = model(lambda text: final('{"name": "parrot", "talks": true}'))
    return team(step("a", worker(llm), output_pydantic=Bird))


@case("crew")
def output_file():
    return team(step("a", worker(), output_file="made/a.txt"), step("b", worker(), callback=read))


def read(output):
    note("file", open("made/a.txt").read())


def plan(text):
    if "[a]" in text and "plan" in text.lower() and "Do [a]" in text and "Words" in text and "list_of_plans" in text:
        return '{"list_of_plans_per_task": [{"task": "a", "plan": "think", "task_number": 1}]}'
    return final("planned")


@case("crew")
def planning():
    return team(step("a", worker()), planning=True, planning_llm=model(plan))


@case("crew")
def async_tasks():
    one, other = worker(), worker(role="other")
    return team(step("a", one, async_execution=True), step("b", other, async_execution=True), step("c", one))


@case("crew")
def a_model_that_fails():
    def fail(text):
        raise ValueError("the model is out")

    return team(step("a", worker(model(fail), max_retry_limit=0)))


@CrewBase
class Prepared:
    agents_config = None
    tasks_config = None

    @before_kickoff
    def prepare(self, inputs):
        note("before", inputs.get("topic"))
        return {**inputs, "more": "milk"}

    @after_kickoff
    def end(self, result):
        note("after", result.raw)
        return result

    @agent
    def one(self):
        return worker()

    @task
    def only(self):
        return step("only", self.one(), description="About {topic} and [{more}]")

    @crew
    def crew(self):
        return Crew(agents=self.agents, tasks=self.tasks, name="team")


CASES["Prepared"] = ("crew", Prepared, {"inputs": {"topic": "tea"}})


# functions


@case("function")
def each():
    one = worker()
    made = team(step("a", one, description="About [{topic}]"))
    return [output.raw for output in made.kickoff_for_each(inputs=[{"topic": "tea"}, {"topic": "milk"}])]


@case("function")
def async_kickoffs():
    async def both():
        made = [team(step(name, worker())) for name in ("a", "b")]
        return [output.raw for output in await asyncio.gather(*(one.kickoff_async() for one in made))]

    return asyncio.run(both())


@case("function")
def crews_in_threads():
    with ThreadPoolExecutor(2) as pool:
        outputs = pool.map(lambda name: team(step(name, worker())).kickoff().raw, ("a", "b"))
        return list(outputs)


# flows


@case("flow")
class Routed(Flow):
    _skip_auto_memory = True

    @start()
    def first(self):
        self.state["rounds"] = 0
        return "first"

    @router(or_(first, "again"))
    def choose(self):
        self.state["rounds"] += 1
        return "again" if self.state["rounds"] < 3 else "enough"

    @listen("enough")
    def last(self):
        note("rounds", self.state["rounds"])
        return team(step("a", worker())).kickoff().raw


@case("flow")
class Joined(Flow):
    _skip_auto_memory = True

    @start()
    def one(self):
        return "one"

    @listen(one)
    async def two(self, before):
        await asyncio.sleep(0)
        return before + " two"

    @listen(and_(one, two))
    def three(self):
        note("outputs", [str(output.get("output") if isinstance(output, dict) else output) for output in self.method_outputs])
        return "three"

    @listen(or_(three, "never"))
    def four(self, before):
        return before + " four"


@case("flow")
class Failing(Flow):
    _skip_auto_memory = True

    @start()
    def first(self):
        return "first"

    @listen(first)
    def second(self):
        raise LookupError("nothing is there")


class Counted(BaseModel):
    id: str = "kept"
    count: int = 0


@persist()
@case("flow")
class Kept(Flow[Counted]):
    _skip_auto_memory = True

    @start()
    def add(self):
        self.state.count += 1
        return self.state.count

    @listen(add)
    def show(self, count):
        return f"{count} {type(self.state).__name__}"


def run_plainly(kind, made, about):
    """Runs one as its own script does."""
    inputs = about.get("inputs", {})
    try:
        if kind == "function":
            return {"result": made()}
        if kind == "flow":
            return {"result": str(made().kickoff())}
        built = made().crew() if isinstance(made, type) else made()
        output = built.kickoff(inputs=inputs)
        if type(output).__name__ == "CrewStreamingOutput":
            for _ in output:
                pass
            output = output.result
        return {"result": output.raw, "model": output.pydantic and output.pydantic.model_dump()}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    folder = os.environ["RECORD"]
    for name, (kind, made, about) in CASES.items():
        os.environ["RECORD"] = os.path.join(folder, name)
        began = time.process_time()
        found = copy_context().run(run_plainly, kind, made, about)
        if hasattr(crewai_event_bus, "flush"):
            crewai_event_bus.flush(30)
        found |= {"kind": kind, "inputs": about.get("inputs", {}), "seconds": time.process_time() - began}
        with open(os.path.join(folder, f"{name}.json"), "w") as file:
            json.dump(found, file)
    sys.stdout.flush()
    os._exit(0)
