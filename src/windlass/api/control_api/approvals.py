"""Endpoints over the questions that kickoffs ask people."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter
from fastapi import Query as InQuery
from pydantic import BaseModel, Field, StrictBool

from windlass.api.control_api.answers import Answer, Body, Page, Query, Text, answer_of
from windlass.api.control_api.callers import Caller, ControlRoute, Viewer
from windlass.api.control_api.dependencies import Control, id_cursor
from windlass.api.crew_api.answers_of_people import decided
from windlass.api.crew_api.schemas import Feedback
from windlass.api.errors import Problem, no_approver
from windlass.kickoffs.ids import FIRST_ID, parse_id
from windlass.kickoffs.questions import QuestionRow
from windlass.rights import may_answer
from windlass.store.tokens import PERSONAL

router = APIRouter(route_class=ControlRoute, tags=["approvals"])
MOST_OF_DRAFT = 1_000_000
"""Characters of a draft in an answer. The status of the kickoff has the whole draft."""


class ApprovalsQuery(Query):
    deployment: Text | None = Field(None, description="Only questions of this deployment, by its slug.")


class ApprovalItem(BaseModel):
    """A question that a kickoff asks a person."""

    id: UUID = Field(description="The `task_id` of `POST /resume` of the crew API.")
    kickoff_id: UUID
    deployment: str
    state: Literal["waiting", "answered", "closed"] = Field(
        description="`closed`: it was not answered, and can't be any more. Its kickoff ended, or asked again."
    )
    task: str | None = Field(description="The name of the task or method that asks, or the id of a task without one.")
    method: str | None = Field(description="The method of the flow that asks. Null: a task asks.")
    question: str
    choices: list[str] = Field(description="Words that decide without a model call. Empty: any text does.")
    user: str | None = Field(description="The user whose user token started the kickoff.")
    asked_at: datetime
    expires_at: datetime | None = Field(description="Null: it waits for ever.")
    on_timeout: str | None = Field(description="What happens then: `fail`, `approve`, `reject` or a choice.")
    answered_at: datetime | None
    answered_by: str | None
    approved: bool | None
    feedback: str | None


class ApprovalDetails(ApprovalItem):
    """A question with its draft."""

    draft: str = Field(description="The text to judge, at most 1,000,000 characters of it.")
    draft_length: int = Field(description="Characters of the whole draft.")


class AnswerBody(Body):
    """An answer. A method of a flow needs only `feedback`: it gets the words."""

    approve: StrictBool | None = Field(None, description="Whether the draft is approved.")
    feedback: Feedback | None = Field(None, description="What to change, or the choice.")


@router.get("/approvals")
async def list_approvals(
    caller: Viewer, control: Control, query: Annotated[ApprovalsQuery, InQuery()]
) -> Page[ApprovalItem]:
    """Lists the questions that wait for an answer, the oldest first."""
    deployment = None
    if query.deployment is not None:
        await control.members.check("slug", query.deployment, caller.actor)
        deployment = (await control.management.get(query.deployment)).id
    rows = await control.approvals.store.open_questions(
        deployment=deployment,
        sees=caller.actor.sees,
        after=id_cursor(query.cursor) or FIRST_ID,
        limit=query.limit,
    )
    items = [_item(ApprovalItem, row) for row in rows]
    return Page(items=items, next_cursor=str(rows[-1].id) if len(rows) == query.limit else None)


@router.get("/approvals/{approval_id}")
async def show_approval(_: Viewer, control: Control, approval_id: str) -> ApprovalDetails:
    """Returns a question with its draft. The id may be that of a kickoff: then it is its newest question."""
    return await _details(control, await _found(control, approval_id))


@router.post("/approvals/{approval_id}/answer")
async def answer_approval(caller: Viewer, control: Control, approval_id: str, body: AnswerBody) -> ApprovalDetails:
    """Answers a question. 403 without the role `developer`, or if the setting `approvers` does not name the caller."""
    question = await _found(control, approval_id)
    check_approver(question, caller)
    answer = decided(question, body.approve, body.feedback, "approve")
    return await _details(control, await control.approvals.answer(question, answer, caller.actor))


def check_approver(question: QuestionRow, caller: Caller) -> None:
    """Raises Problem 403."""
    if not may_answer(question.approvers, user=caller.name, role=caller.role, kind=PERSONAL):
        raise no_approver()


async def _found(control: Control, given: str) -> QuestionRow:
    found = parse_id(given)
    question = await control.approvals.store.question(found) if found else None
    if question is None and found is not None:
        questions = await control.approvals.store.questions_of(found)
        question = next((one for one in reversed(questions) if one.is_open), questions[-1] if questions else None)
    if question is None:
        raise Problem(404, "There is no question with this id. `windlass approvals` and GET /approvals list them.")
    return question


async def _details(control: Control, question: QuestionRow) -> ApprovalDetails:
    draft, length = await control.approvals.store.draft(question.id, most=MOST_OF_DRAFT)
    return _item(ApprovalDetails, question, draft=draft, draft_length=length)


def _item(model: type[Answer], row: QuestionRow, **others: object) -> Answer:
    state = "waiting" if row.is_open else "answered" if row.answered_at else "closed"
    return answer_of(model, row, deployment=row.slug, state=state, **others)
