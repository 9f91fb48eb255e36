"""Takes the answers of people to the questions of kickoffs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass import log
from windlass.errors import WindlassError
from windlass.kickoffs.questions import LONGEST_FEEDBACK, Answer
from windlass.kickoffs.states import State

if TYPE_CHECKING:
    from windlass.kickoffs.questions import QuestionRow
    from windlass.store.audit import Actor
    from windlass.store.questions import AnswerKey, Questions
    from windlass.store.webhooks import Given

logger = log.logger(__name__)


class NotWaiting(WindlassError):  # noqa: N818 - describes the kickoff
    """Reports that no answer is expected."""


class AnsweredBefore(WindlassError):  # noqa: N818 - describes the question
    """Reports that another answer came first."""


class InvalidAnswer(WindlassError):  # noqa: N818 - describes the answer
    pass


class Approvals:
    """Answers questions. Each answer is committed when `answer` returns, with an entry of the audit log."""

    def __init__(self, store: Questions) -> None:
        self.store = store

    async def answer(
        self,
        question: QuestionRow,
        answer: Answer,
        by: Actor,
        key: AnswerKey | None = None,
        webhooks: Given | None = None,
    ) -> QuestionRow:
        """Returns the question as it is after the answer. The same answer with the same key has no effect.

        The `webhooks` replace those of the kickoff if this answer counts.

        Raises InvalidAnswer, AnsweredBefore and NotWaiting.
        """
        state = await self.store.answer(question.id, checked(answer), by, key, webhooks)
        found = await self.store.question(question.id)
        if found is None:
            raise _not_waiting(question)
        if state is None and not (key and await self.store.is_repeated(question.id, key)):
            raise _answered_before(found) if found.answered_at else _not_waiting(found)
        if state is not None:
            logger.event("kickoff.answered", kickoff_id=question.kickoff_id, approved=answer.approved)
        return found


def checked(answer: Answer) -> Answer:
    """Returns the answer without spaces at the ends of its words. Raises InvalidAnswer."""
    feedback = answer.feedback.strip()
    if len(feedback) > LONGEST_FEEDBACK:
        raise InvalidAnswer(f"The feedback has {len(feedback):,} characters; the limit is {LONGEST_FEEDBACK:,}.")
    return Answer(answer.approved, feedback)


def _answered_before(question: QuestionRow) -> AnsweredBefore:
    at = f"{question.answered_at:%Y-%m-%dT%H:%M:%SZ}"
    return AnsweredBefore(f"The question {question.id} was answered already, at {at}. Only the first answer counts.")


def _not_waiting(question: QuestionRow) -> NotWaiting:
    state = State(question.state)
    if state.ended:
        return NotWaiting(f"Kickoff {question.kickoff_id} has ended: nothing can be answered any more.")
    why = "does not wait for this answer any more"
    return NotWaiting(f"Kickoff {question.kickoff_id} {why}.", "Its status shows what it waits for, as `human_input`.")
