"""What a run asks people, and what they answer."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from windlass_child.protocol.validation import Encoded

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from windlass_child.protocol.fields import Text

FAIL, APPROVE, REJECT = "fail", "approve", "reject"
"""What happens to a question that nobody answers in time. Any other word is a choice of the question."""
MOST_IN_A_ROW = 10
"""Questions of a kickoff that the time limit answers in a row. A flow may ask again and again."""
LONGEST_FEEDBACK = 20_000
"""Characters of an answer. They become a part of a prompt."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question that is not stored yet, or that an earlier attempt has asked, with its `id` and `asked_at`.

    `number` is that of its entry in the journal. `key` is the same when a later attempt asks the same about the
    same draft, with another number. `position` is that of its task record. `draft` is the text to judge. Only the
    words in `choices` decide, if there are any. With `waits` its process waits alive for the answer; otherwise the
    run has ended. `seconds` is the time limit of an answer, `on_timeout` what happens then. `remind_every` is the
    time between two reminders.
    """

    id: UUID
    deployment_id: UUID
    number: int
    key: str
    text: str
    draft: Text
    position: int | None = None
    method: str | None = None
    choices: Sequence[str] = ()
    waits: bool = False
    seconds: float | None = None
    on_timeout: str = FAIL
    remind_every: float | None = None
    asked_at: datetime | None = None

    def to_json(self, task: str | None) -> dict[str, Any]:
        """Returns the member `human_input` of the status, as far as an event has it. `task` names its task."""
        at = self.asked_at or datetime.now(UTC)
        expires_at = at + timedelta(seconds=self.seconds) if self.seconds is not None else None
        return {
            "task_id": str(self.id),
            "task": task or self.method,
            "method": self.method,
            "question": self.text,
            "draft": json.loads(self.draft.data) if isinstance(self.draft, Encoded) else self.draft,
            "response_schema": {"type": "string", **({"enum": list(self.choices)} if self.choices else {})},
            "asked_at": at.isoformat(),
            "expires_at": expires_at.isoformat() if expires_at else None,
        }


def key_of(key: str, text: str, draft: Text) -> str:
    """Returns the key of a question: that of its journal entry, with a digest of the text and the draft."""
    seen = draft.data if isinstance(draft, Encoded) else draft.encode("utf-8", "surrogatepass")
    digest = hashlib.sha256(b"%s\x00%s" % (text.encode("utf-8", "surrogatepass"), seen))
    return f"{key} {digest.hexdigest()[:32]}"


@dataclass(frozen=True, slots=True)
class Answer:
    """A person's answer. `feedback` are the words, "" for none."""

    approved: bool
    feedback: str = ""


@dataclass(frozen=True, slots=True)
class AnsweredQuestion:
    """A question with its answer, for the run that asked. `answer` is None when the time for an answer is over."""

    number: int
    answer: Answer | None


@dataclass(frozen=True, slots=True)
class QuestionRow:
    """A question without its draft.

    `task` is the name of its task or method, or the id of a task without a name. `state` is that of the kickoff.
    `kickoff_user` is the user who started the kickoff, None for the organization, and `user` the name. `approvers` are
    those who may answer (rights.may_answer).
    """

    id: UUID
    kickoff_id: UUID
    deployment_id: UUID
    slug: str
    number: int
    task: str | None
    method: str | None
    question: str
    choices: list[str]
    waits: bool
    asked_at: datetime
    expires_at: datetime | None
    on_timeout: str | None
    closed_at: datetime | None
    answered_at: datetime | None
    answered_by: str | None
    approved: bool | None
    feedback: str | None
    state: str
    kickoff_user: UUID | None
    user: str | None
    approvers: list[str]

    @property
    def is_open(self) -> bool:
        return self.answered_at is None and self.closed_at is None


def answer_on_timeout(word: str) -> Answer | None:
    """Returns the answer that the setting `approval_on_timeout` gives, None for none: the kickoff then fails."""
    if word == FAIL:
        return None
    return Answer(approved=word != REJECT, feedback="" if word in {APPROVE, REJECT} else word)


def too_late(seconds: float, *, again: bool = False) -> str:
    """Returns the error of a kickoff. `again`: approval_on_timeout has answered its questions before, as often as it
    may.
    """
    bounds = f"approval_on_timeout rejects a result once, and answers {MOST_IN_A_ROW} questions in a row"
    twice = f" again: {bounds}" if again else ""
    return (
        f"nobody answered the question of its crew within {seconds:g} s (approval_timeout){twice}. Start it again, or "
        "raise approval_timeout in the settings of the crew."
    )
