"""Where a crew lives: below /crews, at a server's root, at a host's name; and what its address is said to be."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from api.serving import Server, serving
from windlass.api.application import RESERVED, Addresses, CrewRoute

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx

pytestmark = pytest.mark.asyncio(loop_scope="session")


@asynccontextmanager
async def rooted(server: Server, **settings: Any) -> AsyncIterator[Server]:
    """Another server on the same database, as `windlass dev` is one: its crew has the root."""
    async with serving(server.database.url, **settings) as other:
        yield other


async def get(server: Server, path: str, token: str, **headers: str) -> httpx.Response:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    given |= {"Authorization": f"Bearer {token}"} if token else {}
    return await server.http.get(f"{server.url}{path}", headers=given)


async def base_url(server: Server, path: str = "", **headers: str) -> str:
    """That the crew's OpenAPI document names."""
    document = (await get(server, f"{path}/openapi.json", "", **headers)).json()
    (only,) = document["servers"]
    return str(only["url"])


async def test_a_crew_at_the_root_is_at_its_own_path_too(server: Server) -> None:
    crew = await server.crew()
    async with rooted(server, root=crew.deployment.slug) as other:
        kickoff = await crew.kickoff()
        for path in ("", crew.path):
            assert (await get(other, path or "/", crew.token)).text == "Healthy"
            assert (await get(other, f"{path}/status/{kickoff}", crew.token)).json()["kickoff_id"] == kickoff
            assert (await get(other, f"{path}/{kickoff}/status", crew.token)).json()["kickoff_id"] == kickoff
            assert (await get(other, f"{path}/openapi.json", "")).json()["servers"] == [{"url": path or "/"}]


async def test_a_person_who_opens_the_address_in_a_browser_gets_the_dashboard(server: Server) -> None:
    crew = await server.crew()
    async with rooted(server, root=crew.deployment.slug) as other:
        opened = await get(other, "/", "", Sec_Fetch_Dest="document")
        assert (opened.status_code, opened.headers["location"]) == (303, "/ui/")
        assert (await get(other, "/", "")).status_code == 401  # a program without a token
        assert (await get(other, crew.path, "", Sec_Fetch_Dest="document")).status_code == 401
    opened = await get(server, "/", "")
    assert (opened.status_code, opened.headers["location"]) == (303, "/ui/")


@pytest.mark.parametrize("reserved", RESERVED)
async def test_the_servers_own_paths_are_never_the_crews(server: Server, reserved: str) -> None:
    crew = await server.crew()
    async with rooted(server, root=crew.deployment.slug) as other:
        answer = await get(other, f"/{reserved}/status", crew.token)
        assert answer.status_code == 404
        assert "no kickoff" not in answer.text


@pytest.mark.parametrize("path", ["/crews", "/crews/", "/kickoff", "/status/x", "/nothing"])
async def test_without_a_crew_at_the_root_other_paths_are_404(server: Server, path: str) -> None:
    crew = await server.crew()
    answer = await get(server, path, crew.token)
    assert (answer.status_code, answer.json()["error"]) == (404, "Not Found")


async def test_doubled_slashes_are_one(server: Server) -> None:
    crew = await server.crew()
    kickoff = await crew.kickoff()
    for path in (f"/{crew.path}//status//{kickoff}", f"//crews//{crew.deployment.slug}///{kickoff}//status"):
        assert (await get(server, path, crew.token)).json()["kickoff_id"] == kickoff
    answer = await server.http.post(
        f"{server.url}{crew.path}//kickoff",
        headers={"Authorization": f"Bearer {crew.token}"},
        json={"inputs": {"topic": "tides", "audience": "sailors"}},
    )
    assert answer.status_code == 200


