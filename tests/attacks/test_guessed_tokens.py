"""Clients that try tokens, and clients that ask without end, cost little and harm nobody else."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from api.control import Person
from api.described import check_error
from api.serving import raw, serving
from windlass.access.authentication import (
    MOST_KEYS,
    MOST_NAMED,
    FailedAuthentications,
    Rate,
    RateLimits,
    RequestRates,
    Source,
    TooManyRequests,
)
from windlass.rights import Role
from windlass.secrets.secret import TokenKind, new_token

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from typing import Any

    from api.serving import Crew, Server

pytestmark = pytest.mark.asyncio(loop_scope="session")

ATTACKER, OTHER = "203.0.113.7", "203.0.113.8"
FLOOD = 1000


@asynccontextmanager
async def behind_a_proxy(crew: Crew, rates: RateLimits) -> AsyncIterator[Crew]:
    """A server that believes what this machine says of clients' addresses."""
    async with serving(crew.server.database.url, trusted_proxies=["127.0.0.1"], rates=rates) as server:
        yield crew.at(server)


def made_up() -> str:
    """A token of the right form, which there is not."""
    return new_token(TokenKind.ORGANIZATION).reveal()


def of(address: str) -> dict[str, str]:
    return {"X-Forwarded-For": address}


async def statuses(crew: Crew, tokens: Sequence[str], address: str) -> list[int]:
    return [(await crew.get("/inputs", token=token, headers=of(address))).status_code for token in tokens]


@pytest.mark.parametrize("form", ["made up", "a typing error"])
async def test_an_address_that_tries_tokens_is_slowed_down_and_others_are_not(crew: Crew, form: str) -> None:
    async with behind_a_proxy(crew, RateLimits(failures=10)) as served:
        tokens = [made_up() if form == "made up" else f"{made_up()[:-1]}_" for _ in range(13)]
        assert await statuses(served, tokens, ATTACKER) == [401] * 10 + [429] * 3
        assert await statuses(served, tokens[:1], OTHER) == [401]
        refused = await served.get("/inputs", token=made_up(), headers=of(ATTACKER))
        assert 1 <= int(refused.headers["retry-after"]) <= 6
        check_error(429, dict(refused.headers), refused.content)


async def test_clients_with_valid_tokens_are_served_from_the_same_address(crew: Crew) -> None:
    async with behind_a_proxy(crew, RateLimits(failures=10)) as served:
        assert await statuses(served, [crew.token], ATTACKER) == [200]
        assert 429 in await statuses(served, [made_up() for _ in range(15)], ATTACKER)
        assert await statuses(served, [crew.token] * 20, ATTACKER) == [200] * 20


async def test_a_right_guess_from_an_address_at_its_limit_is_not_told_from_a_wrong_one(crew: Crew) -> None:
    async with behind_a_proxy(crew, RateLimits(failures=10)) as served:
        assert 429 in await statuses(served, [made_up() for _ in range(11)], ATTACKER)
        assert await statuses(served, [crew.token], ATTACKER) == [429]
        assert await statuses(served, [crew.token], OTHER) == [200]


async def test_the_token_of_another_crew_counts_as_a_wrong_one(crew: Crew) -> None:
    other = await crew.server.crew()
    async with behind_a_proxy(crew, RateLimits(failures=3)) as served:
        assert await statuses(served, [other.token] * 5, ATTACKER) == [401, 401, 401, 429, 429]


