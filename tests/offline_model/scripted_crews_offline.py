"""Runs crews of the real crewai on the offline model and prints what came of them; started as a process of its own."""

from __future__ import annotations

import itertools
import json
from typing import Any

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool
from pydantic import BaseModel

looked_up: list[str] = []


class Page(BaseModel):
    title: str
    words: int


@tool("look_up")  # type: ignore[untyped-decorator]
def look_up(topic: str) -> str:
    """Looks up a topic in the notes."""
    looked_up.append(topic)
    return f"notes on {topic}"


def main() -> None:
    for stream, structured in itertools.product((False, True), (False, True)):
        told = {"stream": stream, "structured": structured, **outcome(stream=stream, structured=structured)}
        print("CREW", json.dumps(told), flush=True)


def outcome(*, stream: bool, structured: bool) -> dict[str, Any]:
    looked_up.clear()
    finder = Agent(
        role="Finder",
        goal="Find facts",
        backstory="Reads notes.",
        tools=[look_up],
        llm=LLM(model="gpt-4o-mini", stream=stream),
    )
    wanted = {"output_pydantic": Page} if structured else {}
    task = Task(description="Find facts about tea.", expected_output="Facts", agent=finder, **wanted)
    result = Crew(agents=[finder], tasks=[task]).kickoff()
    page = result.pydantic.model_dump() if result.pydantic else None
    return {"looked_up": list(looked_up), "raw": result.raw, "page": page}


if __name__ == "__main__":
    main()
