from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from windlass.errors import WindlassError
from windlass.kickoffs.limits import Limits
from windlass_crewside.frames import encode
from windlass_crewside.messages import Budget, Inspect, Message, Project, Remember, Run

if TYPE_CHECKING:
    from pathlib import Path

    from windlass_crewside.messages import Surroundings


@dataclass(frozen=True, slots=True)
class RunOrder:
    """One attempt of one kickoff.

    `preload` is the framework that its zygote imports first, or None; with `preload_project` it imports the project's
    own modules too, in its environment, and `digest` says in which state of its files. `start` is "fork", or "exec" for
    a fresh interpreter. `seconds_left` is what is left of `limits.timeout`, which counts from the first attempt's
    start. `alone` gives it a zygote that no other run shares. `lease` is the second of CLOCK_BOOTTIME until which it
    may go on unless its Tether is told a later one, None for no lease. `journal` is what earlier attempts have
    finished, in the order of its numbers; `tokens_used` and `model_calls_made` are theirs, and count against the
    limits.
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
    digest: str = ""
    start: Literal["fork", "exec"] = "fork"
    alone: bool = False
    lease: float | None = None
    journal: Sequence[Remember] = field(default=(), repr=False)
    tokens_used: int = 0
    model_calls_made: int = 0


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


def message_of(order: RunOrder, surroundings: Surroundings) -> Run:
    limits = order.limits
    budget = Budget(
        limits.token_limit, limits.model_call_limit, limits.result_limit, order.tokens_used, order.model_calls_made
    )
    return Run(order.kickoff_id, order.attempt, order.project, surroundings, order.inputs, budget)


def sendable(order: Run | Inspect) -> bytes:
    try:
        return encode(order)
    except (ValueError, TypeError, RecursionError) as error:
        raise WindlassError(f"the inputs can't be given to the crew: {error}.") from error


async def unheard(_: Message | Output | Preparing) -> None:
    pass
