"""Guesses of passwords, links and answers of a provider cost little, at the same time too, and harm nobody else."""

from __future__ import annotations

import asyncio
import itertools
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import httpx
import pytest

from api.serving import serving, until
from dashboard.identity_provider import CLIENT, SECRET, IdentityProvider
from dashboard.people import PASSWORD, user
from patience import DEADLINE
from windlass.access.authentication import Rate, RateLimits
from windlass.access.openid import OpenId, RoleRules
from windlass.access.sessions import HASHES_AT_ONCE, TRIES_PER_MINUTE
from windlass.dashboard.openid_client import OpenIdClient
from windlass.rights import Role
from windlass.secrets.secret import Secret

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import argon2

    from api.serving import Crew, Server

pytestmark = pytest.mark.asyncio(loop_scope="session")

ATTACKER, OTHER = "203.0.113.7", "203.0.113.8"
LIMIT = 5
NOW = 1000.0
_numbers = itertools.count(1)


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine does not answer 30 requests at once within the usual wait for a connection to the database."""
    monkeypatch.setattr("windlass.store.database.POOL_WAIT_SECONDS", DEADLINE)


class CountingHasher:
    """Checks passwords as the server does, and counts the checks."""

    def __init__(self, inner: argon2.PasswordHasher) -> None:
        self._inner = inner
        self.verified = 0

    def verify(self, stored: str, password: str) -> bool:
        self.verified += 1
        return self._inner.verify(stored, password)

    def hash(self, password: str) -> str:
        return self._inner.hash(password)

    def check_needs_rehash(self, stored: str) -> bool:
        return self._inner.check_needs_rehash(stored)


@asynccontextmanager
async def behind_a_proxy(crew: Crew) -> AsyncIterator[tuple[Server, CountingHasher]]:
    """A server that believes what this machine says of clients' addresses.

    No time passes for its limits: on a slow machine more tries would be allowed while it hashes.
    """
    rates = RateLimits(failures=LIMIT)
    async with serving(crew.server.database.url, trusted_proxies=["127.0.0.1"], rates=rates) as server:
        sessions = server.dashboard.sessions
        sessions.failures._rate = Rate(LIMIT / 60, LIMIT, clock=lambda: NOW)
        sessions._tries = Rate(TRIES_PER_MINUTE / 60, TRIES_PER_MINUTE, clock=lambda: NOW)
        await sessions._verified(None, "so that the hash of nobody exists")
        hasher = sessions._hasher = CountingHasher(sessions._hasher)  # type: ignore[assignment]
        yield server, hasher


async def post(server: Server, address: str | None, path: str = "/ui/sign-in", **fields: str) -> httpx.Response:
    headers = {"Sec-Fetch-Site": "same-origin", **({"X-Forwarded-For": address} if address else {})}
    async with httpx.AsyncClient(base_url=server.url, timeout=DEADLINE, headers=headers) as http:
        return await http.post(path, data=fields)


async def guess(server: Server, address: str | None, name: str | None = None, password: str = "a guess") -> int:
    """The status of a sign-in under a name that nobody has, unless it is given."""
    given = {"name": name or f"nobody {next(_numbers)}", "password": password}
    return (await post(server, address, **given)).status_code


async def test_guesses_at_once_from_one_address_are_refused_before_they_are_hashed(crew: Crew) -> None:
    async with behind_a_proxy(crew) as (server, hasher):
        found = await asyncio.gather(*(guess(server, ATTACKER) for _ in range(4 * LIMIT)))
        assert sorted(found) == [403] * LIMIT + [429] * (3 * LIMIT)
        assert hasher.verified == LIMIT
        refused = await post(server, ATTACKER, name="nobody", password="a guess")
        assert "failed sign-ins" in refused.text
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        name = await user(server, Role.VIEWER, PASSWORD)
        assert await guess(server, OTHER, name, PASSWORD) == 303


async def test_guesses_at_once_for_one_user_are_refused_before_they_are_hashed(crew: Crew) -> None:
    """From this machine, whose address is not limited: the user is."""
    async with behind_a_proxy(crew) as (server, hasher):
        name = await user(server, Role.VIEWER, PASSWORD)
        found = await asyncio.gather(*(guess(server, None, name) for _ in range(30)))
        assert sorted(found) == [403] * 10 + [429] * 20
        assert hasher.verified == 10


async def test_two_passwords_are_hashed_at_once_and_few_sign_ins_wait(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From this machine, whose address is not limited, under as many names."""
    most = 6
    monkeypatch.setattr("windlass.access.sessions.MOST_WAITING", most)
    async with behind_a_proxy(crew) as (server, hasher):
        sessions, gate = server.dashboard.sessions, threading.Event()
        verify, hashing, highest = hasher.verify, [0], [0]

        def held(stored: str, password: str) -> bool:
            with lock:
                hashing[0] += 1
                highest[0] = max(highest[0], hashing[0])
            assert gate.wait(DEADLINE)
            try:
                return verify(stored, password)
            finally:
                with lock:
                    hashing[0] -= 1

        async def all_wait() -> bool:
            return (sessions._waiting, hashing[0]) == (most, HASHES_AT_ONCE)

        lock = threading.Lock()
        monkeypatch.setattr(hasher, "verify", held)
        try:
            guesses = [asyncio.create_task(guess(server, None)) for _ in range(most)]
            await until(all_wait, "two passwords are hashed, and the others wait")
            refused = await post(server, None, name="nobody", password="a guess")
            assert (refused.status_code, "Too many people sign in" in refused.text) == (429, True)
        finally:
            gate.set()
        assert await asyncio.gather(*guesses) == [403] * most
        assert highest == [HASHES_AT_ONCE]
        assert (await sessions._hashed("a password")).startswith("$argon2id$")


