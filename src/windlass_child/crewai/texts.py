"""Warns of parts of a crew that crewai accepts, and that do not do what their author meant."""

from __future__ import annotations

import re
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from windlass_child.crewai.inputs import AGENT_FIELDS, PLACEHOLDER, TASK_FIELDS
from windlass_child.protocol.messages import Warned

if TYPE_CHECKING:
    from collections.abc import Iterator

LIKE_A_PLACEHOLDER = re.compile(r"\{\s*[^\W\d][\w-]*(?:\[[^][{}]{0,60}]|\.[^\W\d]\w*)*\s*}")
"""What people take for a placeholder: {topic}, { topic }, {n\u00famero}, {items[0].name}."""
MOST_NAMED = 5


def warnings(crew: Any) -> Iterator[Warned]:
    yield from islice(plain_texts(crew), MOST_NAMED)
    yield from islice(shared_agents(crew), MOST_NAMED)


def plain_texts(crew: Any) -> Iterator[Warned]:
    """Yields a warning for each text that looks like a placeholder and that crewai does not fill in."""
    tasks = ((number, task, f"the task {task.name or number + 1}") for number, task in enumerate(crew.tasks))
    agents = ((None, agent, f"the agent {agent.role.strip()}") for agent in crew.agents)
    seen: set[str] = set()
    for position, owner, called in chain(tasks, agents):
        for name in TASK_FIELDS if position is not None else AGENT_FIELDS:
            for found in LIKE_A_PLACEHOLDER.finditer(getattr(owner, name) or ""):
                if PLACEHOLDER.fullmatch(found[0]) or found[0] in seen:
                    continue
                seen.add(found[0])
                message = (
                    f"{found[0]} in the {name} of {called} is plain text, which no input replaces. A placeholder is "
                    "{name}: ASCII letters, digits, _ and -, without spaces, dots or indexes"
                )
                yield Warned("no_placeholder", message, position)


def without_model(crew: Any) -> Iterator[Warned]:
    """Yields a warning for each finished task whose output crewai could not convert to the model of the task.

    crewai keeps the text then, and raises nothing.
    """
    for position, task in enumerate(crew.tasks):
        output = task.output
        for option, made in (("output_pydantic", "pydantic"), ("output_json", "json_dict")):
            model = getattr(task, option, None)
            if model and output is not None and output.raw and getattr(output, made, None) is None:
                message = (
                    f"the output of the task {task.name or position + 1} is no {getattr(model, '__name__', model)} "
                    f"({option}): crewai could not convert it, and kept the text"
                )
                yield Warned("output_not_validated", message, position)


def shared_agents(crew: Any) -> Iterator[Warned]:
    """Yields a warning for each task that runs beside an earlier one with the same agent, which crewai refuses."""
    beside: dict[int, str] = {}
    for position, task in enumerate(crew.tasks):
        called = str(task.name or position + 1)
        if not task.async_execution:
            beside = {}
            continue
        other = beside.setdefault(id(task.agent), called)
        if task.agent is not None and other != called:
            message = (
                f"the tasks {other} and {called} run at the same time (async_execution) with the agent "
                f"{task.agent.role.strip()}. An agent does one task at a time: give each task an agent of its own"
            )
            yield Warned("shared_agent", message, position)
