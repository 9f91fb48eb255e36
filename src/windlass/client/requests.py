"""What is sent to a crew, as values."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import uuid4

from windlass.client.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

MEMBERS = (
    "taskWebhookUrl",
    "stepWebhookUrl",
    "crewWebhookUrl",
    "webhooks",
    "humanInputWebhook",
    "priority",
    "runAt",
    "timeout",
    "limits",
    "concurrencyKey",
    "concurrencyStrategy",
)
"""Members of a kickoff beside `inputs`, `meta` and `idempotencyKey`."""
ANSWER_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Request:
    """`wait` are seconds for which the server may hold its answer back, `grace` those in which the whole of it has to
    come then; `after` are those to let pass before it is sent.
    """

    method: str
    path: str
    content: bytes | None = None
    wait: float = 0.0
    grace: float = ANSWER_SECONDS
    after: float = 0.0

    @property
    def target(self) -> str:
        return f"{self.path}?wait={self.wait:g}" if self.wait else self.path

    @property
    def seconds(self) -> float:
        """From its sending to the end of its answer at most."""
        return self.wait + self.grace

    def later(self, seconds: float) -> Request:
        return replace(self, after=seconds)

    def held(self, wait: float, grace: float) -> Request:
        return replace(self, wait=wait, grace=grace)


@dataclass(frozen=True, slots=True)
class Kickoff:
    """One of many. `members` are the others of the request (docs/api.md), as `priority` or `run_at`."""

    inputs: Mapping[str, Any]
    meta: Mapping[str, Any] | None = None
    idempotency_key: str | None = None
    members: Mapping[str, Any] = field(default_factory=dict)


Item = Kickoff | Mapping[str, Any]


def inputs() -> Request:
    return Request("GET", "/inputs")


def kickoff(content: bytes) -> Request:
    return Request("POST", "/kickoff", content)


def kickoffs(contents: Sequence[bytes]) -> Request:
    return Request("POST", "/kickoffs", b'{"kickoffs":[' + b",".join(contents) + b"]}")


def status(kickoff_id: str, wait: float = 0.0) -> Request:
    return Request("GET", f"/status/{_segment(kickoff_id)}", wait=wait)


def attempts(kickoff_id: str) -> Request:
    return Request("GET", f"/attempts/{_segment(kickoff_id)}")


def stop(kickoff_id: str) -> Request:
    return Request("POST", f"/stop/{_segment(kickoff_id)}")


def body(kickoff: Kickoff) -> bytes:
    """With a key of its own where none is given: whatever becomes of the answer, it can be sent again.

    Raises InvalidRequest for what no server would take.
    """
    members = {
        _on_the_wire(name): _member(name, value)
        for name, value in _object("members", kickoff.members).items()
        if value is not None
    }
    meta = {} if kickoff.meta is None else {"meta": _object("meta", kickoff.meta)}
    key = str(uuid4()) if kickoff.idempotency_key is None else kickoff.idempotency_key
    return _json({"inputs": _object("inputs", kickoff.inputs), **meta, **members, "idempotencyKey": key})


def bodies(items: Iterable[Item], key: str | None) -> list[bytes | InvalidRequest]:
    """For each item its body, or why it can't be sent. `key` is that of all together: the same one gives the same key
    to the same place. Raises InvalidRequest for what is no list, and for an empty key.
    """
    if not isinstance(items, Iterable) or isinstance(items, Mapping | str | bytes):
        raise _not_sent(f"Many kickoffs are given as a list, not as {_kind(items)}.", "Give a list of dicts.")
    if key == "":
        raise _not_sent("The idempotency key is empty.", "Leave it out, or give a text that names the list.")
    return [_body_or_why(one_of_many(item, place, key)) for place, item in enumerate(items)]


def one_of_many(given: Item, place: int, key: str | None) -> Kickoff:
    kickoff = given if isinstance(given, Kickoff) else Kickoff(given)
    if kickoff.idempotency_key is not None or key is None:
        return kickoff
    return replace(kickoff, idempotency_key=hashlib.sha256(f"{place} {key}".encode()).hexdigest())


def seconds(name: str, given: float | timedelta) -> float:
    if isinstance(given, timedelta):
        return given.total_seconds()
    if not isinstance(given, int | float) or math.isnan(given):
        raise _not_sent(f"`{name}` is no time: {given!r}.", "Give seconds as a number, or a timedelta.")
    return float(given)


def _body_or_why(kickoff: Kickoff) -> bytes | InvalidRequest:
    try:
        return body(kickoff)
    except InvalidRequest as error:
        return error


def _segment(kickoff_id: str) -> str:
    try:
        return quote(kickoff_id, safe="")
    except (TypeError, ValueError):
        raise _not_sent(
            f"This is no id of a kickoff: {kickoff_id!r}.", "Give the text that kickoff() returned."
        ) from None


def _on_the_wire(name: str) -> str:
    found = re.sub("_([a-z])", lambda letter: letter[1].upper(), name)
    if found not in MEMBERS:
        raise _not_sent(f"A kickoff has no member {name!r}.", f"It has: {', '.join(MEMBERS)}.")
    return found


def _member(name: str, value: Any) -> Any:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return {inner: _member(f"{name}.{inner}", given) for inner, given in value.items()}
    if not isinstance(value, datetime):
        return value
    if value.utcoffset() is None:
        raise _not_sent(
            f"`{name}` has no time zone: {value.isoformat()}.",
            "Give it one: datetime.now(UTC), or .astimezone() for this machine's own.",
        )
    return value.isoformat()


def _object(name: str, value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _not_sent(f"`{name}` has to be a dict of names and values, not {_kind(value)}.", "Give a dict.")
    return dict(value)


def _json(value: dict[str, Any]) -> bytes:
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise _not_sent(
            f"The kickoff can't be written as JSON: {error}.",
            "Give text, finite numbers, True, False, None, and lists and dicts of these.",
        ) from None


def _kind(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def _not_sent(message: str, hint: str) -> InvalidRequest:
    return InvalidRequest(HTTPStatus.BAD_REQUEST, message, hint)
