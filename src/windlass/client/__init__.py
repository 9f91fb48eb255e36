"""Crews from Python (docs/client.md).

    with Crew("http://127.0.0.1:8000", "wlo_...") as crew:
        result = crew.run({"topic": "tides"})

What is said with a crew is in `talks.py`, as generators: they give the requests one after the other, and are given what
came of each. `lines.py` carries that out, over a sync and over an async HTTP client; Crew and AsyncCrew are the names
that people call.
"""

from windlass.client.crews import AsyncCrew, Crew
from windlass.client.errors import (
    Conflict,
    CrewError,
    InvalidRequest,
    NotACrew,
    NotFound,
    Refused,
    Unauthorized,
    Unreachable,
)
from windlass.client.requests import Kickoff
from windlass.client.results import (
    Inputs,
    KickoffFailed,
    Result,
    Status,
    StillRunning,
    Stopped,
    Task,
    TaskOutput,
    Waiting,
    Warning_,
)

__all__ = [
    "AsyncCrew",
    "Conflict",
    "Crew",
    "CrewError",
    "Inputs",
    "InvalidRequest",
    "Kickoff",
    "KickoffFailed",
    "NotACrew",
    "NotFound",
    "Refused",
    "Result",
    "Status",
    "StillRunning",
    "Stopped",
    "Task",
    "TaskOutput",
    "Unauthorized",
    "Unreachable",
    "Waiting",
    "Warning_",
]
