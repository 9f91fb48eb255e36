from crewai import Agent, BaseLLM, Crew, Process, Task
from crewai.project import CrewBase, agent, crew, task


class Instant(BaseLLM):
    """A model in this process that answers at once."""

    def call(self, messages, *arguments, **named):
        return "Thought: I know\nFinal Answer: done"

    def supports_function_calling(self):
        return False

    def get_context_window_size(self):
        return 8192


@CrewBase
class ThreeTasks:
    agents_config = "config/agents.yaml"
    tasks_config = "config/tasks.yaml"

    @agent
    def clerk(self) -> Agent:
        return Agent(config=self.agents_config["clerk"], llm=Instant(model="instant"))

    @task
    def find(self) -> Task:
        return Task(config=self.tasks_config["find"], agent=self.clerk())

    @task
    def write(self) -> Task:
        return Task(config=self.tasks_config["write"], agent=self.clerk())

    @task
    def check(self) -> Task:
        return Task(config=self.tasks_config["check"], agent=self.clerk())

    @crew
    def crew(self) -> Crew:
        return Crew(agents=self.agents, tasks=self.tasks, process=Process.sequential)
