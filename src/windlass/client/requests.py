"""What is sent to a crew, as values."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import uuid4

from windlass.client.errors import CrewError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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


@dataclass(frozen=True, slots=True)
class Request:
    """`wait` are seconds for which the server may hold its answer back, `after` those to let pass before it is sent."""

    method: str
    path: str
    content: bytes | None = None
    wait: float = 0.0
    after: float = 0.0

    def later(self, seconds: float) -> Request:
        return replace(self, after=seconds)


@dataclass(frozen=True, slots=True)
class Kickoff:
    """One of many. `members` are the others of the request (docs/api.md), as `priority` or `run_at`."""

    inputs: Mapping[str, Any]
    meta: Mapping[str, Any] | None = None
    idempotency_key: str | None = None
    members: Mapping[str, Any] = field(default_factory=dict)


def inputs() -> Request:
    return Request("GET", "/inputs")


def kickoff(content: bytes) -> Request:
    return Request("POST", "/kickoff", content)


def kickoffs(contents: Sequence[bytes]) -> Request:
    return Request("POST", "/kickoffs", b'{"kickoffs":[' + b",".join(contents) + b"]}")


def status(kickoff_id: str, wait: float = 0.0) -> Request:
    query = f"?wait={wait:g}" if wait else ""
    return Request("GET", f"/status/{quote(kickoff_id, safe='')}{query}", wait=wait)


def attempts(kickoff_id: str) -> Request:
    return Request("GET", f"/attempts/{quote(kickoff_id, safe='')}")


def stop(kickoff_id: str) -> Request:
    return Request("POST", f"/stop/{quote(kickoff_id, safe='')}")


def body(kickoff: Kickoff) -> bytes:
    """With a key of its own where none is given: whatever becomes of the answer, it can be sent again.

    Raises CrewError for what is no JSON, TypeError for a member that a kickoff does not have.
    """
    members = {_on_the_wire(name): _moment(value) for name, value in kickoff.members.items() if value is not None}
    meta = {} if kickoff.meta is None else {"meta": dict(kickoff.meta)}
    key = kickoff.idempotency_key or str(uuid4())
    return _json({"inputs": dict(kickoff.inputs), **meta, **members, "idempotencyKey": key})


def one_of_many(given: Kickoff | Mapping[str, Any], place: int, key: str | None) -> Kickoff:
    """`key` is that of all together: the same one gives the same key to the same place."""
    kickoff = given if isinstance(given, Kickoff) else Kickoff(given)
    if kickoff.idempotency_key is not None or key is None:
        return kickoff
    return replace(kickoff, idempotency_key=hashlib.sha256(f"{place} {key}".encode()).hexdigest())


def _on_the_wire(name: str) -> str:
    found = re.sub("_([a-z])", lambda letter: letter[1].upper(), name)
    if found not in MEMBERS:
        raise TypeError(f"a kickoff has no member {name!r}; it has: {', '.join(MEMBERS)}")
    return found


def _moment(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def _json(value: dict[str, Any]) -> bytes:
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise CrewError(
            f"The kickoff can't be written as JSON: {error}.",
            "Give text, finite numbers, True, False, None, and lists and dicts of these.",
        ) from None
