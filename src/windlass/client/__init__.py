"""A Python client for crews (docs/how-to/client.md).

    with Crew("http://127.0.0.1:8000", "wlo_...") as crew:
        result = crew.run({"topic": "tides"})

`protocol.py` describes each exchange with a crew as a generator. The generator yields requests and receives the outcome
of each. `transport.py` performs exchanges over a sync and an async HTTP client. Crew and AsyncCrew are the public API.
"""

from windlass.client.crews import AsyncCrew, Crew
from windlass.client.errors import (
    Conflict,
    CrewError,
    Forbidden,
    InvalidRequest,
    NotACrew,
    NotFound,
    Refused,
    Unauthorized,
    Unreachable,
)
from windlass.client.requests import Kickoff
from windlass.client.results import (
    Event,
    File,
    HumanInput,
    Inputs,
    KickoffFailed,
    Result,
    Resumed,
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
    "Event",
    "File",
    "Forbidden",
    "HumanInput",
    "Inputs",
    "InvalidRequest",
    "Kickoff",
    "KickoffFailed",
    "NotACrew",
    "NotFound",
    "Refused",
    "Result",
    "Resumed",
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
