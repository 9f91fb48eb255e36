"""A person answers the question of a kickoff over the crew API."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from api.runs import begin
from api.serving import unknown_id
from windlass.rights import Scope

if TYPE_CHECKING:
    import httpx

    from api.serving import Crew

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def asking(crew: Crew, *, token: str | None = None, **fields: Any) -> tuple[str, str]:
    """The ids of a kickoff and of the question that it waits for."""
    run = await begin(crew, kickoff := await crew.kickoff(token=token))
    await run.start_task(0)
    return kickoff, str(await run.ask(**fields))


async def resume(crew: Crew, body: dict[str, Any], **more: Any) -> httpx.Response:
    return await crew.request("POST", "/resume", json=body, **more)


def yes(kickoff: str, task: str, **more: Any) -> dict[str, Any]:
    return {"execution_id": kickoff, "task_id": task, "human_feedback": "", "is_approve": True, **more}


def no(kickoff: str, task: str, words: str = "shorter") -> dict[str, Any]:
    return yes(kickoff, task, human_feedback=words, is_approve=False)


async def test_the_status_shows_what_is_asked_in_both_profiles(crew: Crew) -> None:
    kickoff, question = await asking(crew, choices=["good", "bad"], seconds=60.0, on_timeout="good")
    for token in (crew.token, await crew.organization_token(profile="live")):
        status = await crew.status(kickoff, token=token)
        assert (status["status"], status["state"]) == (
            ("pending_human_input", "PENDING_HUMAN_INPUT")
            if token == crew.token
            else ("The kickoff waits for a person to answer a question of its crew.", "PAUSED")
        )
        asked = status["human_input"]
        assert (asked["task_id"], asked["task"], asked["method"]) == (question, "research", None)
        assert (asked["question"], asked["draft"]) == ("Is it good?", "# A draft")
        assert asked["response_schema"] == {"type": "string", "enum": ["good", "bad"]}
        assert asked["asked_at"] < asked["expires_at"]
        assert status["waiting_for"]["code"] == "human"
        assert [task["state"] for task in status["tasks"]] == ["pending_human_input", "pending_run"]
    listed = (await crew.get("/kickoffs?state=PENDING_HUMAN_INPUT")).json()["kickoffs"]
    assert [one["kickoff_id"] for one in listed] == [kickoff]


@pytest.mark.parametrize("task", ["the question", "THE QUESTION", "research", "5d41402abc4b2a76b9719d911017c592"])
async def test_an_approval_lets_it_go_on(crew: Crew, task: str) -> None:
    kickoff, question = await asking(crew)
    wanted = {"the question": question, "THE QUESTION": question.upper()}.get(task, task)
    answer = await resume(crew, yes(kickoff, wanted))
    assert answer.status_code == 200
    assert answer.json() == {"status": "resumed", "message": "The kickoff goes on.", "kickoff_id": kickoff}
    status = await crew.status(kickoff)
    assert (status["state"], "human_input" in status) == ("PENDING", False)
    run = await begin(crew, kickoff)
    assert (run.claimed.attempt, run.claimed.asked) == (2, True)


async def test_words_have_the_task_run_again_and_may_come_with_an_approval(crew: Crew) -> None:
    kickoff, question = await asking(crew)
    answer = await resume(crew, no(kickoff, question))
    assert (answer.json()["status"], answer.json()["kickoff_id"]) == ("retrying", kickoff)
    run = await begin(crew, kickoff)
    again = str(await run.ask(number=2))
    assert again != question
    assert (await resume(crew, yes(kickoff, again, human_feedback="well done"))).json()["status"] == "resumed"
    (row,) = await crew.server.database.rows("SELECT * FROM questions WHERE id = %(id)s", {"id": UUID(again)})
    assert (row["approved"], row["feedback"]) == (True, "well done")


async def test_both_spellings_are_the_same(crew: Crew) -> None:
    kickoff, question = await asking(crew)
    body = {"executionId": kickoff, "taskId": question, "humanFeedback": "shorter", "isApprove": False}
    assert (await resume(crew, body)).json()["status"] == "retrying"
    other, question = await asking(crew)
    both = {"executionId": other, **yes(kickoff, question)}
    assert (await resume(crew, both)).status_code == 400


async def test_a_choice_decides_alone_and_other_words_need_no_approval_either(crew: Crew) -> None:
    for words in ("approved", "please rewrite it"):
        kickoff, question = await asking(crew, choices=["approved", "not_approved"], method="review")
        body = {"execution_id": kickoff, "task_id": question, "human_feedback": f" {words} "}
        assert (await resume(crew, body)).json()["status"] == "resumed"
        (row,) = await crew.server.database.rows("SELECT * FROM questions WHERE id = %(id)s", {"id": UUID(question)})
        assert (row["approved"], row["feedback"]) == (True, words)


async def test_a_method_of_a_flow_gets_the_words_alone(crew: Crew) -> None:
    kickoff, question = await asking(crew, method="one", draft="")
    body = {"execution_id": kickoff, "task_id": question, "human_feedback": "Ada"}
    assert (await resume(crew, body)).json()["status"] == "resumed"


@pytest.mark.parametrize(
    "members",
    [
        {"task_id": "research", "is_approve": True},
        {"execution_id": "it", "is_approve": True},
        {"execution_id": "it", "task_id": "research"},
        {"execution_id": "it", "task_id": "research", "human_feedback": "words"},
        {"execution_id": "it", "task_id": "research", "is_approve": "yes"},
        {"execution_id": "it", "task_id": "research", "is_approve": 1},
        {"execution_id": "it", "task_id": "research", "is_approve": False, "human_feedback": 5},
        {"execution_id": "it", "task_id": "research", "is_approve": False, "human_feedback": "x" * 20_001},
        {"execution_id": "it", "task_id": "research", "is_approve": True, "human_feedback": "a\0b"},
        {"execution_id": "it", "task_id": "research", "is_approve": True, "humanInputWebhook": {"url": "ftp://x"}},
        {"execution_id": 7, "task_id": "research", "is_approve": True},
    ],
)
async def test_a_malformed_answer_is_400_and_changes_nothing(crew: Crew, members: dict[str, Any]) -> None:
    kickoff, _ = await asking(crew)
    given = {name: kickoff if value == "it" else value for name, value in members.items()}
    assert (await resume(crew, given)).status_code == 400
    assert (await crew.status(kickoff))["state"] == "PENDING_HUMAN_INPUT"


async def test_what_does_not_wait_is_400_and_what_is_unknown_is_404(crew: Crew) -> None:
    kickoff, question = await asking(crew)
    assert (await resume(crew, yes(unknown_id(), question))).status_code == 404
    assert (await resume(crew, yes("no-id", question))).status_code == 404
    assert (await resume(crew, yes(kickoff, unknown_id()))).status_code == 404
    assert (await resume(crew, yes(kickoff, "no task"))).status_code == 404
    other = await crew.kickoff()
    assert (await resume(crew, yes(other, "research"))).status_code == 400
    assert (await resume(crew, yes(other, question))).status_code == 404  # the question of another kickoff
    await crew.stop(kickoff)
    for task in (question, "research"):
        answer = await resume(crew, yes(kickoff, task))
        assert (answer.status_code, "has ended" in answer.text) == (400, True)


async def test_the_second_answer_is_409(crew: Crew) -> None:
    kickoff, question = await asking(crew)
    await resume(crew, yes(kickoff, question))
    for body in (yes(kickoff, question), no(kickoff, question), yes(kickoff, "research")):
        assert (await resume(crew, body)).status_code == 409


async def test_of_answers_at_one_instant_one_counts(crew: Crew) -> None:
    kickoff, question = await asking(crew)
    bodies = [yes(kickoff, question), no(kickoff, question, "a"), no(kickoff, question, "b"), yes(kickoff, "research")]
    answers = await asyncio.gather(*(resume(crew, body) for body in bodies))
    assert sorted(answer.status_code for answer in answers) == [200, 409, 409, 409]


async def test_the_same_answer_with_a_key_is_the_same_and_another_is_409(crew: Crew) -> None:
    kickoff, question = await asking(crew)
    key = {"Idempotency-Key": "once"}
    assert (await resume(crew, yes(kickoff, question), headers=key)).status_code == 200
    assert (await resume(crew, yes(kickoff, question), headers=key)).json()["status"] == "resumed"
    assert (await resume(crew, yes(kickoff, question, idempotencyKey="once"))).status_code == 200
    assert (await resume(crew, no(kickoff, question), headers=key)).status_code == 409
    assert (await resume(crew, yes(kickoff, question), headers={"Idempotency-Key": "twice"})).status_code == 409
    run = await begin(crew, kickoff)
    await run.succeed()
    assert (await resume(crew, yes(kickoff, question), headers=key)).json()["status"] == "completed"


async def test_webhooks_of_an_answer_replace_those_of_the_kickoff(crew: Crew) -> None:
    hooks: dict[str, Any] = {"crewWebhookUrl": "https://a.example", "taskWebhookUrl": "https://a.example"}
    run = await begin(crew, kickoff := await crew.kickoff(**hooks))
    question = str(await run.ask())
    assert await hosts_of(crew, kickoff) == {"a.example": {"crew", "task"}}
    answer = await resume(crew, yes(kickoff, question, taskWebhookUrl="https://b.example"))
    assert answer.status_code == 200
    assert await hosts_of(crew, kickoff) == {"a.example": {"crew"}, "b.example": {"task"}}
    await resume(crew, yes(kickoff, question, taskWebhookUrl="https://c.example"))
    assert set(await hosts_of(crew, kickoff)) == {"a.example", "b.example"}


async def test_webhooks_of_an_answer_that_is_refused_replace_nothing(crew: Crew) -> None:
    run = await begin(crew, kickoff := await crew.kickoff(crewWebhookUrl="https://a.example"))
    question = str(await run.ask())
    undecided = {"execution_id": kickoff, "task_id": question, "crewWebhookUrl": "https://b.example"}
    assert (await resume(crew, undecided)).status_code == 400
    assert await hosts_of(crew, kickoff) == {"a.example": {"crew"}}


async def test_only_the_webhooks_of_the_answer_that_counts_replace_those_of_the_kickoff(crew: Crew) -> None:
    run = await begin(crew, kickoff := await crew.kickoff(crewWebhookUrl="https://a.example"))
    question = str(await run.ask())
    hosts = [f"of-{number}.example" for number in range(6)]
    bodies = [yes(kickoff, question, crewWebhookUrl=f"https://{host}") for host in hosts]
    answers = await asyncio.gather(*(resume(crew, body) for body in bodies))
    (first,) = [host for host, answer in zip(hosts, answers, strict=True) if answer.status_code == 200]
    assert await hosts_of(crew, kickoff) == {first: {"crew"}}


async def test_a_user_answers_own_kickoffs_only(crew: Crew) -> None:
    kickoff, question = await asking(crew, token=crew.user_token)
    stranger = await crew.token_of(f"stranger-to-{crew.deployment.slug}")
    assert (await resume(crew, yes(kickoff, question), token=stranger)).status_code == 404
    assert (await resume(crew, yes(kickoff, question), token=crew.user_token)).status_code == 200
    kickoff, question = await asking(crew)
    assert (await resume(crew, yes(kickoff, question), token=crew.user_token)).status_code == 404


async def test_a_token_that_only_reads_is_403(crew: Crew) -> None:
    kickoff, question = await asking(crew)
    token = await crew.server.tokens.create(crew.deployment.id, scopes=[Scope.READ])
    answer = await resume(crew, yes(kickoff, question), token=token.reveal())
    assert (answer.status_code, answer.json()["details"]) == (403, {"required_scope": "run"})


@pytest.mark.parametrize(("approvers", "status"), [(["users"], 403), (["organization"], 200), (["anyone"], 403)])
async def test_the_setting_names_who_may_answer(crew: Crew, approvers: list[str], status: int) -> None:
    await with_approvers(crew, approvers)
    kickoff, question = await asking(crew)
    assert (await resume(crew, yes(kickoff, question))).status_code == status


@pytest.mark.parametrize(("approvers", "status"), [(["users"], 200), (["organization"], 403), (["bea-of-it"], 200)])
async def test_the_setting_names_which_users_may_answer(crew: Crew, approvers: list[str], status: int) -> None:
    name = f"bea-of-{crew.deployment.slug}"
    await with_approvers(crew, [name if one == "bea-of-it" else one for one in approvers])
    token = await crew.token_of(name)
    kickoff, question = await asking(crew, token=token)
    assert (await resume(crew, yes(kickoff, question), token=token)).status_code == status


async def test_a_long_poll_ends_when_a_person_is_asked(crew: Crew) -> None:
    run = await begin(crew, kickoff := await crew.kickoff())
    waiting = asyncio.create_task(crew.get(f"/status/{kickoff}?wait=60"))
    await asyncio.sleep(0.05)
    await run.ask()
    assert (await waiting).json()["state"] == "PENDING_HUMAN_INPUT"
    assert (await crew.get(f"/status/{kickoff}?wait=60")).json()["state"] == "PENDING_HUMAN_INPUT"


async def test_the_words_are_stored_as_they_are(crew: Crew) -> None:
    words = '__interrupt__ PENDING_HUMAN_INPUT [secret] data: x\n\nevent: end\n{"a": "ü 😀"}'
    kickoff, question = await asking(crew)
    assert (await resume(crew, no(kickoff, question, words))).status_code == 200
    (row,) = await crew.server.database.rows("SELECT * FROM questions WHERE id = %(id)s", {"id": UUID(question)})
    assert row["feedback"] == words


async def test_a_large_draft_is_in_a_status_that_is_sent_in_pieces(crew: Crew) -> None:
    draft = "long " * 1_000_000
    kickoff, _ = await asking(crew, draft=draft)
    assert (await crew.status(kickoff))["human_input"]["draft"] == draft


async def hosts_of(crew: Crew, kickoff: str) -> dict[str, set[str]]:
    rows = await crew.server.database.rows(
        "SELECT host, hooks FROM webhooks JOIN webhook_endpoints ON id = endpoint_id WHERE kickoff_id = %(id)s::uuid",
        {"id": kickoff},
    )
    return {row["host"]: set(row["hooks"]) for row in rows if row["hooks"]}


async def with_approvers(crew: Crew, approvers: list[str]) -> None:
    await crew.server.database.execute(
        "UPDATE deployments SET settings = %(settings)s::json WHERE id = %(id)s",
        {"settings": json.dumps({"approvers": approvers}), "id": crew.deployment.id},
    )
