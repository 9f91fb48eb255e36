"""What all pages share over plain HTTP: compression, and times and words that people read."""

from __future__ import annotations

import gzip
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from windlass.dashboard.audit import ACTIONS, WORDS, target_of
from windlass.dashboard.templating import ago, utc
from windlass.kickoffs.ids import new_id
from windlass.store.audit import AuditEntry

if TYPE_CHECKING:
    from api.serving import Crew, Server
    from dashboard.people import Visitor

PEOPLE = Path(__file__).parents[2] / "docs/how-to/people.md"


@pytest.mark.asyncio(loop_scope="session")
async def test_pages_are_compressed_and_answers_with_a_token_are_not(crew: Crew, developer: Visitor) -> None:
    plain = await developer.get("/ui/account", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    lengths = set()
    for _ in range(20):
        async with developer.http.stream("GET", "/ui/account") as answer:
            raw = b"".join([piece async for piece in answer.aiter_raw()])
        assert answer.headers["content-encoding"] == "gzip"
        assert answer.headers["vary"] == "Accept-Encoding"
        assert int(answer.headers["content-length"]) == len(raw)
        assert b"Your account" in gzip.decompress(raw)
        lengths.add(len(raw))
    assert max(lengths) < len(plain.content) / 2
    assert len(lengths) > 3, "the length says nothing about the text"
    path = f"/ui/crews/{crew.deployment.slug}/tokens/organization/show"
    shown = await developer.post(path)
    assert "wlo_" in shown.text
    assert "content-encoding" not in shown.headers


@pytest.mark.asyncio(loop_scope="session")
async def test_the_parts_of_the_api_page_are_compressed(server: Server, developer: Visitor) -> None:
    for name in ("swagger-ui-bundle.js", "swagger-ui.css", "docs.js"):
        packed = await developer.get(f"/api/v1/docs/{name}")
        plain = await developer.get(f"/api/v1/docs/{name}", headers={"Accept-Encoding": "identity"})
        assert (packed.status_code, packed.headers["content-encoding"]) == (200, "gzip")
        assert packed.content == plain.content
        assert "content-encoding" not in plain.headers
    assert (await developer.get("/api/v1/docs/other.js")).status_code == 404


def test_a_time_of_another_day_is_shown_in_full() -> None:
    now = datetime(2026, 3, 5, 12, tzinfo=UTC)
    for before, words in {
        timedelta(seconds=0.4): "now",
        timedelta(seconds=42): "42 s ago",
        timedelta(minutes=90): "1 h ago",
        timedelta(hours=-3): "in 3 h",
        timedelta(hours=24): "4 Mar, 12:00 UTC",
        timedelta(days=-2): "7 Mar, 12:00 UTC",
        timedelta(days=100): "25 Nov 2025",
    }.items():
        assert ago(now - before, now) == words
    assert utc(now) == "2026-03-05 12:00:00 UTC"


def test_the_audit_log_has_words_for_each_action_and_leads_to_its_target() -> None:
    table = PEOPLE.read_text("utf-8").split("| actions | |")[1].split("\n\n")[0]
    assert set(re.findall(r"`(\w+\.\w+)`", table)) == set(WORDS)
    kickoff = new_id()

    def target(action: str, name: str, **details: str) -> str | None:
        at = datetime.now(UTC)
        return target_of(AuditEntry(new_id(), at, "anna", None, action, name, details, None))[1]

    assert target("kickoff.start", str(kickoff)) == f"/ui/executions/{kickoff}"
    assert target("kickoff.delete", str(kickoff)) is None
    assert target("kickoff.stop_all", "tea") == "/ui/crews/tea"
    assert target("variable.set", "tea") == "/ui/crews/tea"
    assert target("deployment.remove", "tea") is None
    assert target("user.add", "a/b ü") == "/ui/people/user?name=a%2Fb%20%C3%BC"
    assert target("credential.add", "prod") == "/ui/credentials/prod"
    assert target("keys.rotate", "k1") is None
    assert all(title and names for title, names in ACTIONS.values())
