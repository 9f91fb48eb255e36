"""Converts the outcome of a request to a parsed answer or an error."""

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
A_CREW = "a crew"
A_SERVER = "a Windlass server"
ADDRESS_OF = {
    A_CREW: "It must be the base URL of a crew: `windlass tokens show` prints it.",
    A_SERVER: "It must be that of a server with the control API, such as https://crews.example.com.",
}
"""Maps what should have answered to a hint about its address."""


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """A request without an answer. `seconds` is the time that the client waited for the answer at most."""

    base_url: str
    error: httpx.RequestError
    seconds: float


Outcome = httpx.Response | NoAnswer


def parse_outcome(outcome: Outcome, of: str = A_CREW) -> Answer:
    """Returns the body of a success. Raises Unreachable without an answer, and Refused for any other answer. `of` is
    what should have answered.
    """
    if isinstance(outcome, NoAnswer):
        raise _unreachable(outcome) from outcome.error
    if not outcome.is_success:
        raise _refusal(outcome, of)
    response = _body(outcome)
    if not isinstance(response, dict):
        raise _not_a_crew(outcome, of)
    return response


def parse_content(outcome: Outcome) -> bytes:
    """Returns the content of a success. Raises as `parse_outcome` does."""
    if isinstance(outcome, NoAnswer):
        raise _unreachable(outcome) from outcome.error
    if not outcome.is_success:
        raise _refusal(outcome)
    return outcome.content


def refused_item(response: Any) -> Refused:
    """Returns the error of one item of a batch, from its entry in the answer."""
    if not isinstance(response, dict) or not isinstance(response.get("status"), int):
        return NotACrew(200, "The answer to a batch of kickoffs is not from a crew.", "Check the address.")
    later = response.get("retry_after")
    return _in_words(
        response["status"], str(response.get("error")), response, float(later) if isinstance(later, int) else 0.0
    )


def _refusal(answer: httpx.Response, of: str = A_CREW) -> Refused:
    response = _body(answer)
    if answer.has_redirect_location:
        place = answer.headers["Location"]
        return NotACrew(answer.status_code, f"The server redirects to {place}.", f"Use the address of {of}.")
    if not isinstance(response, dict) or not isinstance(response.get("message"), str):
        return _not_a_crew(answer, of)
    return _in_words(answer.status_code, response.get("error") or answer.reason_phrase, response, _retry_after(answer))


def _in_words(status: int, title: str, response: Mapping[str, Any], retry_after: float) -> Refused:
    details = response.get("details")
    facts = details if isinstance(details, dict) else {}
    message = str(response.get("message"))
    lines = [f"{status} {title}: {message}", *(_fact(fact) for fact in facts.items() if not _is_in(message, fact))]
    return refused(status, "\n".join(lines), _hint(facts, retry_after), facts, retry_after)


def _is_in(message: str, fact: tuple[str, object]) -> bool:
    """Returns whether the message names each invalid member with its reason already."""
    name, reasons = fact
    return (
        name == "invalid"
        and isinstance(reasons, dict)
        and all(f"{one}: {why}" in message for one, why in reasons.items())
    )


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
        return "Add each of them. inputs() returns the inputs of the crew."
    return f"Try again in {retry_after:g} s." if retry_after else ""


def _not_a_crew(answer: httpx.Response, of: str) -> NotACrew:
    """Returns the error for an answer that is not from a crew or a server, but from a proxy or another program."""
    text = " ".join(answer.text.split())
    shown = text[:LONGEST_BODY_SHOWN] + ("..." if len(text) > LONGEST_BODY_SHOWN else "")
    kind = answer.headers.get("Content-Type", "no content type")
    received = f"{answer.status_code} {answer.reason_phrase}, {kind}. {shown}".strip()
    return NotACrew(
        answer.status_code,
        f"{answer.url} does not answer as {of} does: {received}",
        f"Check the address. {ADDRESS_OF[of]}",
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
    reason = str(error).rstrip(".") or type(error).__name__
    if isinstance(error, httpx.ReadTimeout | httpx.WriteTimeout):
        reason = f"no complete answer within {round(outcome.seconds, 1):g} s"
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        hint = "Check that the server runs, and that the address is right."
        return Unreachable(f"{outcome.base_url} can't be reached: {reason}.", hint, was_sent=False)
    return Unreachable(f"{outcome.base_url} did not answer: {reason}.", "Try again, or read the server's log.")
