"""The requests to a crew, as values."""

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
from urllib.parse import quote, urlencode
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
    "humanInputWebhookUrl",
    "priority",
    "runAt",
    "timeout",
    "limits",
    "concurrencyKey",
    "concurrencyStrategy",
)
"""Members of a kickoff request, without `inputs`, `meta` and `idempotencyKey`."""
ANSWER_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Request:
    """A request with its times in seconds. The client waits for `after` before it sends the request. The server may
    hold back its answer for `wait`. The whole answer must then arrive within `grace`.
    """

    method: str
    path: str
    content: bytes | None = None
    wait: float = 0.0
    grace: float = ANSWER_SECONDS
    after: float = 0.0
    headers: Mapping[str, str] = field(default_factory=dict)
    pieces: Iterable[bytes] | None = None
    """The content of an upload, in place of `content`. Its length is in the headers."""

    @property
    def target(self) -> str:
        sign = "&" if "?" in self.path else "?"
        return f"{self.path}{sign}wait={self.wait:g}" if self.wait else self.path

    @property
    def seconds(self) -> float:
        """Returns the maximum time in seconds from sending the request to the end of its answer."""
        return self.wait + self.grace

    def later(self, seconds: float) -> Request:
        return replace(self, after=seconds)

    def held(self, wait: float, grace: float) -> Request:
        return replace(self, wait=wait, grace=grace)


@dataclass(frozen=True, slots=True)
class Kickoff:
    """One of many kickoffs.

    `members` are the other members of the request, such as `priority` (docs/reference/api.md).
    """

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


def list_kickoffs(state: str | None, user: str | None, limit: int, cursor: str | None) -> Request:
    wanted = {"state": state, "user": user, "limit": limit, "cursor": cursor}
    return Request("GET", f"/kickoffs?{urlencode({name: one for name, one in wanted.items() if one is not None})}")


def events(kickoff_id: str, after: int, limit: int) -> Request:
    return Request("GET", f"/events/{_segment(kickoff_id)}?after={after}&limit={limit}")


def event_stream(kickoff_id: str, after: int, *, again: bool) -> Request:
    """Requests the events after the number `after` as a stream. A kickoff that has ended has no content `again`."""
    headers = {"Accept": "text/event-stream", **({"Last-Event-ID": str(after)} if again else {})}
    return Request("GET", f"/events/{_segment(kickoff_id)}?after={after}", headers=headers)


def files(kickoff_id: str) -> Request:
    return Request("GET", f"/files/{_segment(kickoff_id)}")


def piece(kickoff_id: str, path: str, sha256: str, start: int, end: int) -> Request:
    """Requests bytes of a file. The whole file is the answer if its content is not the one with this digest."""
    headers = {"Range": f"bytes={start}-{end - 1}", "If-Range": f'"{sha256}"', "Accept": "*/*"}
    return Request("GET", f"/files/{_segment(kickoff_id)}/{quote(path)}", headers=headers)


def stop(kickoff_id: str) -> Request:
    return Request("POST", f"/stop/{_segment(kickoff_id)}")


def delete(kickoff_id: str, *, stop: bool) -> Request:
    return Request("DELETE", f"/kickoffs/{_segment(kickoff_id)}{'?stop=true' if stop else ''}")


def resume(
    kickoff_id: str, task_id: str, approve: bool | None, feedback: str | None, idempotency_key: str | None
) -> Request:
    """Requests the answer to a question. It always has an idempotency key, so that it can be repeated."""
    members = {"execution_id": kickoff_id, "task_id": task_id, "is_approve": approve, "human_feedback": feedback}
    given = {name: value for name, value in members.items() if value is not None}
    return Request("POST", "/resume", _json({**given, "idempotencyKey": idempotency_key or str(uuid4())}))


def stop_all(state: str | None, user: str | None, before: datetime | None) -> Request:
    wanted = {"state": state, "user": user, "before": _member("before", before)}
    return Request("POST", "/stop", _json({name: value for name, value in wanted.items() if value is not None}))


def body(kickoff: Kickoff) -> bytes:
    """Returns the body of a kickoff request. It always has an idempotency key, so that the request can be repeated if
    the answer is lost.

    Raises InvalidRequest for a kickoff that no server would accept.
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
    """Returns the body of each item, or the reason why it can't be sent. `key` is the idempotency key of the whole
    list. The key of an item is derived from `key` and the item's place. Raises InvalidRequest if `items` is not a list,
    and for an empty key.
    """
    if not isinstance(items, Iterable) or isinstance(items, Mapping | str | bytes):
        raise _not_sent(f"The kickoffs must be a list, not {_kind(items)}.", "Pass a list of dicts.")
    if key == "":
        raise _not_sent("The idempotency key is empty.", "Omit it, or pass a non-empty string.")
    return [_body_or_why(_with_key(item, place, key)) for place, item in enumerate(items)]


def _with_key(given: Item, place: int, key: str | None) -> Kickoff:
    kickoff = given if isinstance(given, Kickoff) else Kickoff(given)
    if kickoff.idempotency_key is not None or key is None:
        return kickoff
    return replace(kickoff, idempotency_key=hashlib.sha256(f"{place} {key}".encode()).hexdigest())


def seconds(name: str, given: float | timedelta) -> float:
    if isinstance(given, timedelta):
        return given.total_seconds()
    if not isinstance(given, int | float) or math.isnan(given):
        raise _not_sent(f"`{name}` is not a time: {given!r}.", "Pass seconds as a number, or a timedelta.")
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
            f"This is not the id of a kickoff: {kickoff_id!r}.", "Pass the string that kickoff() returned."
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
            "Add one: datetime.now(UTC), or .astimezone() for the local time zone.",
        )
    return value.isoformat()


def _object(name: str, value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _not_sent(f"`{name}` must be a dict of names and values, not {_kind(value)}.", "Pass a dict.")
    return dict(value)


def _json(value: dict[str, Any]) -> bytes:
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise _not_sent(
            f"The kickoff can't be written as JSON: {error}.",
            "Pass strings, finite numbers, True, False, None, and lists and dicts of these.",
        ) from None


def _kind(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def _not_sent(message: str, hint: str) -> InvalidRequest:
    return InvalidRequest(HTTPStatus.BAD_REQUEST, message, hint)
