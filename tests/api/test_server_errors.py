"""What a client is told when something fails here: 500 with a reference, 503 while the database is away."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from api.runs import begin
from api.serving import Crew, serving, unknown_id, until
from windlass.embedded_postgres.postgres import EmbeddedPostgres
from windlass.store.database import Database
from windlass.store.migrate import migrate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    import httpx

pytestmark = pytest.mark.asyncio(loop_scope="session")

AWAY = "The database is unavailable. Send the request again; with an idempotency key, a kickoff can't start twice."
UNEXPECTED = re.compile(r"The server failed to process the request\. Search its log for the reference ([0-9a-f]{12})\.")

END_CLIENTS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND backend_type = 'client backend'
"""
"""Autovacuum may be there too, which only a superuser may end."""


@asynccontextmanager
async def own_crew(database_url: str) -> AsyncIterator[Crew]:
    """A crew on a database that a test may break."""
    async with serving(database_url) as server:
        yield await server.crew()


async def asked(crew: Crew, kickoff: str) -> dict[str, httpx.Response]:
    """At the same time: each may wait for the database as long as it has patience."""
    requests = {
        "healthy": crew.get("/"),
        "inputs": crew.get("/inputs"),
        "kickoff": crew.post({"inputs": {"topic": "tides", "audience": "sailors"}}),
        "status": crew.get(f"/status/{kickoff}"),
        "old status": crew.get(f"/{kickoff}/status"),
        "document": crew.get("/openapi.json"),
        "docs": crew.get("/docs"),
    }
    return dict(zip(requests, await asyncio.gather(*requests.values()), strict=True))


async def noticed(crew: Crew) -> None:
    """What the server remembers of its database is forgotten."""

    async def unavailable() -> bool:
        return not crew.server.listener.listening.is_set()

    await until(unavailable, "the server knows that its database is away")


@asynccontextmanager
async def database_away(postgres: str, database_url: str) -> AsyncIterator[None]:
    """It ends every connection and takes no new ones, as one that is being started again does."""
    name = str(psycopg.conninfo.conninfo_to_dict(database_url)["dbname"])
    allow = SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(allow.format(Identifier(name), SQL("false")))
        try:
            connection.execute(END_CLIENTS, (name,))
            yield
        finally:
            connection.execute(allow.format(Identifier(name), SQL("true")))


async def test_an_unexpected_error_is_told_with_a_reference_and_nothing_else(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with own_crew(database_url) as crew:
        await crew.server.database.execute("ALTER TABLE kickoffs DROP COLUMN inputs")
        answer = await crew.post({"inputs": {"topic": "a secret topic", "audience": "x"}})
    assert answer.status_code == 500
    assert answer.json().keys() == {"error", "message", "details"}
    assert (answer.json()["error"], answer.json()["details"]) == ("Server Error", {})
    found = UNEXPECTED.fullmatch(answer.json()["message"])
    assert found, answer.text
    (record,) = [record for record in caplog.records if record.msg == "request.failed"]
    assert record.event_fields == {"reference": found[1], "method": "POST", "path": f"{crew.path}/kickoff"}  # type: ignore[attr-defined]
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], psycopg.errors.UndefinedColumn)
    assert "a secret topic" not in caplog.text


async def test_each_unexpected_error_has_a_reference_of_its_own(database_url: str) -> None:
    async with own_crew(database_url) as crew:
        kickoff = await crew.kickoff()
        await crew.server.database.execute("ALTER TABLE kickoffs DROP COLUMN attempt CASCADE")
        answers = [await crew.get(f"/status/{kickoff}") for _ in range(3)]
    assert {answer.status_code for answer in answers} == {500}
    assert len({answer.json()["message"] for answer in answers}) == 3


async def test_one_kickoff_that_cannot_be_stored_spoils_no_other(database_url: str) -> None:
    async with own_crew(database_url) as crew:
        await crew.server.database.execute("ALTER TABLE kickoffs ADD CHECK (meta ->> 'bad' IS NULL)")
        bodies = [
            {"inputs": {"topic": "x", "audience": "y"}, "meta": {"bad": turn} if turn == 5 else {}}
            for turn in range(10)
        ]
        answers = await asyncio.gather(*map(crew.post, bodies))
    assert [answer.status_code for answer in answers] == [200] * 5 + [500] + [200] * 4


async def test_a_server_stays_able_to_serve_after_an_unexpected_error(database_url: str) -> None:
    async with own_crew(database_url) as crew:
        await crew.server.database.execute("ALTER TABLE kickoffs RENAME COLUMN inputs TO other")
        assert (await crew.post({"inputs": {"topic": "x", "audience": "y"}})).status_code == 500
        await crew.server.database.execute("ALTER TABLE kickoffs RENAME COLUMN other TO inputs")
        assert (await crew.post({"inputs": {"topic": "x", "audience": "y"}})).status_code == 200


