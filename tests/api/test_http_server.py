from __future__ import annotations

import asyncio
import os
import socket
import sys
from typing import TYPE_CHECKING

import pytest

from api.described import check_error
from api.runs import begin
from api.serving import answer_of, serving, until
from projects_for_tests.making import written
from windlass.api.server import HttpServer, check_free, holder_of
from windlass.errors import WindlassError

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.types import Send

    from api.serving import Crew, Server

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_port_that_is_taken_is_told_in_words(server: Server) -> None:
    second = HttpServer(_nothing, "127.0.0.1", server.port)
    with pytest.raises(WindlassError, match=f"can't listen on 127.0.0.1:{server.port}: Address already in use") as told:
        await second.start()
    assert "WINDLASS_PORT" in told.value.hint
    assert f"`--port {server.port + 1}`" in told.value.hint
    if sys.platform == "linux":
        assert f" The process {os.getpid()} (" in told.value.message
    await second.stop()


async def test_the_holder_of_a_port_is_not_named_where_it_can_not_be_seen(tmp_path: Path) -> None:
    assert holder_of(80, tmp_path) is None
    written(
        tmp_path,
        {"net/tcp": "  sl  local_address rem_address   st\n   0: 00000000:0050 00000000:0000 0A 1 2 3 4 5 77\n"},
    )
    assert holder_of(80, tmp_path) is None
    (tmp_path / "12" / "fd").mkdir(parents=True)
    written(tmp_path, {"12/comm": "nginx\n"})
    (tmp_path / "12" / "fd" / "3").symlink_to("socket:[77]")
    assert holder_of(80, tmp_path) == "12 (nginx)"
    assert holder_of(81, tmp_path) is None


@pytest.mark.parametrize(("host", "port"), [("192.0.2.1", 0), ("no such host", 1)])
async def test_an_address_that_can_not_be_used_is_named(host: str, port: int) -> None:
    check_free("127.0.0.1", 0)
    with pytest.raises(WindlassError, match=f"can't listen on {host}:{port}: ") as caught:
        check_free(host, port)
    assert "--host" in caught.value.hint


async def test_it_may_be_stopped_before_it_was_started_and_twice() -> None:
    server = HttpServer(_nothing, "127.0.0.1", 0)
    await server.stop()
    await server.start()
    port = server.port
    await server.stop()
    await server.stop()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_it_listens_on_ipv6() -> None:
    server = HttpServer(_nothing, "::1", 0)
    await server.start()
    _, writer = await asyncio.open_connection("::1", server.port)
    writer.close()
    await server.stop()


async def test_answers_do_not_tell_what_software_gave_them(crew: Crew) -> None:
    answer = await crew.get("/inputs")
    assert answer.headers.keys() == {
        "date",
        "content-type",
        "content-length",
        "cache-control",
        "x-content-type-options",
    }


async def test_a_request_that_is_being_answered_is_answered_before_the_server_stops(crew: Crew) -> None:
    run = await begin(crew, kickoff := await crew.kickoff())
    async with serving(crew.server.database.url) as other:
        held = asyncio.create_task(crew.at(other).status(f"{kickoff}?wait=60"))
        await _is_held(other)
        stopping = asyncio.create_task(other.http_server.stop())
        await run.succeed()
        assert (await held)["state"] == "SUCCESS"
        await stopping


async def test_a_request_that_waits_on_is_told_that_the_server_stops(
    crew: Crew, caplog: pytest.LogCaptureFixture
) -> None:
    kickoff = await crew.kickoff()
    async with serving(crew.server.database.url) as other:
        held = asyncio.create_task(crew.at(other).get(f"/status/{kickoff}?wait=60"))
        await _is_held(other)
        async with asyncio.timeout(30):  # less than the request would wait
            await other.http_server.stop()
            answer = await held
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
    assert answer.json()["message"] == "The server is stopping. Send the request again."
    assert not [record for record in caplog.records if record.exc_info]


GET = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"


