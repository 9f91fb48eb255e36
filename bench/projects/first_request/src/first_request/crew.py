from crewai import Agent, Crew, Task
from crewai.project import CrewBase, agent, crew, task


@CrewBase
class FirstRequest:
    agents_config = None
    tasks_config = None

    @agent
    def clerk(self) -> Agent:
        return Agent(role="Clerk", goal="Answer", backstory="Brief.")

    @task
    def answer(self) -> Task:
        return Task(description="Say hello.", expected_output="A greeting.", agent=self.clerk())

    @crew
    def crew(self) -> Crew:
        return Crew(agents=self.agents, tasks=self.tasks)