async def test_sign_ins_that_succeed_do_not_count(crew: Crew) -> None:
    async with behind_a_proxy(crew) as (server, _):
        name = await user(server, Role.VIEWER, PASSWORD)
        assert [await guess(server, ATTACKER, name, PASSWORD) for _ in range(3 * LIMIT)] == [303] * 3 * LIMIT


async def test_an_ipv6_network_counts_as_one_client_and_this_machine_as_none(crew: Crew) -> None:
    async with behind_a_proxy(crew) as (server, _):
        one_network = [await guess(server, f"2001:db8:1:2::{n:x}") for n in range(LIMIT + 2)]
        assert one_network == [403] * LIMIT + [429] * 2
        assert await guess(server, "2001:db8:1:3::1") == 403
        assert [await guess(server, None) for _ in range(LIMIT + 2)] == [403] * (LIMIT + 2)


async def test_guesses_of_passwords_and_of_links_are_counted_together(crew: Crew) -> None:
    async with behind_a_proxy(crew) as (server, hasher):
        links = [(await post(server, ATTACKER, code="made up")).status_code for _ in range(LIMIT + 1)]
        assert links == [403] * LIMIT + [429]
        assert (await guess(server, ATTACKER), hasher.verified) == (429, 0)


async def test_invented_answers_of_a_provider_cause_few_requests_to_it(crew: Crew) -> None:
    provider = IdentityProvider(person={"sub": "1", "email": "a@example.com", "email_verified": True})
    running = await provider.start()
    try:
        async with behind_a_proxy(crew) as (server, _):
            config = OpenId(provider.url, CLIENT, Secret(SECRET), "email", "groups", RoleRules.parse([], "viewer"))
            server.dashboard.openid = OpenIdClient(config, bytes(32))
            headers = {"X-Forwarded-For": ATTACKER}
            async with httpx.AsyncClient(base_url=server.url, timeout=DEADLINE, headers=headers) as http:
                found = []
                for _ in range(LIMIT + 2):
                    begun = await http.get("/ui/sign-in/openid")
                    state = httpx.URL(begun.headers["location"]).params["state"]
                    answer = await http.get(f"/ui/sign-in/openid/callback?state={state}&code=made-up")
                    found.append(answer.status_code)
            assert found == [502] * LIMIT + [429] * 2
            assert provider.asked_for_tokens == LIMIT
    finally:
        await running.stop()
