from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from windlass_crewside.messages import Message, Project

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class RunOrder:
    """One attempt of one kickoff. `preload` is what its zygote imports first: "crewai", or None for nothing."""

    kickoff_id: str
    attempt: int
    interpreter: Path
    preload: str | None
    project: Project
    environment: Mapping[str, str] = field(repr=False)
    inputs: dict[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Output:
    """A line that the crew's process wrote, without its end. `at` is Unix time in seconds."""

    stream: Literal["stdout", "stderr"]
    line: str
    at: float


Report = Callable[[Message | Output], Awaitable[None]]
"""Called with what happens in a run. Awaited before more of the same (messages, stdout, stderr) is read."""
