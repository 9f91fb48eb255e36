"""The events of a kickoff as both clients follow them, against a real server and over lost connections."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread
from typing import TYPE_CHECKING, Any, Self

import pytest

from api.runs import begin
from api.test_past_kickoffs import printed, write
from patience import DEADLINE
from windlass.client import AsyncCrew, Crew, CrewError, Event, NotFound, Unauthorized, Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from api.serving import Crew as Served

    Follow = Callable[..., Coroutine[Any, Any, list[Event]]]

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture(params=["sync", "async"])
def follow(request: pytest.FixtureRequest) -> Follow:
    """Follows a kickoff with the one client or with the other, and calls `seen` with each event."""

    def in_thread(url: str, token: str, kickoff: str, after: int, seen: Any, patience: float) -> list[Event]:
        with Crew(url, token, patience=patience) as crew:
            return [event for event in crew.events(kickoff, after) if seen(event) is None]

    async def in_loop(url: str, token: str, kickoff: str, after: int, seen: Any, patience: float) -> list[Event]:
        async with AsyncCrew(url, token, patience=patience) as crew:
            return [event async for event in crew.events(kickoff, after) if seen(event) is None]

    async def started(
        url: str, token: str, kickoff: str, after: int = 0, seen: Any = lambda _: None, patience: float = 20.0
    ) -> list[Event]:
        if request.param == "async":
            return await in_loop(url, token, kickoff, after, seen, patience)
        return await asyncio.to_thread(in_thread, url, token, kickoff, after, seen, patience)

    return started


async def test_events_come_as_they_happen_until_the_end(served: Served, follow: Follow) -> None:
    run = await begin(served, await served.kickoff())
    await write(run, *printed([1, 2]))
    two, loop = asyncio.Event(), asyncio.get_running_loop()

    def seen(event: Event) -> None:
        if event.seq == 2:
            loop.call_soon_threadsafe(two.set)

    following = asyncio.create_task(follow(served.base_url, served.token, str(run.claimed.id), seen=seen))
    async with asyncio.timeout(60):
        await two.wait()
        await write(run, *printed([3]))
        await run.succeed()
        events = await following
    assert [event.seq for event in events] == [1, 2, 3]
    assert events[2] == Event(3, 1, "output_stdout", datetime(1970, 1, 1, 0, 16, 43, 500000, UTC), {"line": "x"})
    assert [one.seq for one in await follow(served.base_url, served.token, str(run.claimed.id), 1)] == [2, 3]
    assert await follow(served.base_url, served.token, str(run.claimed.id), 3) == []


async def test_refusals_are_errors(served: Served, follow: Follow) -> None:
    kickoff = await served.kickoff()
    with pytest.raises(Unauthorized):
        await follow(served.base_url, f"{served.token}x", kickoff)
    with pytest.raises(NotFound):
        await follow(served.base_url, served.token, "0199b0c2-7f3a-7c11-9d52-0a4b6c8e1f23")


HEAD = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


def event(seq: int) -> str:
    data = f'{{"seq":{seq},"attempt":1,"type":"t","at":"2026-01-15T09:30:00Z","payload":{{}}}}'
    return f"id: {seq}\ndata: {data}\n\n"


class Broken(ThreadingTCPServer):
    """A server whose connections break off. Its end waits for the threads of all connections."""

    def __init__(self, *answers: str) -> None:
        super().__init__(("127.0.0.1", 0), BaseRequestHandler)
        self._answers = list(answers)
        self._thread = Thread(target=self.serve_forever, args=(0.02,))
        self.requests: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def finish_request(self, request: Any, _: object) -> None:
        request.settimeout(DEADLINE)
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            if not (more := request.recv(65536)):
                return
            head += more
        self.requests.append(head.decode())
        request.sendall((self._answers.pop(0) if self._answers else "").encode())


async def test_a_lost_connection_is_made_again_after_the_last_event(follow: Follow) -> None:
    half = event(3)[:-20]
    last = "event: end\ndata: {}\n\n"
    answers = (HEAD + event(1) + event(2) + half, "", HEAD + ": nothing new\n\n" + event(3), HEAD + event(4) + last)
    with Broken(*answers) as server:
        events = await follow(server.url, "token", "k")
    assert [one.seq for one in events] == [1, 2, 3, 4]
    ids = [request.lower().partition("last-event-id: ")[2].partition("\r\n")[0] for request in server.requests]
    assert ids == ["", "2", "2", "3"]


async def test_a_kickoff_that_has_ended_meanwhile_ends_the_events(follow: Follow) -> None:
    with Broken(HEAD + event(1), "HTTP/1.1 204 No Content\r\n\r\n") as server:
        assert [one.seq for one in await follow(server.url, "token", "k")] == [1]


async def test_a_server_that_stays_away_is_an_error(follow: Follow) -> None:
    with Broken(HEAD + event(1)) as server, pytest.raises(Unreachable):
        await follow(server.url, "token", "k", patience=0.5)


@pytest.mark.parametrize(
    "answer",
    [
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
        HEAD + "data: no JSON\n\n",
        HEAD + "data: []\n\n",
        HEAD + 'data: {"seq":1}\n\n',
    ],
)
async def test_another_answer_than_a_stream_is_an_error(follow: Follow, answer: str) -> None:
    with Broken(answer) as server, pytest.raises(CrewError, match=r"stream|event"):
        await follow(server.url, "token", "k", patience=0.5)
