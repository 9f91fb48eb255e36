"""A flow that sorts a support ticket, and lets an agent answer it if it is not urgent."""

from crewai import Agent
from crewai.flow.flow import Flow, listen, router, start
from pydantic import BaseModel

URGENT = ("down", "lost", "hacked", "refund")


class Ticket(BaseModel):
    subject: str = ""
    text: str = ""
    customer: str = "the customer"
    answer: str = ""


class TriageFlow(Flow[Ticket]):
    @start()
    def read(self) -> str:
        return f"{self.state.subject}\n{self.state.text}".strip()

    @router(read)
    def sort(self, ticket: str) -> str:
        return "urgent" if any(word in ticket.lower() for word in URGENT) else "normal"

    @listen("urgent")
    def page_a_person(self) -> dict[str, str]:
        return {"queue": "on call", "subject": self.state.subject}

    @listen("normal")
    def answer(self) -> dict[str, str]:
        agent = Agent(
            role="Support engineer",
            goal="Answer tickets in a few friendly sentences",
            backstory="You know the product and you never promise a date.",
        )
        self.state.answer = agent.kickoff(f"Answer {self.state.customer}: {self.state.text}").raw
        return {"queue": "answered", "answer": self.state.answer}


def kickoff() -> None:
    TriageFlow().kickoff(inputs={"subject": "Printing", "text": "How do I print a page?"})
