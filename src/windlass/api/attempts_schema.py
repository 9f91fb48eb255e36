"""The shape of the attempts of a kickoff, for the OpenAPI document."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from windlass.api.status_examples import AT, EXAMPLE_ID
from windlass.kickoffs.attempts import AttemptEnd


class AttemptBody(BaseModel):
    attempt: int = Field(description="1 for the first.")
    started_at: str
    ended_at: str | None = Field(description="Null while it runs.")
    ended_as: AttemptEnd | None = Field(
        description="The state in which the kickoff ended with it; else `lost` (its process or worker died), "
        "`released` (its worker stopped) or `retried` (it failed, and the crew's project wants another try). "
        "Null while it runs."
    )
    why: str | None = Field(description="Why it ended so, for a person.")
    host: str = Field(description="The machine that it ran on.")
    restored: int = Field(description="Entries of the journal that it began with.")
    from_journal: list[str] = Field(description="Names of the tasks that it took from the journal and did not run.")
    ran: list[str] = Field(description="Names of the tasks that it ran, but for those that a later attempt ran again.")


class AttemptsAnswer(BaseModel):
    kickoff_id: str
    attempts: list[AttemptBody] = Field(description="The newest hundred, the oldest of them first.")


ATTEMPTS_EXAMPLE: dict[str, Any] = {
    "kickoff_id": EXAMPLE_ID,
    "attempts": [
        {
            "attempt": 1,
            "started_at": AT,
            "ended_at": AT,
            "ended_as": "lost",
            "why": "its worker's lease ended: the worker died, stood still, or could not reach the database",
            "host": "worker-1",
            "restored": 0,
            "from_journal": [],
            "ran": ["plan"],
        },
        {
            "attempt": 2,
            "started_at": AT,
            "ended_at": None,
            "ended_as": None,
            "why": None,
            "host": "worker-2",
            "restored": 1,
            "from_journal": ["plan"],
            "ran": ["write_brief"],
        },
    ],
}
