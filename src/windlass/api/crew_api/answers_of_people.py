"""Converts the body of a request to `POST /resume` to an answer."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from windlass.api.crew_api.kickoff_requests import members_of, one_key
from windlass.api.crew_api.schemas import SPELLINGS, CallbackRequest, Key, ResumeRequest
from windlass.api.errors import bad_request
from windlass.kickoffs.questions import Answer
from windlass.rights import WEBHOOK
from windlass.store.audit import Actor
from windlass.store.questions import AnswerKey

if TYPE_CHECKING:
    from windlass.kickoffs.questions import QuestionRow
    from windlass.store.tokens import TokenRow

KEY: TypeAdapter[str | None] = TypeAdapter(Key | None)


def resume_request(body: dict[str, Any]) -> ResumeRequest:
    """Returns the request with one spelling of its members. Raises Problem 400."""
    members = {name: value for name, value in body.items() if name not in SPELLINGS}
    for other, name in SPELLINGS.items():
        if body.get(other) is None:
            continue
        if members.get(name) is not None and members[name] != body[other]:
            raise bad_request(f"The members {name} and {other} differ: send one of them.")
        members[name] = body[other]
    return members_of(ResumeRequest, members)


def decided(question: QuestionRow, approve: bool | None, feedback: str | None, member: str) -> Answer:
    """Returns the answer of a request whose `member` is `approve`. Raises Problem 400 if it does not decide."""
    if approve is not None:
        return Answer(approve, feedback or "")
    if (question.choices or question.method) and feedback and feedback.strip():
        return Answer(approved=True, feedback=feedback)  # a flow gets the words
    how = "a choice or words" if member == "feedback" else "true to approve, false with words to send it back"
    message = f"The answer does not decide: send `{member}`, {how}."
    raise bad_request(message, invalid_members={member: "Field required"})


def callback_answer(
    question: QuestionRow, body: dict[str, Any], address: str | None
) -> tuple[Answer, Actor, AnswerKey]:
    """Returns the answer of a request to a `callback_url`, and who gives it. The same request again has no effect.

    Raises Problem 400.
    """
    given = members_of(CallbackRequest, body)
    actor = Actor(None, f"({WEBHOOK} {given.source})" if given.source else f"({WEBHOOK})", None, address, kind="client")
    key = AnswerKey(f"callback {question.id}", hashlib.sha256(given.feedback.encode()).digest())
    return decided(question, None, given.feedback, "feedback"), actor, key


def answer_key(body: dict[str, Any], key_in_header: str | None, token: TokenRow) -> AnswerKey | None:
    """Returns the idempotency key of the request, which another token does not share. Raises Problem 400."""
    try:
        key = one_key(KEY.validate_python(body.get("idempotencyKey")), key_in_header)
    except ValidationError:
        reason = {"idempotencyKey": "Input should be a text of 1 to 255 characters"}
        raise bad_request("These members are invalid: idempotencyKey.", invalid_members=reason) from None
    if key is None:
        return None
    members = {SPELLINGS.get(name, name): value for name, value in body.items() if name != "idempotencyKey"}
    request = json.dumps([str(token.id), members], sort_keys=True, separators=(",", ":"))
    return AnswerKey(key, hashlib.sha256(request.encode()).digest())