async def test_a_server_that_drains_answers_on_kept_connections_and_closes_them(crew: Crew) -> None:
    """A proxy may send a request on a connection that it keeps at the moment at which the server stops."""
    async with serving(crew.server.database.url) as other:
        kept, writer = await asyncio.open_connection("127.0.0.1", other.port)
        idle, idle_writer = await asyncio.open_connection("127.0.0.1", other.port)
        for reader, sender in ((kept, writer), (idle, idle_writer)):
            sender.write(GET)
            assert "connection" not in (await answer_of(reader))[1]
        draining = asyncio.create_task(other.http_server.drain(60, asyncio.Event()))
        await asyncio.sleep(0)
        assert not draining.done()
        writer.write(GET)
        status, headers, _ = await answer_of(kept)
        assert (status, headers["connection"]) == (200, "close")
        assert await kept.read() == b""
        await asyncio.wait_for(draining, 60)  # the other connection is idle, and so is closed
        assert await idle.read() == b""
        assert await refused(other.port)
        writer.close()
        idle_writer.close()


async def test_a_connection_that_was_made_before_the_drain_is_answered(crew: Crew) -> None:
    """The kernel makes connections that the server has not accepted yet. It would reset them at the end."""
    async with serving(crew.server.database.url) as other:
        early = socket.create_connection(("127.0.0.1", other.port))  # the server can't accept it meanwhile
        early.sendall(GET)
        draining = asyncio.create_task(other.http_server.drain(60, asyncio.Event()))
        reader, writer = await asyncio.open_connection(sock=early)
        assert (await answer_of(reader))[0] == 200
        writer.close()
        await draining


async def test_a_drain_ends_at_once_when_that_is_wanted(crew: Crew) -> None:
    kickoff = await crew.kickoff()
    async with serving(crew.server.database.url) as other:
        held = asyncio.create_task(crew.at(other).get(f"/status/{kickoff}?wait=60"))
        await _is_held(other)
        stop_now = asyncio.Event()
        draining = asyncio.create_task(other.http_server.drain(600, stop_now))
        await until(lambda: refused(other.port), "it accepts no more connections")
        assert not draining.done()
        stop_now.set()
        async with asyncio.timeout(30):
            await draining
        await other.http_server.stop()
        assert (await held).status_code == 503


async def refused(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionRefusedError:
        return True
    writer.close()
    return False


async def test_an_idle_connection_does_not_keep_the_server_from_stopping(crew: Crew) -> None:
    async with serving(crew.server.database.url) as other:
        reader, writer = await asyncio.open_connection("127.0.0.1", other.port)
        writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await answer_of(reader))[0] == 200
        other.http_server._server.config.timeout_graceful_shutdown = None  # without a bound to the wait for requests
        await asyncio.wait_for(other.http_server.stop(), 60)
        assert await reader.read() == b""
        writer.close()


async def test_an_application_that_breaks_off_its_answer_is_not_mistaken_for_a_whole_one(crew: Crew) -> None:
    server = HttpServer(_breaks_off, "127.0.0.1", 0)
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    assert b"content-length: 100" in head
    assert await reader.read() == b"half"
    writer.close()
    await server.stop()


async def test_health_needs_no_token_and_tells_no_names(server: Server) -> None:
    health = await server.http.get(f"{server.url}/health")
    ready = await server.http.get(f"{server.url}/ready")
    assert (health.status_code, health.json()) == (200, {"status": "ok"})
    assert (ready.status_code, ready.json()) == (200, {"status": "ok", "checks": {"database": "ok"}})
    wrong = await server.http.post(f"{server.url}/health")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET, HEAD")
    check_error(405, dict(wrong.headers), wrong.content)


async def _is_held(server: Server) -> None:
    async def waiting() -> bool:
        return bool(server.statuses._ends._waiting)

    await until(waiting, "a request is held back")


async def _nothing(scope: object, receive: object, send: object) -> None:
    pass


async def _breaks_off(scope: object, receive: object, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"100")]})
    await send({"type": "http.response.body", "body": b"half", "more_body": True})
