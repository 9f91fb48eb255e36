"""Attack: one user token fills the queue of a crew, far ahead and with the highest priority: nobody else has a turn."""

from __future__ import annotations

import asyncio
import itertools
import json
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from psycopg.sql import SQL

from cli.the_command import Command, ForkedCommand
from patience import DEADLINE
from store.shared_database import made
from windlass.kickoffs.manifest import Manifest
from windlass.store.database import Database
from windlass.store.deployments import Deployment, DeploymentStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

QUEUE = 1000
SHARE = 250
MANY = 10_000
numbers = itertools.count(1)
pytestmark = pytest.mark.xdist_group("one_user_and_the_queue")
PILE_UP = SQL(
    "INSERT INTO kickoffs (id, deployment_id, version_id, inputs, user_id) "
    "SELECT gen_random_uuid(), %(deployment)s, %(version)s, '{}', (SELECT id FROM users WHERE name = %(user)s) "
    "  FROM generate_series(1, %(count)s)"
)


class Crew:
    """A crew that `windlass api` serves as a process of its own; no worker takes its kickoffs.

    Its users have names of their own, as other tests share the server.
    """

    def __init__(self, windlass: Command, database: Database, deployment: Deployment, address: str) -> None:
        self.windlass = windlass
        self.database = database
        self.deployment = deployment
        self.url = f"{address}/crews/{deployment.slug}"

    def named(self, user: str) -> str:
        return f"{user}-of-{self.deployment.slug}"

    def token_of(self, user: str) -> str:
        assert self.windlass("admin", "users", "add", self.named(user)).code == 0
        of_crew = ("--deployment", self.deployment.slug)
        return self.windlass("tokens", "create", "--user", self.named(user), *of_crew).out.strip()

    @cached_property
    def organization(self) -> str:
        of_crew = ("--deployment", self.deployment.slug)
        return self.windlass("tokens", "show", "--kind", "organization", *of_crew).out.strip()

    def client(self, token: str) -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=DEADLINE)

    async def pile_up(self, user: str, count: int) -> None:
        version = self.deployment.version
        assert version
        user = self.named(user)
        values = {"deployment": self.deployment.id, "version": version.id, "user": user, "count": count}
        await self.database.execute(PILE_UP, values)

    async def waiting(self) -> int:
        of_crew = "SELECT count(*) AS count FROM kickoffs WHERE state = 'PENDING' AND deployment_id = %(id)s"
        row = await self.database.row(of_crew, {"id": self.deployment.id})
        return int(row["count"]) if row else 0


@pytest.fixture(scope="module")
def url(postgres: str) -> Iterator[str]:
    yield from made(postgres, "one_user_and_the_queue")


@pytest.fixture(scope="module")
def windlass(url: str, tmp_path_factory: pytest.TempPathFactory) -> Command:
    secrets = {"WINDLASS_DATABASE_URL": url, "WINDLASS_MASTER_KEY": "A" * 43 + "="}
    return ForkedCommand(tmp_path_factory.mktemp("home"), secrets)


@pytest.fixture(scope="module")
def address(windlass: Command) -> Iterator[str]:
    with windlass.started("api", "--port", "0", WINDLASS_MAX_WAITING=str(QUEUE)) as server:
        line = server.wait_for("serving every crew")
        windlass.environment["WINDLASS_PORT"] = line.partition("127.0.0.1:")[2].partition("/")[0]
        yield f"http://127.0.0.1:{windlass.environment['WINDLASS_PORT']}"


@pytest.fixture
async def crew(windlass: Command, url: str, address: str) -> AsyncIterator[Crew]:
    async with Database(url) as database:
        manifest = Manifest("function", "tea", {"type": "object"}, ())
        slug = f"tea-{next(numbers)}"
        deployment = await DeploymentStore(database).register(slug, digest="1", source={}, manifest=manifest)
        yield Crew(windlass, database, deployment, address)


async def batch(client: httpx.AsyncClient, count: int, **members: Any) -> list[dict[str, Any]]:
    answer = await client.post("/kickoffs", json={"kickoffs": [{"inputs": {}, **members}] * count})
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["kickoffs"]
    return found


