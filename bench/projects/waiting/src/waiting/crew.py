import os
import time

from crewai import LLM, Agent, BaseLLM, Crew, Task
from crewai.project import CrewBase, agent, before_kickoff, crew, task


class Silent(BaseLLM):
    """A model in this process that does not answer."""

    def call(self, messages, *arguments, **named):
        print("asked", flush=True)
        while True:
            time.sleep(3600)

    def supports_function_calling(self):
        return False

    def get_context_window_size(self):
        return 8192


@CrewBase
class Waiting:
    """Waits in its first model call: in this process, or, where OPENAI_BASE_URL is set, in a call of OpenAI's client."""

    agents_config = None
    tasks_config = None

    @before_kickoff
    def tell(self, inputs):
        print(f"process {os.getpid()}", flush=True)
        return inputs

    @agent
    def clerk(self) -> Agent:
        llm = LLM(model="openai/gpt-4o-mini") if os.environ.get("OPENAI_BASE_URL") else Silent(model="silent")
        return Agent(role="Clerk", goal="Answer", backstory="Brief.", llm=llm)

    @task
    def answer(self) -> Task:
        return Task(description="Say hello.", expected_output="A greeting.", agent=self.clerk())

    @crew
    def crew(self) -> Crew:
        return Crew(agents=self.agents, tasks=self.tasks)
