from crewai import Agent, Crew, Process, Task
from crewai.agents.agent_builder.base_agent import BaseAgent
from crewai.project import CrewBase, agent, crew, task

from research_crew.tools.look_up_notes import LookUpNotes


@CrewBase
class ResearchCrew:
    agents_config = "config/agents.yaml"
    tasks_config = "config/tasks.yaml"

    agents: list[BaseAgent]
    tasks: list[Task]

    @agent
    def researcher(self) -> Agent:
        return Agent(config=self.agents_config["researcher"], tools=[LookUpNotes()])

    @agent
    def writer(self) -> Agent:
        return Agent(config=self.agents_config["writer"])

    @agent
    def editor(self) -> Agent:
        return Agent(config=self.agents_config["editor"])

    @task
    def find_facts(self) -> Task:
        return Task(config=self.tasks_config["find_facts"])

    @task
    def write_brief(self) -> Task:
        return Task(config=self.tasks_config["write_brief"])

    @task
    def check_brief(self) -> Task:
        return Task(config=self.tasks_config["check_brief"])

    @crew
    def crew(self) -> Crew:
        return Crew(agents=self.agents, tasks=self.tasks, process=Process.sequential)
