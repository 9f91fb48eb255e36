import json
import os
import urllib.request

from crewai import LLM, Agent, Crew, Task
from crewai.flow.flow import Flow, listen, start
from pydantic import BaseModel


class Voyage(BaseModel):
    run: str = ""
    seconds: float = 0
    hold: int = 0
    told: list[str] = []


def prompt(voyage: Voyage, step: int) -> str:
    return f"[[run={voyage.run} step={step} seconds={voyage.seconds} hold={voyage.hold}]] Tell of the sea."


def ask(voyage: Voyage, step: int) -> str:
    messages = [{"role": "user", "content": prompt(voyage, step)}]
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps({"model": "any", "seed": os.getpid(), "messages": messages}).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]


def crew_of(voyage: Voyage) -> Crew:
    model = LLM(model="openai/gpt-4o-mini", seed=os.getpid())
    sailor = Agent(role="sailor", goal="tell", backstory="has seen it", llm=model)
    tasks = [Task(description=prompt(voyage, step), expected_output="A sentence.", agent=sailor) for step in (2, 3)]
    return Crew(agents=[sailor], tasks=tasks)


class WitnessedFlow(Flow[Voyage]):
    _skip_auto_memory = True  # crewai would import pyarrow and lancedb in each run

    @start()
    def set_sail(self) -> str:
        self.state.told.append(ask(self.state, 1))
        return self.state.told[-1]

    @listen(set_sail)
    def ask_the_crew(self) -> str:
        self.state.told.append(crew_of(self.state).kickoff().raw)
        return self.state.told[-1]

    @listen(ask_the_crew)
    def come_home(self) -> str:
        self.state.told.append(ask(self.state, 4))
        return " ".join(self.state.told)
