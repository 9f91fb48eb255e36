"""The inbox: what waits for a person, and the answer, over plain HTTP and in a browser."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from api.runs import begin

if TYPE_CHECKING:
    from api.serving import Crew
    from dashboard.people import Visitor

pytestmark = pytest.mark.asyncio(loop_scope="session")

DRAFT = "# The title\n\nSome **bold** words.\n\n<script>alert(1)</script>"


async def asking(crew: Crew, **fields: Any) -> tuple[str, str]:
    """The ids of a kickoff and of the question that it waits for."""
    run = await begin(crew, kickoff := await crew.kickoff())
    await run.start_task(0)
    return kickoff, str(await run.ask(**{"draft": DRAFT, **fields}))


async def answer_of(crew: Crew, question: str) -> tuple[bool | None, str | None]:
    found = await crew.server.kickoffs.question(UUID(question))
    assert found is not None
    return found.approved, found.feedback


async def recounted(crew: Crew) -> None:
    crew.server.dashboard.recount_questions()


async def test_the_inbox_has_each_question_and_the_count_is_on_each_page(crew: Crew, viewer: Visitor) -> None:
    _, question = await asking(crew, seconds=60.0)
    await recounted(crew)
    page = (await viewer.get("/ui/approvals")).text
    assert f"/ui/approvals/{question}" in page
    assert crew.deployment.slug in page
    open_now = await crew.server.kickoffs.count_open_questions()
    assert f'<span class="inbox-count">{open_now}<span' in (await viewer.get("/ui/account")).text


async def test_the_draft_is_shown_as_markdown_beside_the_form(crew: Crew, developer: Visitor) -> None:
    _, question = await asking(crew)
    page = (await developer.get(f"/ui/approvals/{question}")).text
    assert "<h3>The title</h3>" in page
    assert "<strong>bold</strong>" in page
    assert "<script>alert" not in page
    assert "Is it good?" in page
    assert 'value="approve"' in page


@pytest.mark.parametrize(
    ("fields", "sent", "stored"),
    [
        ({}, {"do": "approve", "feedback": ""}, (True, "")),
        ({}, {"do": "feedback", "feedback": "shorter\r\nplease"}, (False, "shorter\nplease")),
        ({"choices": ["good", "bad"]}, {"choice": "bad", "feedback": ""}, (True, "bad")),
        ({"choices": ["good", "bad"]}, {"do": "feedback", "feedback": "not so good"}, (True, "not so good")),
        ({"method": "one", "draft": ""}, {"do": "feedback", "feedback": "Ada"}, (True, "Ada")),
    ],
)
async def test_an_answer_is_stored_and_leads_to_the_execution(
    crew: Crew,
    developer: Visitor,
    fields: dict[str, Any],
    sent: dict[str, str],
    stored: tuple[bool, str],
) -> None:
    kickoff, question = await asking(crew, **fields)
    page = (await developer.get(f"/ui/approvals/{question}")).text
    assert all(f'name="choice" value="{one}"' in page for one in fields.get("choices", ()))
    answer = await developer.post(f"/ui/approvals/{question}", **sent)
    assert (answer.status_code, answer.headers["location"].endswith(kickoff)) == (303, True)
    assert await answer_of(crew, question) == stored
    found = await crew.server.kickoffs.question(UUID(question))
    assert found is not None
    assert found.answered_by == f"{developer.name} (dashboard)"


async def test_of_two_people_the_second_reads_who_was_first(crew: Crew, developer: Visitor, owner: Visitor) -> None:
    _, question = await asking(crew)
    answers = await asyncio.gather(
        developer.post(f"/ui/approvals/{question}", do="approve"),
        owner.post(f"/ui/approvals/{question}", do="feedback", feedback="my words"),
    )
    assert sorted(answer.status_code for answer in answers) == [303, 409]
    late = next(answer.text for answer in answers if answer.status_code == 409)
    first = developer.name if answers[0].status_code == 303 else owner.name
    assert "was answered already" in late
    assert f"{first} (dashboard)" in late


async def test_feedback_without_words_and_a_stopped_execution_are_named(crew: Crew, developer: Visitor) -> None:
    kickoff, question = await asking(crew)
    answer = await developer.post(f"/ui/approvals/{question}", do="feedback", feedback="  ")
    assert (answer.status_code, "The answer has no words" in answer.text) == (400, True)
    await crew.stop(kickoff)
    answer = await developer.post(f"/ui/approvals/{question}", do="approve")
    assert (answer.status_code, "has ended" in answer.text) == (409, True)
    assert "can&#39;t be answered any more" in answer.text or "can't be answered any more" in answer.text


async def test_a_viewer_may_answer_only_where_the_setting_names_the_viewer(
    crew: Crew, viewer: Visitor, developer: Visitor
) -> None:
    _, question = await asking(crew)
    page = (await viewer.get(f"/ui/approvals/{question}")).text
    assert "You may not answer" in page
    assert (await viewer.post(f"/ui/approvals/{question}", do="approve")).status_code == 403
    await crew.server.database.execute(
        "UPDATE deployments SET settings = %(settings)s::json WHERE id = %(id)s",
        {"settings": json.dumps({"approvers": [viewer.name]}), "id": crew.deployment.id},
    )
    assert (await developer.post(f"/ui/approvals/{question}", do="approve")).status_code == 403
    assert (await viewer.post(f"/ui/approvals/{question}", do="approve")).status_code == 303


async def test_the_page_of_the_execution_leads_to_the_question(crew: Crew, viewer: Visitor) -> None:
    kickoff, question = await asking(crew)
    page = (await viewer.get(f"/ui/crews/{crew.deployment.slug}/executions/{kickoff}")).text
    assert f"/ui/approvals/{question}" in page
    assert "in the task research" in page


async def test_an_unknown_question_is_404(viewer: Visitor) -> None:
    assert (await viewer.get("/ui/approvals/0199b0c2-7f3a-7c11-9d52-0a4b6c8e1f23")).status_code == 404
    assert (await viewer.get("/ui/approvals/none")).status_code == 404
