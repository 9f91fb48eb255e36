"""Requests under foreign names, paths with two meanings, and what answers tell to those who should not know."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from api.described import check_error
from api.runs import begin
from api.serving import raw, serving
from windlass.api.application import MOST_HOSTS, Hosts
from windlass.config import Settings
from windlass.kickoffs.ids import new_id
from windlass.store.claiming import host as host_name
from windlass.wiring.http_settings import hosts_of, warn_without_tls

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from api.serving import Crew, Server

pytestmark = pytest.mark.asyncio(loop_scope="session")

EVIL = "evil.example.net"


@asynccontextmanager
async def served(crew: Crew, **settings: Any) -> AsyncIterator[Server]:
    """With the names that a server with these settings takes."""
    async with serving(crew.server.database.url, hosts=hosts_of(Settings(**settings))) as server:
        yield server


async def asked_as(server: Server, host: str, path: str = "/health", more: str = "") -> tuple[int, bytes]:
    status, headers, content = await raw(server.port, f"GET {path} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n".encode())
    if status >= 400:
        check_error(status, headers, content)
    return status, content


async def test_a_page_that_points_its_own_name_at_this_machine_reaches_nothing(crew: Crew) -> None:
    async with served(crew) as server:
        for host in (
            EVIL,
            f"{EVIL}:{server.port}",
            "localhost.evil.example.net",
            f"localhost@{EVIL}",
            "bench",
            "x" * 9999,
        ):
            for path in ("/health", f"{crew.path}/openapi.json"):
                status, content = await asked_as(server, host, path)
                assert status == 421
                assert b"WINDLASS_ALLOWED_HOSTS" in content
                assert b"evil" not in content


async def test_a_server_is_reached_by_its_own_names(crew: Crew) -> None:
    settings = {
        "public_url": "https://crews.example.com/below",
        "crew_domain": "all.example.com",
        "allowed_hosts": ["inner.example.com", "*.lan.example.com"],
    }
    names = [
        "127.0.0.1",
        "[::1]",
        "10.1.2.3",
        "localhost",
        "LOCALHOST.",
        "a.localhost",
        "crews.example.com",
        "all.example.com",
    ]
    names += ["slug.all.example.com", "inner.example.com", "x.lan.example.com", ""]
    async with served(crew, **settings) as server:
        for name in names:
            for port in ("", f":{server.port}" if name else ""):
                assert (await asked_as(server, f"{name}{port}"))[0] == 200, name
        for name in ("example.com", "other.example.com", "xinner.example.com", EVIL):
            assert (await asked_as(server, name))[0] == 421, name


async def test_services_of_a_cluster_reach_a_server_that_others_reach() -> None:
    assert hosts_of(Settings(host="0.0.0.0")).allows("windlass:8000")
    assert not hosts_of(Settings(host="0.0.0.0")).allows(EVIL)
    assert hosts_of(Settings(OIDC_ISSUER="https://id.example.com/x")).allows("id.example.com"), "providers use it"
    assert hosts_of(Settings(allowed_hosts=["*"])).allows(EVIL)


async def test_names_that_are_made_up_take_no_memory() -> None:
    hosts = Hosts([], plain=False)
    for number in range(3 * MOST_HOSTS):
        assert not hosts.allows(f"{number}.{EVIL}")
    assert len(hosts._cache) <= MOST_HOSTS


async def test_two_host_headers_are_refused(crew: Crew) -> None:
    async with served(crew) as server:
        assert (await asked_as(server, "localhost", more=f"Host: {EVIL}\r\n"))[0] == 400


async def test_the_document_does_not_repeat_the_host(crew: Crew) -> None:
    for host in (EVIL, f"{EVIL}/x?y=", "<script>"):
        status, content = await asked_as(crew.server, host, f"{crew.path}/openapi.json")
        assert status == 200
        assert b"evil" not in content
        assert b"<script>" not in content
        assert f'"servers":[{{"url":"{crew.path}"}}]'.encode() in content


@pytest.mark.parametrize(
    "path",
    [
        "/crews/other%2F..%2Fwriters/inputs",
        "/crews/a%2fb",
        "/crews/a%5Cb",
        "/crews/a\\b",
        "/crews/x/%2e%2E/writers/inputs",
        "/crews/x/../writers/inputs",
        "/crews/./writers",
        "/status/..",
        "/%2e",
    ],
)
async def test_a_path_that_could_mean_two_is_refused_before_anything_else(crew: Crew, path: str) -> None:
    status, content = await asked_as(crew.server, "localhost", path)
    assert status == 400
    assert b"encoded slash" in content


async def test_an_encoded_slash_does_not_lead_to_what_a_proxy_refuses(crew: Crew) -> None:
    """A proxy that permits all paths but `/crews/<slug>/inputs` passes this one on."""
    status, content = await asked_as(
        crew.server, "localhost", f"{crew.path}%2Finputs", f"Authorization: Bearer {crew.token}\r\n"
    )
    assert status == 400, content
    assert b"audience" not in content


async def test_other_encoded_characters_and_dots_in_names_are_taken(crew: Crew) -> None:
    for path in ("/crews/%61%2Db", "/.well-known/x", "/status/a..b", "/x?path=%2F..%2F"):
        assert (await asked_as(crew.server, "localhost", path))[0] in {401, 404}


async def test_no_answer_is_kept_or_read_as_another_type(crew: Crew) -> None:
    kickoff = await crew.kickoff()
    answers = [
        await crew.get("/"),
        await crew.get("/inputs"),
        await crew.get(f"/status/{kickoff}"),
        await crew.get("/openapi.json"),
        await crew.get("/docs"),
        await crew.get("/nothing"),
        await crew.get("/inputs", token=""),
        await crew.server.http.get(f"{crew.server.url}/health"),
    ]
    for answer in answers:
        assert answer.headers.get_list("cache-control") == ["no-store"]
        assert answer.headers.get_list("x-content-type-options") == ["nosniff"]
    _, headers, _ = await raw(crew.server.port, b"nonsense\r\n\r\n")
    assert (headers["cache-control"], headers["x-content-type-options"]) == ("no-store", "nosniff")


async def test_a_user_sees_no_host_names(crew: Crew) -> None:
    run = await begin(crew, kickoff := await crew.kickoff(token=crew.user_token))
    for token, host in ((crew.token, host_name()), (crew.user_token, None)):
        answer = await crew.get(f"/attempts/{kickoff}", token=token)
        assert [attempt["host"] for attempt in answer.json()["attempts"]] == [host]
        assert token == crew.token or host_name() not in answer.text
    await run.succeed()


async def test_a_user_sees_nothing_of_the_slots_of_other_crews(crew: Crew) -> None:
    add = (
        "INSERT INTO workers (id, host, pid, version, slots, alive_until) "
        "VALUES (%(id)s, 'secret-host', 1, '1', 1, now() + interval '1 minute')"
    )
    worker = new_id()
    await crew.server.database.execute(add, {"id": worker})
    try:
        other = await crew.server.crew()
        run = await begin(other, await other.kickoff())  # takes the only slot
        kickoff = await crew.kickoff(token=crew.user_token)
        told = (await crew.status(kickoff, token=crew.user_token))["waiting_for"]
        assert told["code"] == "slot"
        assert told["message"] == "a free slot of a worker; it is the 1st in the queue of this crew"
        await run.succeed()
    finally:
        await crew.server.database.execute("DELETE FROM workers WHERE id = %(id)s", {"id": worker})


@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        ({}, False),
        ({"host": "::1"}, False),
        ({"host": "0.0.0.0"}, True),
        ({"host": "192.0.2.7", "public_url": "http://crews.example.com"}, True),
        ({"host": "0.0.0.0", "public_url": "https://crews.example.com"}, False),
    ],
)
async def test_a_public_address_without_tls_is_warned_of(settings: dict[str, Any], *, warned: bool) -> None:
    lines: list[str] = []
    warn_without_tls(Settings(**settings), lines.append)
    assert [line.partition(":")[0] for line in lines] == ["warning"] * warned


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("GET /health HTTP/1.1\r\n", 400),
        ("GET /health HTTP/1.1\r\nX: 1\r\n", 400),
        ("GET /health HTTP/1.0\r\n", 200),
        ("GET /health HTTP/1.1\r\nHost: localhost\r\n", 200),
        ("GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n", 400),
        ("GET /health HTTP/1.0\r\nHost: localhost\r\nHost: localhost\r\n", 400),
        ("GET http://localhost/health HTTP/1.1\r\nHost: localhost\r\n", 200),
        (f"GET http://{EVIL}/health HTTP/1.1\r\nHost: localhost\r\n", 400),
        (f"GET http://localhost@{EVIL}/health HTTP/1.1\r\nHost: localhost\r\n", 400),
        ("GET http://localhost/health HTTP/1.1\r\n", 400),
        ("POST /health HTTP/1.1\r\nContent-Length: 5\r\n", 400),
    ],
)
async def test_a_request_names_one_host(crew: Crew, head: str, status: int) -> None:
    async with served(crew) as server:
        found, headers, content = await raw(server.port, f"{head}\r\n".encode())
        assert found == status
        if status == 400:
            check_error(found, headers, content)