async def test_while_the_database_is_away_every_endpoint_says_503_and_when_to_come_back(
    postgres: str, database_url: str
) -> None:
    async with own_crew(database_url) as crew:
        kickoff = await crew.kickoff()
        async with database_away(postgres, database_url):
            await noticed(crew)
            for endpoint, answer in (await asked(crew, kickoff)).items():
                assert answer.status_code == 503, endpoint
                assert answer.headers["retry-after"] == "2"
                assert answer.json() == {"error": "Service Unavailable", "message": AWAY, "details": {}}


async def test_a_token_is_never_called_wrong_because_the_database_is_away(postgres: str, database_url: str) -> None:
    async with own_crew(database_url) as crew:
        revoked = await crew.organization_token()
        await crew.server.tokens.revoke(revoked[-4:])
        async with database_away(postgres, database_url):
            await noticed(crew)
            assert (await crew.get("/inputs", token=crew.token)).status_code == 503
            assert (await crew.get("/inputs", token=revoked)).status_code == 503
            assert (await crew.get("/inputs", token="x")).status_code == 401


async def test_health_answers_and_ready_says_no_while_the_database_is_away(postgres: str, database_url: str) -> None:
    async with own_crew(database_url) as crew:
        http, url = crew.server.http, crew.server.url
        async with database_away(postgres, database_url):
            assert (await http.get(f"{url}/health")).json() == {"status": "ok"}
            ready = await http.get(f"{url}/ready")
        assert ready.status_code == 503
        assert ready.json() == {
            "status": "failing",
            "checks": {"database": "failing"},
            "problems": {"database": "The database does not answer."},
        }


async def test_a_request_that_waits_is_told_503_and_not_left_waiting(postgres: str, database_url: str) -> None:
    async with own_crew(database_url) as crew:
        await begin(crew, kickoff := await crew.kickoff())
        held = asyncio.create_task(crew.get(f"/status/{kickoff}?wait=60"))

        async def waiting() -> bool:
            return bool(crew.server.statuses._ends._waiting)

        await until(waiting, "the request is held back")
        async with database_away(postgres, database_url):
            assert (await held).status_code == 503


async def served(crew: Crew, kickoff: str) -> bool:
    answers = (await asked(crew, kickoff)).values()
    assert {answer.status_code for answer in answers} <= {200, 503}
    return all(answer.status_code == 200 for answer in answers)


@pytest.fixture
def own_postgres(open_folder: Path) -> Iterator[EmbeddedPostgres]:
    """One that a test may stop."""
    postgres = EmbeddedPostgres(open_folder)
    postgres.start()
    yield postgres
    postgres.stop()


@contextmanager
def frozen(url: str) -> Iterator[None]:
    """All of its processes stand still, and its sockets are there."""
    with psycopg.connect(url) as connection:
        found = [pid for (pid,) in connection.execute("SELECT pid FROM pg_stat_activity")]
    (parent,) = set(re.findall(r"^PPid:\s+(\d+)", Path(f"/proc/{found[0]}/status").read_text("utf-8"), re.MULTILINE))
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text("ascii").split()
    processes = [int(parent), *map(int, children)]
    send(processes, signal.SIGSTOP)
    try:
        yield
    finally:
        send(processes, signal.SIGCONT)


def send(processes: list[int], number: signal.Signals) -> None:
    for process in processes:
        with suppress(ProcessLookupError):  # connections come and go
            os.kill(process, number)


async def test_while_postgresql_stands_still_a_status_and_a_stop_are_answered(
    own_postgres: EmbeddedPostgres,
) -> None:
    async with Database(own_postgres.url) as database:
        await migrate(database)
    async with own_crew(own_postgres.url) as crew:
        kickoff = await crew.kickoff()
        with frozen(own_postgres.url):
            requests = [crew.request("POST", f"/stop/{kickoff}"), crew.get(f"/status/{kickoff}")]
            requests.append(crew.server.http.get(f"{crew.server.url}/ready"))
            async with asyncio.timeout(60):  # PostgreSQL would not answer at all
                answers = await asyncio.gather(*requests)
        assert [answer.status_code for answer in answers] == [503] * 3
        await until(lambda: served(crew, kickoff), "all is served again")
        assert (await crew.stop(kickoff))["state"] == "FAILED"


async def test_all_is_served_again_by_itself_when_a_stopped_postgresql_is_back(own_postgres: EmbeddedPostgres) -> None:
    url = own_postgres.url
    async with Database(url) as database:
        await migrate(database)
    async with own_crew(url) as crew:
        kickoff = await crew.kickoff(meta={"note": "from before"})
        await asyncio.to_thread(own_postgres.stop)
        await noticed(crew)
        for endpoint, answer in (await asked(crew, kickoff)).items():
            assert answer.status_code == 503, endpoint
        assert await asyncio.to_thread(own_postgres.start) == url
        await until(lambda: served(crew, kickoff), "all is served again")
        assert (await crew.status(kickoff))["meta"] == {"note": "from before"}
        assert (await crew.get(f"/status/{unknown_id()}")).status_code == 404
