from crewai import Agent, Crew, Process, Task
from crewai.agents.agent_builder.base_agent import BaseAgent
from crewai.project import CrewBase, agent, crew, task

from rotation_verifier.tools.fingerprint import Fingerprint


@CrewBase
class RotationVerifier:
    agents_config = "config/agents.yaml"
    tasks_config = "config/tasks.yaml"

    agents: list[BaseAgent]
    tasks: list[Task]

    @agent
    def operator(self) -> Agent:
        return Agent(config=self.agents_config["operator"], tools=[Fingerprint()])

    @task
    def report(self) -> Task:
        return Task(config=self.tasks_config["report"])

    @crew
    def crew(self) -> Crew:
        return Crew(agents=self.agents, tasks=self.tasks, process=Process.sequential)
