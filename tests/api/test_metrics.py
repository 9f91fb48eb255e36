"""/metrics, and its page."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families

from api.control import Person
from api.serving import serving, unknown_id
from windlass.api.metrics import QUEUES
from windlass.metrics import REGISTRY
from windlass.rights import Role

if TYPE_CHECKING:
    from api.serving import Crew, Server

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"
Samples = Counter[tuple[str, str]]


async def samples(server: Server, token: str | None = None) -> Samples:
    """Returns the values by name and deployment, or by name and API."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    answer = await server.http.get(f"{server.url}/metrics", headers=headers)
    assert answer.status_code == 200, answer.text
    found: Samples = Counter()
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            found[sample.name, sample.labels.get("deployment") or sample.labels.get("api", "")] += sample.value  # type: ignore[assignment]
    return found


@pytest_asyncio.fixture(loop_scope="session")
async def viewer(server: Server) -> Person:
    return await Person.of(server, Role.VIEWER)


@pytest.mark.asyncio(loop_scope="session")
async def test_the_load_of_each_queue_is_shown(server: Server, crew: Crew, viewer: Person) -> None:
    for members in ({}, {}, {"runAt": "2999-01-01T00:00:00Z"}):
        if members:
            await server.database.execute(
                "UPDATE kickoffs SET run_at = now() + interval '1 day', ready = false WHERE id = %(id)s",
                {"id": await crew.kickoff()},
            )
        else:
            await crew.kickoff()
    slug = crew.deployment.slug
    before = await samples(server, viewer.token)
    assert (before["windlass_queue_waiting", slug], before["windlass_queue_delayed", slug]) == (2, 1)
    assert before["windlass_queue_running", slug] == 0
    assert 0 < before["windlass_queue_oldest_seconds", slug] < 60
    await server.kickoffs.claim(UUID(unknown_id()), 1000, 60)
    after = await samples(server, viewer.token)
    assert (after["windlass_queue_waiting", slug], after["windlass_queue_running", slug]) == (0, 2)
    assert after["windlass_queue_oldest_seconds", slug] == 0


@pytest.mark.asyncio(loop_scope="session")
async def test_accepted_kickoffs_and_requests_are_counted(server: Server, crew: Crew, viewer: Person) -> None:
    before = await samples(server, viewer.token)
    await crew.kickoff()
    after = await samples(server, viewer.token)
    accepted = ("windlass_kickoffs_accepted_total", "")
    assert after[accepted] - before[accepted] == 1
    assert after["windlass_http_requests_total", "crew"] > before["windlass_http_requests_total", "crew"]


@pytest.mark.asyncio(loop_scope="session")
async def test_without_a_token_this_machine_gets_totals_without_names(server: Server, crew: Crew) -> None:
    await crew.kickoff()
    found = await samples(server)
    assert found["windlass_queue_waiting", ""] >= 1
    text = (await server.http.get(f"{server.url}/metrics")).text
    assert crew.deployment.slug not in text
    wrong = await server.http.get(f"{server.url}/metrics", headers={"Authorization": f"Bearer {crew.token}"})
    assert wrong.status_code == 401


@pytest.mark.asyncio(loop_scope="session")
async def test_a_server_with_a_public_address_needs_a_token(server: Server) -> None:
    async with serving(server.database.url, public_url="https://crews.example.com") as public:
        assert (await public.http.get(f"{public.url}/metrics")).status_code == 401


def test_the_page_has_every_metric() -> None:
    rows = set(re.findall(r"^\| `(windlass_\w+)` \|", PAGE.read_text("utf-8"), re.MULTILINE))
    counted = {
        family.name + ("_total" if family.type == "counter" else "")
        for family in REGISTRY.collect()
        if family.name.startswith("windlass_")
    }
    assert rows == {*counted, *QUEUES, "windlass_workers", "windlass_slots"}
