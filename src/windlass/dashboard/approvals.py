"""The inbox: the questions that kickoffs ask people, and the page on which a person answers one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from windlass.api.control_api.dependencies import id_cursor
from windlass.api.errors import Problem, no_approver
from windlass.dashboard.executions import short_id
from windlass.dashboard.output import MOST_RENDERED, Value, render
from windlass.dashboard.routes import Routes, several_lines
from windlass.kickoffs.ids import FIRST_ID, parse_id
from windlass.kickoffs.questions import Answer
from windlass.lifecycle.approvals import AnsweredBefore, InvalidAnswer, NotWaiting
from windlass.rights import Role, may_answer
from windlass.store.tokens import PERSONAL

if TYPE_CHECKING:
    from uuid import UUID

    from starlette.responses import Response

    from windlass.dashboard.routes import Visit
    from windlass.errors import WindlassError
    from windlass.kickoffs.questions import QuestionRow

ROUTES = Routes()
PAGE = 50
LONGEST_SHOWN = 200


@ROUTES.get("/approvals", Role.VIEWER)
async def listed(visit: Visit) -> Response:
    after = id_cursor(visit.query.get("after")) or FIRST_ID
    found = await visit.dashboard.control.approvals.store.open_questions(sees=visit.actor.sees, after=after, limit=PAGE)
    following = found[-1].id if len(found) == PAGE else None
    return visit.page("approvals.html", questions=found, following=following, longest=LONGEST_SHOWN, here=visit.here)


@ROUTES.get("/approvals/{question}", Role.VIEWER)
async def show(visit: Visit) -> Response:
    return await _page(visit, await _found(visit))


@ROUTES.post("/approvals/{question}", Role.VIEWER)
async def answer(visit: Visit) -> Response:
    question = await _found(visit)
    if not _may_answer(visit, question):
        raise no_approver()
    words, choice = several_lines(visit.field("feedback")), visit.field("choice")
    approved = bool(choice or question.choices or question.method or visit.field("do") == "approve")
    if not words.strip() and visit.field("do") == "feedback":
        return await _page(visit, question, InvalidAnswer("The answer has no words. Write some."), 400)
    try:
        await visit.dashboard.control.approvals.answer(question, Answer(approved, choice or words), visit.actor)
    except (AnsweredBefore, NotWaiting) as error:
        return await _page(visit, await _found(visit), error, 409)
    except InvalidAnswer as error:
        return await _page(visit, question, error, 400)
    visit.dashboard.recount_questions()
    notice = "Approved. It goes on." if approved else "Your feedback is sent. The task runs again, and asks again."
    if question.choices or question.method:
        notice = "Answered. It goes on."
    return visit.redirect(f"/ui/crews/{question.slug}/executions/{question.kickoff_id}", notice)


async def _found(visit: Visit) -> QuestionRow:
    """Returns the question that the path names. Raises Problem 404."""
    given = parse_id(visit.path["question"])
    found = await visit.dashboard.control.approvals.store.question(given) if given else None
    if found is None:
        raise Problem(404, "There is no question with this id. It may have been deleted with its execution.")
    return found


def _may_answer(visit: Visit, question: QuestionRow) -> bool:
    person = visit.person
    return may_answer(question.approvers, user=person.name, role=person.role, kind=PERSONAL)


async def _page(visit: Visit, question: QuestionRow, error: WindlassError | None = None, status: int = 200) -> Response:
    draft, others = await asyncio.gather(
        _draft(visit, question.id), visit.dashboard.control.approvals.store.questions_of(question.kickoff_id)
    )
    return visit.page(
        "approval.html",
        status,
        question=question,
        draft=draft,
        rendered=await render(draft),
        earlier=[one for one in others if one.id != question.id and one.answered_at],
        may_answer=_may_answer(visit, question),
        short=short_id(question.kickoff_id),
        words=several_lines(visit.field("feedback")),
        error=error,
    )


async def _draft(visit: Visit, question: UUID) -> Value:
    text, length = await visit.dashboard.control.approvals.store.draft(question, most=MOST_RENDERED)
    return Value(text, text, is_text=True, is_whole=len(text) == length, bytes=length)
