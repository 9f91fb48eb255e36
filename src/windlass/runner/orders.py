from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from windlass.kickoffs.limits import Limits
from windlass_crewside.messages import Message, Project

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class RunOrder:
    """One attempt of one kickoff.

    `preload` is the framework that its zygote imports first, or None; with `preload_project` it imports the project's
    own modules too, in its environment. `start` is "fork", or "exec" for a fresh interpreter. `seconds_left` is what is
    left of `limits.timeout`, which counts from the first attempt's start. `alone` gives it a zygote that no other run
    shares.
    """

    kickoff_id: str
    attempt: int
    interpreter: Path
    preload: str | None
    project: Project
    environment: Mapping[str, str] = field(repr=False)
    inputs: dict[str, Any] = field(repr=False)
    limits: Limits = field(default_factory=Limits)
    seconds_left: float | None = None
    preload_project: bool = False
    start: Literal["fork", "exec"] = "fork"
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Output:
    """A line that the crew's process wrote, without its end. `at` is Unix time in seconds."""

    stream: Literal["stdout", "stderr"]
    line: str
    at: float


@dataclass(frozen=True, slots=True)
class Preparing:
    """What a run waits for before its process starts: "zygote" while one is being started, None when it goes on."""

    what: Literal["zygote"] | None


Report = Callable[[Message | Output | Preparing], Awaitable[None]]
"""Called with what happens in a run. Awaited before more of the same (messages, stdout, stderr) is read."""