async def test_a_flood_of_made_up_tokens_costs_the_database_few_statements(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From this machine, whose address is not limited."""
    store, asked = crew.server.access._store, list[int]()
    ask = store.by_digests

    async def counted(digests: Sequence[bytes]) -> Any:
        asked.append(len(digests))
        return await ask(digests)

    monkeypatch.setattr(store, "by_digests", counted)
    answers = await asyncio.gather(*(tried(crew.server, crew.path, made_up()) for _ in range(FLOOD)))
    assert set(answers) == {401}
    assert sum(asked) == FLOOD
    assert len(asked) < FLOOD / 5
    asked.clear()
    assert (await crew.get("/inputs", token=f"{made_up()[:-2]}__")).status_code == 401
    assert asked == []


async def tried(server: Server, path: str, token: str) -> int:
    request = f"GET {path}/inputs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
    return (await raw(server.port, request.encode()))[0]


async def test_failures_are_counted_in_the_log_with_their_address(crew: Crew, caplog: pytest.LogCaptureFixture) -> None:
    async with behind_a_proxy(crew, RateLimits(failures=3)) as served:
        tokens = [made_up() for _ in range(7)]
        await statuses(served, tokens, ATTACKER)
        await statuses(served, tokens[:2], OTHER)
        caplog.clear()
        served.server.access.failures.report()
        served.server.access.failures.report()
    lines = [record.__dict__["event_fields"] for record in caplog.records]
    assert lines == [{"address": ATTACKER, "failures": 7}, {"address": OTHER, "failures": 2}]
    assert not [token for token in tokens if token in caplog.text]


async def test_failures_of_many_addresses_are_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    failures = FailedAuthentications(60)
    for number in range(2 * MOST_KEYS):
        failures.count(Source(str(number), limited=True))
    failures.report()
    lines = [record.__dict__["event_fields"] for record in caplog.records]
    assert len(lines) == MOST_NAMED + 1
    assert sum(line["failures"] for line in lines) == 2 * MOST_KEYS


@pytest.mark.parametrize("personal", [False, True])
async def test_a_user_token_that_asks_without_end_is_told_when_to_go_on(crew: Crew, *, personal: bool) -> None:
    token = (await Person.of(crew.server, Role.DEVELOPER)).token if personal else crew.user_token
    rates = RateLimits(requests_of_users=0.11)  # two at once, and then one in nine seconds
    async with behind_a_proxy(crew, rates) as served:
        assert await statuses(served, [token] * 4, OTHER) == [200] * 2 + [429] * 2
        refused = await served.get("/inputs", token=token)
        assert 5 <= int(refused.headers["retry-after"]) <= 10
        check_error(429, dict(refused.headers), refused.content)
        another = await crew.token_of(f"somebody else {personal}")
        assert await statuses(served, [another, crew.token], OTHER) == [200, 200]


async def test_a_limit_for_organization_tokens_can_be_set(crew: Crew) -> None:
    async with behind_a_proxy(crew, RateLimits(requests=0.11)) as served:
        assert await statuses(served, [crew.token] * 3, OTHER) == [200, 200, 429]


@pytest.mark.parametrize(("per_second", "at_once"), [(0.5, 5), (0.2, 2), (4, 40)])
async def test_the_requests_of_ten_seconds_are_allowed_at_once(per_second: float, at_once: int) -> None:
    now = 100.0
    rates = RequestRates(RateLimits(requests_of_users=per_second), clock=lambda: now)
    for _ in range(at_once):
        rates.take("token", of_user=True)
    with pytest.raises(TooManyRequests) as refused:
        rates.take("token", of_user=True)
    assert refused.value.retry_after == pytest.approx(1 / per_second)
    now += 1 / per_second
    rates.take("token", of_user=True)


async def test_a_rate_is_kept_for_a_bounded_number_and_comes_back() -> None:
    now = 100.0
    rate: Rate[int] = Rate(1.0, 2, most=100, clock=lambda: now)
    for number in range(10_000):
        assert rate.take(number) == 0
        assert len(rate) <= 100
    assert [rate.take(-1) for _ in range(4)] == [0, 0, 1, 1]
    now += 1
    assert [rate.take(-1) for _ in range(2)] == [0, 1]
    assert rate.seconds_until_free(-1) == 1
    now += 1000
    assert [rate.take(-1) for _ in range(3)] == [0, 0, 1]


async def test_a_limit_of_zero_is_none() -> None:
    rate: Rate[int] = Rate(0, 0)
    assert {rate.take(1) for _ in range(1000)} == {0.0}
    failures = FailedAuthentications(0)
    for _ in range(1000):
        failures.count(Source("a", limited=True))
    failures.check(Source("a", limited=True))