async def test_a_user_that_sends_ten_times_the_queue_gets_a_quarter_of_it_and_others_are_served(crew: Crew) -> None:
    attacker, other = crew.token_of("mallory"), crew.token_of("ann")
    ahead = (datetime.now(UTC) + timedelta(days=6)).isoformat()
    async with crew.client(attacker) as mallory, crew.client(other) as ann, crew.client(crew.organization) as all_:
        answers = [one for _ in range(10) for one in await batch(mallory, QUEUE, runAt=ahead)]
        refused = [one["error"] for one in answers if "error" in one]
        assert len(answers) - len(refused) == SHARE == await crew.waiting()
        assert {error["status"] for error in refused} == {429}
        assert all(error["retry_after"] >= 1 for error in refused)
        alone = await mallory.post("/kickoff", json={"inputs": {}})
        assert (alone.status_code, alone.json()["details"]) == (
            429,
            {"waiting_of_user": SHARE, "max_waiting_of_user": SHARE},
        )
        assert int(alone.headers["Retry-After"]) >= 1
        assert "share" in alone.json()["message"]
        for client in (ann, all_):
            assert (await client.post("/kickoff", json={"inputs": {}})).status_code == 200
        # The user makes room with one request, and may go on.
        assert (await mallory.post("/stop", json={})).json()["stopped"] == SHARE
        assert await crew.waiting() == 2
        assert (await mallory.post("/kickoff", json={"inputs": {}})).status_code == 200


async def test_the_requests_of_one_user_that_arrive_together_share_one_bound(crew: Crew) -> None:
    async with crew.client(crew.token_of("mallory")) as mallory:
        await asyncio.gather(*(batch(mallory, 100) for _ in range(10)))
        assert await crew.waiting() == SHARE


@pytest.mark.parametrize(
    ("member", "value", "bound"),
    [
        ("priority", 100, "at most 0"),
        ("priority", 1, "at most 0"),
        ("runAt", timedelta(days=365), "at most 7 days"),
        ("runAt", timedelta(days=7, minutes=5), "at most 7 days"),
    ],
)
async def test_a_user_can_neither_pass_the_others_nor_reserve_a_year(
    crew: Crew, member: str, value: Any, bound: str
) -> None:
    if isinstance(value, timedelta):
        value = (datetime.now(UTC) + value).isoformat()
    body = {"inputs": {}, member: value}
    async with crew.client(crew.token_of("mallory")) as mallory, crew.client(crew.organization) as all_:
        refused = await mallory.post("/kickoff", json=body)
        assert refused.status_code == 400
        assert bound in refused.json()["details"]["invalid_members"][member]
        assert (await batch(mallory, 1, **{member: value}))[0]["error"]["status"] == 400
        assert await crew.waiting() == 0
        assert (await all_.post("/kickoff", json=body)).status_code == 200


async def test_ten_thousand_kickoffs_of_a_user_are_stopped_at_once_while_others_are_served(crew: Crew) -> None:
    token = crew.token_of("mallory")
    await crew.pile_up("mallory", MANY)
    async with crew.client(crew.organization) as all_:
        stopping = asyncio.create_task(all_.post("/stop", json={"user": crew.named("mallory")}))
        served = 0
        while not stopping.done():
            # The queue is over its bound until the kickoffs are gone, so what is served is a status.
            answer = await all_.get("/inputs")
            assert answer.status_code == 200
            answer = await all_.get("/status/00000000-0000-7000-8000-000000000000")
            assert answer.status_code == 404
            served += 1
        assert (await stopping).json()["stopped"] == MANY
        assert served > 1
        assert await crew.waiting() == 0
    async with crew.client(token) as mallory:
        assert (await mallory.post("/kickoff", json={"inputs": {}})).status_code == 200


async def test_the_command_stops_what_a_user_started_and_nothing_else(crew: Crew) -> None:
    crew.token_of("mallory")
    crew.token_of("ann")
    await crew.pile_up("mallory", 300)
    await crew.pile_up("ann", 2)
    stop = ("stop", crew.url, "--all", "--user", crew.named("mallory"))
    ended = crew.windlass(*stop, WINDLASS_TOKEN=crew.organization)
    assert (ended.code, ended.out) == (0, "")
    assert ended.err.startswith("300 kickoffs are stopped.")
    assert await crew.waiting() == 2
    again = crew.windlass(*stop, "--json-output", WINDLASS_TOKEN=crew.organization)
    assert json.loads(again.out)["stopped"] == 0
