"""Clients that send slowly, or what is no HTTP: they are told or cut off, and others are served meanwhile."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from api.described import check_error
from api.serving import GOOD, Crew, answer_of, raw, serving
from patience import DEADLINE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.asyncio(loop_scope="session")

SECONDS = 0.5
"""That a client has for its request here."""
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def impatient(crew: Crew) -> AsyncIterator[Crew]:
    async with serving(crew.server.database.url, seconds=SECONDS) as server:
        yield crew.at(server)


async def connected(crew: Crew) -> Connection:
    return await asyncio.open_connection("127.0.0.1", crew.server.port)


def head(crew: Crew, length: int | None = None, path: str = "/kickoff", token: str | None = None) -> bytes:
    lines = [f"POST {crew.path}{path} HTTP/1.1", "Host: x", f"Authorization: Bearer {token or crew.token}"]
    lines += [f"Content-Length: {length}"] if length is not None else ["Transfer-Encoding: chunked"]
    return "\r\n".join([*lines, "", ""]).encode()


async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, part: bytes) -> None:
    """A byte now and then, until the server ends it."""
    for byte in itertools.cycle(part):
        writer.write(bytes([byte]))
        await asyncio.sleep(SECONDS / 10)
        if reader.at_eof() or writer.is_closing():
            return


async def told_while_dripping(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, part: bytes) -> int:
    """The status that comes, and then the end of the connection."""
    dripping = asyncio.create_task(drip(reader, writer, part))
    status, headers, content = await answer_of(reader)
    if status:
        check_error(status, headers, content)
    async with asyncio.timeout(60):
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        await dripping
    writer.close()
    return status


async def test_a_slow_head_is_told_408_and_cut_off(crew: Crew) -> None:
    async with impatient(crew) as crew_:
        reader, writer = await connected(crew_)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        begun = time.monotonic()
        async with asyncio.timeout(DEADLINE):
            assert await told_while_dripping(reader, writer, b"x") == 408
        assert time.monotonic() - begun >= SECONDS * 0.9


async def test_a_connection_without_a_word_is_closed(crew: Crew) -> None:
    async with impatient(crew) as crew_:
        reader, writer = await connected(crew_)
        assert await answer_of(reader) == (0, {}, b"")
        writer.close()


@pytest.mark.parametrize("length", [1000, None])
async def test_a_slow_body_is_told_408_and_cut_off(crew: Crew, length: int | None) -> None:
    async with impatient(crew) as crew_:
        reader, writer = await connected(crew_)
        writer.write(head(crew_, length))
        assert await told_while_dripping(reader, writer, b"1\r\n{\r\n") == 408


async def test_who_goes_on_sending_slowly_after_the_answer_is_cut_off(crew: Crew) -> None:
    async with impatient(crew) as crew_:
        reader, writer = await connected(crew_)
        writer.write(head(crew_, 1000, token="wrong"))
        assert await told_while_dripping(reader, writer, b"x") == 401


async def test_who_sends_the_rest_in_time_after_the_answer_may_ask_again(crew: Crew) -> None:
    async with impatient(crew) as crew_:
        reader, writer = await connected(crew_)
        body = json.dumps({"inputs": GOOD}).encode()
        writer.write(head(crew_, 100_000, token="wrong"))
        assert (await answer_of(reader))[0] == 401
        writer.write(b"x" * 100_000 + head(crew_, len(body)) + body)
        assert (await answer_of(reader))[0] == 200
        writer.close()


async def test_others_are_served_while_slow_clients_hold_their_connections(crew: Crew) -> None:
    held = [await connected(crew) for _ in range(100)]
    for number, (_, writer) in enumerate(held):
        writer.write(b"GET / HTTP/1.1\r\nX-Slow: " if number % 2 else head(crew, 1000))
    async with asyncio.timeout(DEADLINE):
        assert (await crew.status(await crew.kickoff()))["state"] == "PENDING"
    assert not any(reader.at_eof() for reader, _ in held)
    for _, writer in held:
        writer.close()


async def test_a_client_that_goes_away_in_the_middle_of_its_body_starts_nothing(
    crew: Crew, caplog: pytest.LogCaptureFixture
) -> None:
    body = json.dumps({"inputs": GOOD}).encode()
    _, writer = await connected(crew)
    writer.write(head(crew, len(body)) + body[:-1])
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    assert (await crew.get("/")).status_code == 200
    row = await crew.server.database.row(
        "SELECT count(*) AS number FROM kickoffs WHERE deployment_id = %(id)s", {"id": crew.deployment.id}
    )
    assert row == {"number": 0}
    assert not caplog.records


async def test_a_client_that_goes_away_while_it_waits_harms_nobody(
    crew: Crew, caplog: pytest.LogCaptureFixture
) -> None:
    kickoff = await crew.kickoff()
    _, writer = await connected(crew)
    writer.write(head(crew, 0, f"/status/{kickoff}?wait=0.2").replace(b"POST", b"GET"))
    await writer.drain()
    writer.close()
    assert (await crew.get(f"/status/{kickoff}?wait=0.4")).status_code == 200
    assert not caplog.records


@pytest.mark.parametrize(
    "request_",
    [
        b"\r\n\r\nnonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /caf\xc3\xa9 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nNo colon\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: ten\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
async def test_what_is_no_request_for_this_server_is_told_in_the_one_form(crew: Crew, request_: bytes) -> None:
    status, headers, content = await raw(crew.server.port, request_)
    assert status in {400, 404, 405}
    check_error(status, headers, content)


async def test_a_chunked_body_that_breaks_off_its_form_is_refused(crew: Crew, caplog: pytest.LogCaptureFixture) -> None:
    status, headers, content = await raw(crew.server.port, head(crew) + b"2\r\n{ \r\nzz\r\n}\r\n0\r\n\r\n")
    assert status == 400
    check_error(status, headers, content)
    assert not caplog.records


async def test_nonsense_after_a_request_does_not_take_the_place_of_its_answer(crew: Crew) -> None:
    kickoff = await crew.kickoff()
    reader, writer = await connected(crew)
    get = head(crew, 0, f"/status/{kickoff}?wait=0.2").replace(b"POST", b"GET")
    writer.write(get + b"nonsense\r\n\r\n")
    assert await reader.read() == b""
    writer.close()


@pytest.mark.parametrize("line", [b"GET /%s HTTP/1.1\r\nHost: x\r\n", b"GET / HTTP/1.1\r\nX-Long: %s\r\n"])
async def test_a_head_without_end_is_refused(crew: Crew, line: bytes) -> None:
    status, headers, content = await raw(crew.server.port, line % (b"x" * 2_000_000))
    assert status in {0, 431}  # 0: the answer was lost with the connection, as the client was still sending
    if status:
        check_error(status, headers, content)


async def test_many_long_headers_within_reason_are_read(crew: Crew) -> None:
    headers = {f"X-Header-{number}": "x" * 1000 for number in range(50)}
    assert (await crew.get("/", headers=headers)).status_code == 200


@pytest.mark.parametrize("upgrade", ["h2c", "websocket", "TLS/1.0"])
async def test_a_client_that_offers_another_protocol_is_answered_in_this_one(crew: Crew, upgrade: str) -> None:
    body = json.dumps({"inputs": GOOD}).encode()
    more = (
        f"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: {upgrade}\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n"
    )
    get = head(crew, 0, "/inputs").replace(b"POST", b"GET").removesuffix(b"\r\n") + more.encode()
    assert (await raw(crew.server.port, get))[0] == 200
    post = head(crew, len(body)).removesuffix(b"\r\n") + more.encode() + body
    assert (await raw(crew.server.port, post))[0] == 200


async def test_requests_that_are_sent_without_waiting_are_answered_in_their_order(crew: Crew) -> None:
    reader, writer = await connected(crew)
    body = json.dumps({"inputs": GOOD}).encode()
    writer.write(head(crew, len(body)) + body + head(crew, 2) + b"{}" + head(crew, len(body)) + body)
    assert [(await answer_of(reader))[0] for _ in range(3)] == [200, 422, 200]
    writer.close()


async def test_the_end_of_a_long_body_does_not_count_as_part_of_the_next_head(crew: Crew) -> None:
    reader, writer = await connected(crew)
    body = json.dumps({"inputs": {**GOOD, "more": "x" * 70_000}}).encode()
    get = head(crew, 0, "/inputs").replace(b"POST", b"GET")
    writer.write(head(crew, len(body)) + body + get[:20])
    assert (await answer_of(reader))[0] == 200
    writer.write(get[20:])
    assert (await answer_of(reader))[0] == 200
    writer.close()


async def test_a_request_that_waits_is_not_cut_off_by_the_deadline_for_requests(crew: Crew) -> None:
    async with impatient(crew) as crew_:
        kickoff = await crew_.kickoff()
        reader, writer = await connected(crew_)
        both = [
            head(crew_, 0, f"/status/{kickoff}?wait={wait}").replace(b"POST", b"GET") for wait in (0.1, SECONDS * 2)
        ]
        writer.write(b"".join(both))
        assert [(await answer_of(reader))[0] for _ in both] == [200, 200]
        writer.close()
