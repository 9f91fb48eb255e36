"""Clients ask for results of many megabytes, all at once, or without reading what they asked for."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import psutil
import pytest

from api.runs import begin
from api.serving import serving
from api.serving import until as eventually
from faults.dev_server import DevServer, until
from windlass.store import reading

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from api.serving import Crew, Server

MB = 1 << 20
RESULTS = 10
LARGE = 30 * MB
MOST_MEMORY = 500 * MB
CLIENTS = 100
GIVE = """
def wait(seconds: float, word: str) -> str:
    return word * 60_000_000
"""


async def finished(crew: Crew, output: str = "done") -> str:
    """A kickoff that has ended, whose tasks gave `output`, as its result did."""
    run = await begin(crew, kickoff := await crew.kickoff())
    for position in range(2):
        await run.end_task(position, output)
    await run.succeed(output, structured={"a": [output[:100]]})
    return kickoff


async def body(server: Server, crew: Crew, kickoff: str) -> tuple[int, bytes]:
    """Status and body, read as they come."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        writer.write(request(f"{crew.path}/status/{kickoff}", crew.token))
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        return int(head.split()[1]), await reader.readexactly(int(length.partition(b":")[2]))
    finally:
        writer.close()


def request(path: str, token: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n".encode()


@pytest.mark.asyncio(loop_scope="session")
async def test_ten_results_of_30_mb_that_are_polled_together_fail_nobody(crew: Crew) -> None:
    """On a server of their own: the pool of connections and the disk space are those of the product."""
    first, small = await finished(crew, "a line of words " * (LARGE // 16)), await finished(crew)
    others = [await finished(crew) for _ in range(RESULTS - 1)]
    copy = "UPDATE task_records AS copy SET output = task.output FROM task_records AS task WHERE copy.position = "
    copy += "task.position AND task.kickoff_id = %(id)s::uuid AND copy.kickoff_id = ANY (%(others)s::uuid[])"
    await crew.server.database.execute(copy, {"id": first, "others": others})
    async with serving(crew.server.database.url, large_answers=2 * RESULTS * 3 * LARGE) as server:
        polled = [asyncio.create_task(body(server, crew, kickoff)) for kickoff in (first, *others)]
        asked = 0
        while not all(task.done() for task in polled):
            status, answer = await body(server, crew, small)
            assert (status, json.loads(answer)["result"]["output"]) == (200, "done")
            asked += 1
        for task in polled:
            status, answer = task.result()
            assert status == 200
            assert len(answer) > 2 * LARGE
        assert asked > 1


@pytest.fixture
def giving(open_folder: Path) -> Iterator[DevServer]:
    """A server whose crew gives 60 MB."""
    server = DevServer(open_folder)
    server.write_project(GIVE)
    try:
        server.start()
        yield server
    finally:
        server.clean_up()


def test_100_clients_that_do_not_read_60_mb_leave_the_memory_below_500_mb(giving: DevServer) -> None:
    kickoff = giving.kickoff(0, word="x")
    until(lambda: giving.client.get("/health").status_code == 200 and has_ended(giving, kickoff), "the kickoff ended")
    assert giving.process is not None
    process = psutil.Process(giving.process.pid)
    with ExitStack() as stack:
        clients = [stack.enter_context(silent(giving, kickoff)) for _ in range(CLIENTS)]
        deadline = time.monotonic() + 60
        answered = 0
        while answered < CLIENTS:
            assert process.memory_info().rss < MOST_MEMORY
            assert time.monotonic() < deadline
            answered = sum(has_an_answer(client) for client in clients)
            assert giving.client.get("/health", timeout=10).status_code == 200
        assert process.memory_info().rss < MOST_MEMORY
        assert json.loads(read_slowly(clients[0]))["status"] == "completed"
        assert sum(has_an_answer(client) for client in clients[1:]) == CLIENTS - 1


def has_ended(server: DevServer, kickoff: str) -> bool:
    """Asks in a way that reads no result."""
    attempts = server.client.get(f"/attempts/{kickoff}").json().get("attempts")
    return bool(attempts and attempts[-1]["ended_at"])


def silent(server: DevServer, kickoff: str) -> socket.socket:
    """A client that has asked, with little room for what comes."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect((server.client.base_url.host, server.client.base_url.port))
    path = f"{server.client.base_url.path.rstrip('/')}/status/{kickoff}"
    client.sendall(request(path, server.client.headers["Authorization"].removeprefix("Bearer ")))
    return client


def has_an_answer(client: socket.socket) -> bool:
    try:
        begin = client.recv(12, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    assert begin == b"HTTP/1.1 200"
    return True


def read_slowly(client: socket.socket) -> bytes:
    client.settimeout(30)
    with client.makefile("rb") as file:
        head = b"".join(iter(file.readline, b"\r\n")).lower()
        length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
        return file.read(length)


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("profile", ["documented", "live"])
@pytest.mark.parametrize("ends", [True, False])
async def test_a_large_status_has_the_bytes_of_a_small_one(
    crew: Crew, monkeypatch: pytest.MonkeyPatch, profile: str, ends: bool
) -> None:
    token = await crew.organization_token(profile=profile)
    kickoff = await crew.kickoff(meta={"a": ["é", None]})
    run = await begin(crew, kickoff)
    await run.end_task(0, 'first\x00 "é" \\')
    if profile == "live" and not ends:  # its duration grows
        await crew.server.database.execute("UPDATE kickoffs SET started_at = NULL")
    if ends:
        await run.end_task(1, None)
        await run.succeed("the end", structured={"odd": "\ud800"})
    await same_in_both_ways(crew, kickoff, token, monkeypatch)


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("piece", [1, 7])
async def test_pieces_of_any_size_make_the_same_status(crew: Crew, monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    monkeypatch.setattr(reading, "PIECE", piece)
    await same_in_both_ways(crew, await finished(crew, 'a "é"'), crew.token, monkeypatch)


@pytest.mark.asyncio(loop_scope="session")
async def test_a_large_status_of_one_that_waits_is_the_same_too(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    await same_in_both_ways(crew, await crew.kickoff(), crew.token, monkeypatch)
    warned = await crew.kickoff(meta={"a": 1}, webhooks={"url": "http://a.test/", "events": ["task_started"]})
    await same_in_both_ways(crew, warned, crew.token, monkeypatch)


async def same_in_both_ways(crew: Crew, kickoff: str, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    small = await crew.get(f"/status/{kickoff}", token=token)
    with monkeypatch.context() as patched:
        patched.setattr(reading, "MOST_STORED", 0)
        files = crew.server.large_answers.files
        large = await crew.get(f"/status/{kickoff}", token=token)
        assert crew.server.large_answers.files == files + 1
    assert large.status_code == small.status_code == 200
    assert large.content == small.content
    assert {**large.headers, "date": ""} == {**small.headers, "date": ""}


@pytest.mark.asyncio(loop_scope="session")
async def test_a_small_value_that_grows_when_it_is_decompressed_is_read_on_its_own(crew: Crew) -> None:
    files = crew.server.large_answers.files
    _, answer = await body(crew.server, crew, await finished(crew, "x" * MB))
    assert json.loads(answer)["result"]["output"] == "x" * MB
    assert crew.server.large_answers.files == files + 1


@pytest.mark.asyncio(loop_scope="session")
async def test_an_answer_without_room_is_told_to_come_again_and_room_comes_back(crew: Crew) -> None:
    one, two = await finished(crew, "x" * 3 * MB), await finished(crew, "y" * 3 * MB)
    async with serving(crew.server.database.url, large_answers=12 * MB) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=4096)
        writer.write(request(f"{crew.path}/status/{one}", crew.token))
        await reader.readuntil(b"\r\n\r\n")
        assert (await body(server, crew, one))[0] == 200  # the same file
        status, answer = await body(server, crew, two)
        assert (status, "WINDLASS_LARGE_ANSWERS" in json.loads(answer)["message"]) == (503, True)
        writer.transport.abort()

        async def answered() -> bool:
            return (await body(server, crew, two))[0] == 200

        await eventually(answered, "there is room")

        async def freed() -> bool:
            return server.large_answers.bytes == 0

        await eventually(freed, "the room is free")


@pytest.mark.asyncio(loop_scope="session")
async def test_a_large_status_of_one_that_is_deleted_meanwhile_is_404(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    kickoff = await finished(crew)
    monkeypatch.setattr(reading, "MOST_STORED", 0)
    statuses = crew.server.statuses
    await statuses._large_reads.acquire()
    await statuses._large_reads.acquire()
    asked = asyncio.create_task(crew.get(f"/status/{kickoff}"))

    async def waits() -> bool:
        return bool(statuses._large_reads._waiters)

    await eventually(waits, "the answer waits for its turn")
    await crew.server.database.execute("DELETE FROM task_records WHERE kickoff_id = %(id)s::uuid", {"id": kickoff})
    await crew.server.database.execute("DELETE FROM kickoffs WHERE id = %(id)s::uuid", {"id": kickoff})
    statuses._large_reads.release()
    statuses._large_reads.release()
    assert (await asked).status_code == 404
