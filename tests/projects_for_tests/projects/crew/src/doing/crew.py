from crewai import Agent, Crew, Process, Task
from crewai.project import CrewBase, after_kickoff, agent, before_kickoff, crew, task

from . import deeds
from .model import Parrot


@CrewBase
class Doing:
    agents_config = "config/agents.yaml"
    tasks_config = "config/tasks.yaml"

    @before_kickoff
    def begin(self, inputs):
        self.done = deeds.do(inputs)
        inputs["topic"] = "parrots"
        return inputs

    @after_kickoff
    def end(self, result):
        return self.done if self.done is not None else result

    @agent
    def speaker(self) -> Agent:
        return Agent(config=self.agents_config["speaker"], llm=Parrot(model="parrot"))

    @task
    def speak(self) -> Task:
        return Task(config=self.tasks_config["speak"])

    @task
    def speak_again(self) -> Task:
        return Task(config=self.tasks_config["speak_again"])

    @crew
    def crew(self) -> Crew:
        return Crew(agents=self.agents, tasks=self.tasks, process=Process.sequential)
