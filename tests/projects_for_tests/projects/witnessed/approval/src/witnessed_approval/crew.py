import os

from crewai import LLM, Agent, Crew, Process, Task
from crewai.project import CrewBase, agent, crew, task


def texts(step: int) -> dict[str, str]:
    mark = f"[[run={{run}} step={step} seconds={{seconds}} hold={{hold}}]]"
    return {"description": f"{mark} Describe the sea.", "expected_output": "A sentence."}


@CrewBase
class WitnessedApproval:
    agents_config = {}
    tasks_config = {}

    @agent
    def sailor(self) -> Agent:
        model = LLM(model="openai/gpt-4o-mini", seed=os.getpid())
        return Agent(role="sailor", goal="describe", backstory="has seen it", llm=model)

    @task
    def first(self) -> Task:
        return Task(**texts(1), agent=self.sailor())

    @task
    def second(self) -> Task:
        return Task(**texts(2), agent=self.sailor(), human_input=True)

    @task
    def third(self) -> Task:
        return Task(**texts(3), agent=self.sailor(), human_input=True)

    @crew
    def crew(self) -> Crew:
        return Crew(agents=self.agents, tasks=self.tasks, process=Process.sequential)
