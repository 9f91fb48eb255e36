"""Passes the answers of people to a run whose process waits alive for them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from windlass.aio import cancelled
from windlass.kickoffs.outcome import Termination
from windlass.kickoffs.questions import too_late
from windlass.kickoffs.states import Reason, State
from windlass.lifecycle.background_tasks import until_the_database_answers
from windlass_child.protocol.messages import Answered

if TYPE_CHECKING:
    from collections.abc import Callable

    from windlass.kickoffs.questions import AnsweredQuestion, Question
    from windlass.lifecycle.notices import Notices
    from windlass.runner import LeaseHandle, Terminator
    from windlass.store.claiming import Claimed
    from windlass.store.kickoffs import KickoffStore

LOOK_AGAIN = 2.0
"""Seconds between two searches for an answer without a notification, which can be lost."""


class LiveQuestions:
    """Waits for the answers to the questions of one run. `on_answer` is called with each question that is answered.

    A run whose question is not answered in time is ended.
    """

    def __init__(
        self,
        store: KickoffStore,
        notices: Notices,
        claimed: Claimed,
        lease_handle: LeaseHandle,
        terminator: Terminator,
        on_answer: Callable[[Question], None],
    ) -> None:
        self._store = store
        self._notices = notices
        self._claimed = claimed
        self._lease_handle = lease_handle
        self._terminator = terminator
        self._on_answer = on_answer
        self._open: dict[int, Question] = {}
        self._waiting: asyncio.Task[None] | None = None

    @property
    def any_open(self) -> bool:
        return bool(self._open)

    def ask(self, question: Question) -> None:
        self._open[question.number] = question
        self._lease_handle.wait_for_person(waits=True)
        if self._waiting is None:
            self._waiting = asyncio.create_task(self._until_answered(), name=f"questions {self._claimed.id}")

    async def stop(self) -> None:
        if self._waiting is not None:
            await cancelled(self._waiting)

    async def _until_answered(self) -> None:
        while self._open:
            with self._notices.of(self._claimed.id) as notice:
                for answered in await until_the_database_answers(self._answers):
                    self._take(answered)
                if self._open:
                    await asyncio.wait({notice}, timeout=LOOK_AGAIN)
        self._waiting = None

    async def _answers(self) -> list[AnsweredQuestion]:
        return await self._store.answers_of(self._claimed.id, self._claimed.attempt, list(self._open))

    def _take(self, answered: AnsweredQuestion) -> None:
        question = self._open.pop(answered.number)
        if answered.answer is None:
            error = too_late(question.seconds or 0)
            self._terminator.end(Termination(State.TIMED_OUT, Reason.TIMED_OUT, error))
            return
        self._lease_handle.wait_for_person(waits=self.any_open)
        self._on_answer(question)
        self._lease_handle.answer(Answered(answered.number, answered.answer.approved, answered.answer.feedback))