async def test_a_crew_is_found_by_its_name_in_the_domain_of_crews(server: Server) -> None:
    crew = await server.crew()
    slug = crew.deployment.slug
    async with rooted(server, domain="Crews.example.com") as other:
        for host in (f"{slug}.crews.example.com", f"{slug.upper()}.CREWS.Example.COM:8443"):
            assert (await get(other, "/inputs", crew.token, Host=host)).status_code == 200
        unknown = await get(other, "/inputs", crew.token, Host="nobody.crews.example.com")
        assert "There is no crew 'nobody'" in unknown.json()["message"]
        for host in ("crews.example.com", f"{slug}.example.com", f"{slug}.crews.example.com.evil.com", f"x{slug}", ""):
            assert (await get(other, "/inputs", crew.token, Host=host)).status_code == 404
        below = await get(other, f"{crew.path}/inputs", crew.token, Host="nobody.crews.example.com")
        assert below.status_code == 200


async def test_base_urls_are_paths_on_the_server_whatever_host_was_asked(server: Server) -> None:
    crew = await server.crew()
    assert await base_url(server, crew.path) == crew.path
    assert await base_url(server, crew.path, Host="crews.local:81") == crew.path


async def test_base_urls_are_written_with_the_public_address_where_there_is_one(server: Server) -> None:
    crew = await server.crew()
    slug = crew.deployment.slug
    public = "https://windlass.example.com/below"
    async with rooted(server, root=slug, public_url=public, domain="crews.example.com") as other:
        assert await base_url(other) == public
        assert await base_url(other, crew.path) == f"{public}{crew.path}"
        own_host = f"{slug}.crews.example.com"
        assert await base_url(other, Host=own_host) == "/"
        assert await base_url(other, crew.path, Host="evil.example.com") == f"{public}{crew.path}"


async def test_nobody_is_believed_about_where_a_request_came_from(server: Server) -> None:
    crew = await server.crew()
    host = f"{crew.deployment.slug}.crews.example.com"
    forwarded = {"X_Forwarded_Proto": "https", "X_Forwarded_Host": host, "X_Forwarded_For": "192.0.2.1"}
    for trusted in ([], ["192.0.2.7", "198.51.100.0/24"]):
        async with rooted(server, trusted_proxies=trusted, domain="crews.example.com") as other:
            assert (await get(other, "/inputs", crew.token, **forwarded)).status_code == 404
            assert (await get(other, "/inputs", crew.token, Host=host)).status_code == 200


@pytest.mark.parametrize("trusted", ["127.0.0.1", "127.0.0.0/8", "*"])
async def test_a_trusted_proxy_is_believed(server: Server, trusted: str) -> None:
    crew = await server.crew()
    async with rooted(server, trusted_proxies=[trusted], domain="crews.example.com") as other:
        host = f"{crew.deployment.slug}.crews.example.com"
        assert (await get(other, "/inputs", crew.token, X_Forwarded_Host=host)).status_code == 200
        for named in (f"evil.example.com, {host}", host):
            assert await base_url(other, X_Forwarded_Host=named, X_Forwarded_Proto="gopher") == "/"
        evil = f"{host}, evil.example.com"
        assert (await get(other, "/inputs", crew.token, X_Forwarded_Host=evil)).status_code == 404


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("", CrewRoute("writers", "/")),
        ("/kickoff", CrewRoute("writers", "/kickoff")),
        ("/crews/other", CrewRoute("other", "/", "/crews/other")),
        ("/crews/other/", CrewRoute("other", "/", "/crews/other")),
        ("/crews/other/a/b", CrewRoute("other", "/a/b", "/crews/other")),
        ("/crews", CrewRoute(None, "/crews")),
        ("/health", CrewRoute(None, "/health")),
        ("/healthy", CrewRoute("writers", "/healthy")),
        ("/.well-known/x", CrewRoute(None, "/.well-known/x")),
        ("/" * 10_000 + "health", CrewRoute(None, "/health")),
    ],
)
async def test_an_address_means_one_place(path: str, place: CrewRoute) -> None:
    assert Addresses(root="writers").find("localhost", path) == place
