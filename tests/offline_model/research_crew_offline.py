"""Runs the example crew with the real crewai and prints what came of it; started as a process of its own."""

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def main() -> None:
    contacted: set[str] = set()
    sys.addaudithook(lambda event, details: _note_contact(event, details, contacted))
    sys.path.insert(0, str(ROOT / "examples/research_crew/src"))
    from crewai.events import ToolUsageFinishedEvent, crewai_event_bus  # noqa: PLC0415 - the hook has to come first
    from research_crew.crew import ResearchCrew  # type: ignore[import-not-found]  # noqa: PLC0415 - as above

    tools: list[str] = []
    crewai_event_bus.register_handler(ToolUsageFinishedEvent, lambda _, event: tools.append(event.tool_name))
    result = ResearchCrew().crew().kickoff(inputs={"topic": "tea", "audience": "new waiters"})
    crewai_event_bus.flush()
    outputs = {task.name: task.raw for task in result.tasks_output}
    used = result.token_usage.total_tokens
    print(json.dumps({"outputs": outputs, "tools": tools, "contacted": sorted(contacted), "used": used}))


def _note_contact(event: str, details: tuple[Any, ...], contacted: set[str]) -> None:
    if event == "socket.getaddrinfo":
        contacted.add(str(details[0]))
    elif event in ("socket.connect", "socket.sendto") and isinstance(details[1], tuple):
        contacted.add(str(details[1][0]))


if __name__ == "__main__":
    main()
