from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windlass.runner.account import CrewAccount


@dataclass(frozen=True, slots=True)
class Ways:
    """How a runner treats its processes.

    `grace` is how many seconds a run has to end once it was asked to. A zygote that nobody used for `zygote_idle`
    seconds is stopped; all of them may hold `zygote_memory` bytes. `tasks` is how many processes and threads the user
    that crews run as may have beside those that are there. `crew_account` is that user, None for our own.
    """

    grace: float = 5.0
    zygote_idle: float = 600.0
    zygote_memory: int | None = None
    tasks: int | None = None
    crew_account: CrewAccount | None = None
