"""Requests that are sent ahead of the answers to earlier ones, with offers of another protocol among them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from api.serving import answer_of
from patience import DEADLINE
from windlass.api.connections import MOST_PIPELINED

if TYPE_CHECKING:
    from api.serving import Crew

pytestmark = pytest.mark.asyncio(loop_scope="session")


def request(crew: Crew, more: str = "") -> bytes:
    line = f"GET {crew.path}/inputs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {crew.token}\r\n"
    return f"{line}{more}\r\n".encode()


def offer(crew: Crew) -> bytes:
    return request(crew, "Connection: Upgrade\r\nUpgrade: h2c\r\n")


async def all_of(crew: Crew, sent: bytes) -> bytes:
    """What comes until the server ends the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", crew.server.port)
    writer.write(sent)
    try:
        async with asyncio.timeout(DEADLINE):
            with suppress(ConnectionResetError):
                return await reader.read()
            return b""
    finally:
        writer.close()


async def test_thousands_of_offers_at_once_end_the_connection_and_nothing_else(
    crew: Crew, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(5):
        assert await all_of(crew, offer(crew) * 3000) == b""
    assert (await crew.get("/inputs")).status_code == 200
    assert not [record for record in caplog.records if record.exc_info or "RecursionError" in record.getMessage()]


async def test_a_second_offer_before_the_first_answer_is_refused(crew: Crew) -> None:
    assert await all_of(crew, offer(crew) * 2) == b""


async def test_a_client_that_offers_with_each_request_in_turn_is_answered(crew: Crew) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", crew.server.port)
    for _ in range(3):
        writer.write(offer(crew))
        assert (await answer_of(reader))[0] == 200
    writer.close()


async def test_who_sends_thousands_of_requests_ahead_is_cut_off(crew: Crew) -> None:
    sent = await all_of(crew, request(crew) * 3000)
    assert sent.count(b"HTTP/1.1 200") <= MOST_PIPELINED


async def test_some_requests_ahead_are_answered(crew: Crew) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", crew.server.port)
    writer.write(request(crew) * MOST_PIPELINED)
    assert [(await answer_of(reader))[0] for _ in range(MOST_PIPELINED)] == [200] * MOST_PIPELINED
    writer.close()
