"""The settings `cors_origins` and `rate_limit` of a deployment act on its crew API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from api.control import Person
from api.serving import GOOD, until
from windlass.rights import Role

if TYPE_CHECKING:
    import httpx

    from api.serving import Crew, Server

pytestmark = pytest.mark.asyncio(loop_scope="session")
PAGE, OTHER = "https://app.example.com", "https://evil.example.com"


@pytest_asyncio.fixture(loop_scope="session")
async def developer(server: Server) -> Person:
    return await Person.of(server, Role.DEVELOPER)


async def configure(developer: Person, crew: Crew, **settings: Any) -> None:
    await developer.value("PATCH", f"/deployments/{crew.deployment.slug}/settings", json=settings)


async def preflight(crew: Crew, origin: str) -> httpx.Response:
    headers = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    return await crew.server.http.request("OPTIONS", f"{crew.base_url}/kickoff", headers=headers)


async def allowed(crew: Crew, developer: Person, *origins: str) -> None:
    await configure(developer, crew, cors_origins=list(origins))

    async def is_known() -> bool:
        return (await preflight(crew, PAGE)).status_code == 204

    await until(is_known, "the setting is known")


async def test_without_the_setting_no_page_of_another_origin_may_read_an_answer(crew: Crew) -> None:
    answer = await crew.get("/inputs", headers={"Origin": PAGE})
    assert answer.status_code == 200
    assert "access-control-allow-origin" not in answer.headers
    assert (await preflight(crew, PAGE)).status_code == 405


async def test_a_page_of_a_named_origin_may_use_the_crew_also_its_errors(crew: Crew, developer: Person) -> None:
    await allowed(crew, developer, PAGE)
    asked = await preflight(crew, PAGE)
    assert asked.headers["access-control-allow-origin"] == PAGE
    assert "Authorization" in asked.headers["access-control-allow-headers"]
    assert asked.headers["vary"] == "Origin"
    for answer in (
        await crew.post({"inputs": GOOD}, headers={"Origin": PAGE}),
        await crew.get("/status/nothing", headers={"Origin": PAGE}),
        await crew.get("/inputs", token="", headers={"Origin": PAGE}),
    ):
        assert answer.headers["access-control-allow-origin"] == PAGE, answer.status_code
    for origin in (OTHER, "null", f"{PAGE}.evil.com", PAGE.upper(), ""):
        assert "access-control-allow-origin" not in (await preflight(crew, origin)).headers
        refused = await crew.get("/inputs", headers={"Origin": origin})
        assert "access-control-allow-origin" not in refused.headers


async def test_a_star_permits_every_page_without_credentials(crew: Crew, developer: Person) -> None:
    await allowed(crew, developer, "*")
    answer = await crew.get("/inputs", headers={"Origin": OTHER})
    assert answer.headers["access-control-allow-origin"] == "*"
    assert "access-control-allow-credentials" not in answer.headers


async def test_no_page_of_another_origin_may_use_the_control_api(crew: Crew, developer: Person) -> None:
    await allowed(crew, developer, "*")
    answer = await developer.get("/me", headers={"Origin": PAGE})
    assert "access-control-allow-origin" not in answer.headers


async def test_the_rate_limit_of_a_crew_counts_each_token_alone(crew: Crew, developer: Person) -> None:
    other = await crew.server.crew()
    await configure(developer, crew, rate_limit=0.1)

    async def is_limited() -> bool:
        return (await crew.get("/inputs")).status_code == 429

    await until(is_limited, "the limit is known")
    refused = await crew.get("/inputs")
    assert int(refused.headers["retry-after"]) >= 1
    assert "0.1 requests a second" in refused.json()["message"]
    assert (await crew.get("/inputs", token=crew.user_token)).status_code == 200
    assert (await other.get("/inputs")).status_code == 200
    await configure(developer, crew, rate_limit=None)

    async def is_free() -> bool:
        return (await crew.get("/inputs")).status_code == 200

    await until(is_free, "the limit is gone")
