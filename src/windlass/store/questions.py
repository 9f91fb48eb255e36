"""The questions that kickoffs ask people, and the answers."""

# See docs/decisions/queue.md#an-answer-locks-the-row-of-its-kickoff

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from windlass.kickoffs.ids import FIRST_ID
from windlass.kickoffs.questions import (
    FAIL,
    MOST_IN_A_ROW,
    REJECT,
    Answer,
    AnsweredQuestion,
    QuestionRow,
    answer_on_timeout,
    too_late,
)
from windlass.kickoffs.states import State
from windlass.store.audit import Actor
from windlass.store.database import Store, fetch, filled, queries
from windlass.store.values import sanitized_text
from windlass.store.webhooks import replace

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from psycopg import sql

    from windlass.store.database import Row, Statement
    from windlass.store.webhooks import Given

SQL = queries("questions")
MOST_COUNTED = 1000
"""Open questions are counted up to this number."""
TIME_LIMIT = Actor(None, "(time limit)", kind="server")
"""The server, which answers a question that nobody has answered in time."""


def _rows(chosen: sql.SQL) -> Statement:
    return filled(SQL["rows"], chosen=chosen)


BY_ID, OF_TASK = _rows(SQL["by_id"]), _rows(SQL["of_task"])
OF_KICKOFF, OPEN = _rows(SQL["of_kickoff"]), _rows(SQL["open"])


@dataclass(frozen=True, slots=True)
class AnswerKey:
    """The idempotency key of an answer, and the digest of the request."""

    key: str
    digest: bytes


@dataclass(frozen=True, slots=True)
class Expired:
    """A kickoff whose question was not answered in time. `answer` is what the settings answer, None for none."""

    kickoff_id: UUID
    answer: Answer | None


class Questions(Store):
    async def question(self, question: UUID) -> QuestionRow | None:
        return await self._question(BY_ID, {"id": question})

    async def question_of(self, kickoff: UUID, task: str) -> QuestionRow | None:
        """Returns the question with this id, or of this task: the one that waits, else the newest one."""
        return await self._question(OF_TASK, {"kickoff": kickoff, "task": task})

    async def questions_of(self, kickoff: UUID, *, limit: int = 100) -> list[QuestionRow]:
        """Returns the newest questions of the kickoff, the oldest of them first."""
        rows = await self._database.rows(OF_KICKOFF, {"kickoff": kickoff, "limit": limit}, soon=True)
        return [QuestionRow(**row) for row in rows]

    async def open_questions(
        self,
        *,
        deployment: UUID | None = None,
        owner: UUID | None = None,
        sees: UUID | None = None,
        after: UUID = FIRST_ID,
        limit: int = 100,
    ) -> list[QuestionRow]:
        """Returns the questions that wait, the oldest first. `owner` is the user who started their kickoffs, `sees` the
        one to whose deployments the list is limited.
        """
        values = {"deployment": deployment, "owner": owner, "sees": sees, "after": after, "limit": limit}
        return [QuestionRow(**row) for row in await self._database.rows(OPEN, values, soon=True)]

    async def count_open_questions(self, *, sees: UUID | None = None) -> int:
        """Returns the number of questions that wait and that the user sees, MOST_COUNTED for that many or more."""
        row = await self._database.row(SQL["count_open"], {"most": MOST_COUNTED, "sees": sees}, soon=True)
        return int(row["count"]) if row else 0

    async def draft(self, question: UUID, *, most: int) -> tuple[str, int]:
        """Returns the first `most` characters of the draft, and the number of all."""
        row = await self._database.row(SQL["draft"], {"id": question, "most": most}, soon=True)
        return (row["text"] or "", row["length"] or 0) if row else ("", 0)

    async def has_task(self, kickoff: UUID, task: str) -> bool:
        row = await self._database.row(SQL["has_task"], {"kickoff": kickoff, "task": task}, soon=True)
        return bool(row and row["found"])

    async def answer(
        self,
        question: UUID,
        answer: Answer,
        by: Actor,
        key: AnswerKey | None = None,
        webhooks: Given | None = None,
    ) -> State | None:
        """Stores the answer, the webhooks that came with it, and an entry of the audit log. Returns the state that the
        kickoff had.

        Returns None, and changes nothing, when the question does not wait for an answer any more.
        """
        values = {
            **by.columns(),
            "id": question,
            "by": by.words,
            "approved": answer.approved,
            "feedback": sanitized_text(answer.feedback),
            "key": key.key if key else None,
            "digest": key.digest if key else None,
        }
        async with self._database.transaction(soon=True) as connection:
            rows = await fetch(connection, SQL["answer"], values)
            if rows and webhooks and webhooks.webhooks:
                await replace(connection, rows[0]["kickoff_id"], webhooks)
        return State(rows[0]["state"]) if rows else None

    async def asked_before(self, kickoff: UUID, key: str) -> tuple[UUID, datetime] | None:
        """Returns the id and the time of the question with this key, None if no attempt has asked it."""
        values = {"kickoff": kickoff, "key": sanitized_text(key)}
        row = await self._database.row(SQL["asked_before"], values)
        return (row["id"], row["asked_at"]) if row else None

    async def is_repeated(self, question: UUID, key: AnswerKey) -> bool | None:
        """Returns whether the stored answer has this key and is the same one. None: it has another key."""
        values = {"id": question, "key": key.key, "digest": key.digest}
        row = await self._database.row(SQL["repeated"], values, soon=True)
        return bool(row["same"]) if row else None

    async def answers_of(
        self, kickoff: UUID, attempt: int, numbers: Sequence[int] | None = None
    ) -> list[AnsweredQuestion]:
        """Returns the answers to the questions with these numbers, or to all, and the questions of this attempt whose
        time is over.
        """
        values = {"kickoff": kickoff, "attempt": attempt, "numbers": None if numbers is None else list(numbers)}
        return [_answered(row) for row in await self._database.rows(SQL["answers"], values)]

    async def expire_questions(self, *, limit: int = 100) -> list[Expired]:
        """Answers the questions whose time is over as their deployment wants it, or fails their kickoffs.

        The result of a task is rejected once in a row. Of other questions, MOST_IN_A_ROW are answered in a row.
        """
        expired = []
        values: Row = {"limit": limit, "reject": REJECT, "by": TIME_LIMIT.words, "in_a_row": MOST_IN_A_ROW}
        for row in await self._database.rows(SQL["expired"], values):
            answer = None if row["again"] else answer_on_timeout(row["on_timeout"] or FAIL)
            if answer is not None:
                done = await self.answer(row["id"], answer, TIME_LIMIT) is not None
            else:
                error = too_late(row["seconds"], again=bool(row["again"]))
                values = {"id": row["id"], "kickoff": row["kickoff_id"], "error": error}
                done = bool(await self._database.rows(SQL["fail_expired"], values))
            if done:
                expired.append(Expired(row["kickoff_id"], answer))
        return expired

    async def _question(self, statement: Statement, values: Row) -> QuestionRow | None:
        row = await self._database.row(statement, values, soon=True)
        return QuestionRow(**row) if row else None


def _answered(row: Row) -> AnsweredQuestion:
    answer = None if row["approved"] is None else Answer(row["approved"], row["feedback"] or "")
    return AnsweredQuestion(row["number"], answer)
