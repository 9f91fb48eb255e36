"""How what came of a request is judged."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx

from windlass.client.errors import NotACrew, Refused, Unreachable, refused

if TYPE_CHECKING:
    from collections.abc import Mapping

Answer = dict[str, Any]
LONGEST_BODY_SHOWN = 200


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """`seconds` are those in which an answer could have come."""

    base_url: str
    error: httpx.RequestError
    seconds: float


Outcome = httpx.Response | NoAnswer


def judged(outcome: Outcome) -> Answer:
    """The body of a success. Raises Unreachable, or Refused for any other answer."""
    if isinstance(outcome, NoAnswer):
        raise _unreachable(outcome) from outcome.error
    if not outcome.is_success:
        raise _refusal(outcome)
    said = _body(outcome)
    if not isinstance(said, dict):
        raise _foreign(outcome)
    return said


def refused_item(said: Any) -> Refused:
    """Of an item of a batch, from the error in its answer."""
    if not isinstance(said, dict) or not isinstance(said.get("status"), int):
        return NotACrew(200, "The answer to a batch of kickoffs is not a crew's.", "Check the address.")
    later = said.get("retry_after")
    return _in_words(said["status"], str(said.get("error")), said, float(later) if isinstance(later, int) else 0.0)


def _refusal(answer: httpx.Response) -> Refused:
    said = _body(answer)
    if answer.has_redirect_location:
        place = answer.headers["Location"]
        return NotACrew(answer.status_code, f"The server sends on to {place}.", "Give the address of a crew itself.")
    if not isinstance(said, dict) or not isinstance(said.get("message"), str):
        return _foreign(answer)
    return _in_words(answer.status_code, said.get("error") or answer.reason_phrase, said, _retry_after(answer))


def _in_words(status: int, title: str, said: Mapping[str, Any], retry_after: float) -> Refused:
    details = said.get("details")
    facts = details if isinstance(details, dict) else {}
    lines = [f"{status} {title}: {said.get('message')}", *map(_fact, facts.items())]
    return refused(status, "\n".join(lines), _hint(facts, retry_after), facts, retry_after)


def _fact(fact: tuple[str, object]) -> str:
    name, value = fact
    try:
        text = _value(value)
    except RecursionError:
        text = "too deeply nested to be shown"
    return f"  {name.replace('_', ' ')}: {text}"


def _value(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(_value(part) for part in value)
    if isinstance(value, dict):
        return "; ".join(f"{name}: {_value(part)}" for name, part in value.items())
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _hint(details: Mapping[str, Any], retry_after: float) -> str:
    if details.get("missing_inputs"):
        return "Give each of them; inputs() tells what the crew wants to know."
    return f"Try again in {retry_after:g} s." if retry_after else ""


def _foreign(answer: httpx.Response) -> NotACrew:
    """An answer that no crew of ours gives: a proxy's, or another program's."""
    text = " ".join(answer.text.split())
    shown = text[:LONGEST_BODY_SHOWN] + ("..." if len(text) > LONGEST_BODY_SHOWN else "")
    kind = answer.headers.get("Content-Type", "no content type")
    got = f"{answer.status_code} {answer.reason_phrase}, {kind}. {shown}".strip()
    return NotACrew(
        answer.status_code,
        f"{answer.url} does not answer as a crew does: {got}",
        "Check the address: it is a crew's base URL, as `windlass tokens show` prints it.",
        retry_after=_retry_after(answer),
    )


def _retry_after(answer: httpx.Response) -> float:
    given = answer.headers.get("Retry-After", "")
    return float(given) if given.isascii() and given.isdecimal() else 0.0


def _body(answer: httpx.Response) -> Any:
    try:
        return answer.json()
    except (ValueError, RecursionError):
        return None


def _unreachable(outcome: NoAnswer) -> Unreachable:
    error = outcome.error
    why = str(error).rstrip(".") or type(error).__name__
    if isinstance(error, httpx.ReadTimeout | httpx.WriteTimeout):
        why = f"no whole answer came in {round(outcome.seconds, 1):g} s"
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        hint = "Is the server running, and the address right?"
        return Unreachable(f"{outcome.base_url} can't be reached: {why}.", hint, was_sent=False)
    return Unreachable(f"{outcome.base_url} did not answer: {why}.", "Try again, or see the server's log.")
