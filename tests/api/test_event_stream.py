"""Server-Sent Events: what a stream has, when it ends, who may read it, and what breaks it off."""

from __future__ import annotations

import asyncio
import base64
import json
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any
from uuid import UUID

import httpx
import pytest

from api.runs import begin
from api.serving import serving, until
from api.test_past_kickoffs import printed, write
from windlass.access import tickets
from windlass.kickoffs.events import HIDDEN_FROM_USERS, StoredEvent, stored_event
from windlass.lifecycle import event_streams
from windlass.lifecycle.event_streams import Shares, TooManyStreams
from windlass.rights import Scope

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from api.runs import Run
    from api.serving import Crew

pytestmark = pytest.mark.asyncio(loop_scope="session")
STREAM = {"Accept": "text/event-stream"}
SOON = 60.0
HIDDEN = list(enumerate(HIDDEN_FROM_USERS, 2))


class Stream:
    """A client's end of a stream."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.aiter_lines()

    async def message(self) -> dict[str, str]:
        """The fields of the next message or comment."""
        found: dict[str, str] = {}
        async with asyncio.timeout(SOON):
            async for line in self._lines:
                if not line:
                    return found
                name, _, value = line.partition(":")
                found[name or "comment"] = value.strip()
        return found

    async def event(self) -> dict[str, Any]:
        """The next event."""
        while "id" not in (message := await self.message()):
            assert message, "the stream ended"
        event: dict[str, Any] = json.loads(message["data"])
        assert int(message["id"]) == event["seq"]
        return event

    async def rest(self) -> list[dict[str, str]]:
        found = []
        while message := await self.message():
            found.append(message)
        return found


@asynccontextmanager
async def stream(
    crew: Crew, kickoff: str, query: str = "", *, token: str | None = None, **headers: str
) -> AsyncIterator[Stream]:
    given = crew.token if token is None else token
    sent = {**STREAM, **({"Authorization": f"Bearer {given}"} if given else {}), **headers}
    url = f"{crew.base_url}/events/{kickoff}{query}"
    async with httpx.AsyncClient(timeout=SOON) as client, client.stream("GET", url, headers=sent) as response:
        yield Stream(response)


async def started(crew: Crew, *, token: str | None = None) -> Run:
    return await begin(crew, await crew.kickoff(token=token))


async def refused(crew: Crew, kickoff: str, query: str = "", **more: Any) -> int:
    async with stream(crew, kickoff, query, **more) as found:
        await found.response.aread()
        return found.response.status_code


async def test_a_stream_has_the_stored_events_then_new_ones_and_ends_with_the_kickoff(crew: Crew) -> None:
    run = await started(crew)
    await write(run, *printed(range(1, 4)))
    async with stream(crew, str(run.claimed.id)) as found:
        assert found.response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert found.response.headers["cache-control"] == "no-store"
        assert [(await found.event())["seq"] for _ in range(3)] == [1, 2, 3]
        await write(run, *printed([4]))
        event = await found.event()
        assert event == {
            "seq": 4,
            "attempt": 1,
            "type": "output_stdout",
            "at": "1970-01-01T00:16:44.500000Z",
            "payload": {"line": "x"},
        }
        await write(run, *printed([5]))
        await run.succeed()
        assert (await found.event())["seq"] == 5
        (end,) = await found.rest()
    assert end["event"] == "end"
    assert json.loads(end["data"]) == {"kickoff_id": str(run.claimed.id), "status": "completed", "state": "SUCCESS"}


async def test_a_stream_goes_on_after_the_last_event_that_the_client_has(crew: Crew) -> None:
    run = await started(crew)
    kickoff = str(run.claimed.id)
    await write(run, *printed(range(1, 301)))  # more than one read
    for query, headers in (("?after=297", {}), ("", {"Last-Event-ID": "297"}), ("?after=5", {"Last-Event-ID": "297"})):
        async with stream(crew, kickoff, query, **headers) as found:
            assert [(await found.event())["seq"] for _ in range(3)] == [298, 299, 300]
    async with stream(crew, kickoff) as found:
        assert [(await found.event())["seq"] for _ in range(300)] == list(range(1, 301))
    await run.fail()
    async with stream(crew, kickoff, **{"Last-Event-ID": "299"}) as found:
        assert (await found.event())["seq"] == 300
        assert [one["event"] for one in await found.rest()] == ["end"]
    assert await refused(crew, kickoff, **{"Last-Event-ID": "300"}) == 204, "a browser would connect for ever"
    async with stream(crew, kickoff, "?after=300") as found:
        assert [one.get("event") for one in await found.rest()] == [None, "end"], "the first one has `retry`"


@pytest.mark.parametrize("given", ["-1", "one", "1.5", "²", "9" * 19])
async def test_a_wrong_last_event_id_is_400(crew: Crew, given: str) -> None:
    kickoff = await crew.kickoff()
    answer = await crew.get(f"/events/{kickoff}", headers={**STREAM, "Last-Event-ID": given.encode()})
    assert answer.status_code == 400
    assert "Last-Event-ID" in answer.json()["message"]


async def test_a_crew_can_not_add_messages_with_the_type_or_the_payload_of_an_event(crew: Crew) -> None:
    run = await started(crew)
    forged = "\n\nevent: end\ndata: {}\n\n"
    event = stored_event(1, f"one{forged}", 1000.0, {"line": forged})
    spaced = StoredEvent(2, "two", 1000.0, '{\n\r\n"line": "x"}')
    await write(run, event, spaced)
    await run.succeed()
    async with stream(crew, str(run.claimed.id)) as found:
        first, second = await found.event(), await found.event()
        assert (first["type"], first["payload"]["line"]) == (f"one{forged}", forged)
        assert second["payload"] == {"line": "x"}
        assert len(await found.rest()) == 1


async def test_who_may_read_a_stream(crew: Crew) -> None:
    run = await started(crew, token=crew.user_token)
    kickoff = str(run.claimed.id)
    hidden = [stored_event(number, kind, 1000.0, {"text": "secret"}) for number, kind in HIDDEN]
    await write(run, *printed([1]), *hidden, *printed([len(hidden) + 2]))
    page = (await crew.get(f"/events/{kickoff}", token=crew.user_token)).json()
    assert [event["seq"] for event in page["events"]] == [1, len(hidden) + 2]
    await run.fail()
    other = await crew.token_of("stranger")
    read_only = await crew.server.tokens.create(crew.deployment.id, scopes=[Scope.RUN])
    assert await refused(crew, kickoff, token=other) == 404
    assert await refused(crew, kickoff, token="") == 401
    assert await refused(crew, kickoff, token=read_only.reveal()) == 403
    assert await refused(crew, "0199b0c2-7f3a-7c11-9d52-0a4b6c8e1f23") == 404
    for token, expected in ((crew.user_token, [1, len(hidden) + 2]), (crew.token, [*range(1, len(hidden) + 3)])):
        async with stream(crew, kickoff, token=token) as found:
            assert [(await found.event())["seq"] for _ in expected] == expected
            assert len(await found.rest()) == 1


async def test_a_ticket_opens_streams_of_one_crew_for_a_minute(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    run = await started(crew, token=crew.user_token)
    kickoff = str(run.claimed.id)
    await write(run, *printed([1]))
    answer = await crew.request("POST", "/stream-tickets", token=crew.user_token)
    assert answer.json()["expires_in"] == 60
    ticket = answer.json()["ticket"]
    async with stream(crew, kickoff, f"?ticket={ticket}", token="") as found:
        assert (await found.event())["seq"] == 1
    foreign = await started(crew)
    assert await refused(crew, str(foreign.claimed.id), f"?ticket={ticket}", token="") == 404
    another = await crew.server.crew()
    assert await refused(another, kickoff, f"?ticket={ticket}", token="") == 401
    raw = base64.urlsafe_b64decode(ticket + "==")
    for wrong in ("", "x", ticket[:-1], "A" * 150, "é", base64.urlsafe_b64encode(b"\xff" + raw[1:]).decode()):
        assert await refused(crew, kickoff, f"?ticket={wrong}", token="") == 401, wrong
    page = await crew.get(f"/events/{kickoff}?ticket={ticket}", token="")
    assert page.status_code == 401, "only streams take tickets"
    monkeypatch.setattr(tickets, "VALID_SECONDS", -1)
    expired = (await crew.request("POST", "/stream-tickets", token=crew.user_token)).json()["ticket"]
    assert await refused(crew, kickoff, f"?ticket={expired}", token="") == 401


async def test_a_stream_ends_when_its_token_is_revoked(crew: Crew) -> None:
    run = await started(crew)
    token = await crew.server.tokens.create(crew.deployment.id)
    async with stream(crew, str(run.claimed.id), token=token.reveal()) as found:
        await write(run, *printed([1]))
        assert (await found.event())["seq"] == 1
        await crew.server.tokens.revoke(token.reveal()[-4:])
        await until_unknown(crew, token.reveal())
        await write(run, *printed([2]))
        assert await found.rest() == [], "no event, and no message `end`"


async def until_unknown(crew: Crew, token: str) -> None:
    async def is_unknown() -> bool:
        return (await crew.get("/inputs", token=token)).status_code == 401

    await until(is_unknown, "the token is unknown")


async def test_a_stream_without_events_has_heartbeats(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_streams, "HEARTBEAT", 0.05)
    run = await started(crew)
    async with stream(crew, str(run.claimed.id)) as found:
        messages = [await found.message() for _ in range(3)]
    assert [sorted(one) for one in messages] == [["retry"], ["comment"], ["comment"]]


async def test_the_streams_of_a_server_and_of_a_user_are_bounded(crew: Crew) -> None:
    run = await started(crew, token=crew.user_token)
    kickoff = str(run.claimed.id)
    async with AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(stream(crew, kickoff, token=crew.user_token)) for _ in range(5)]
        assert [sorted(await one.message()) for one in opened] == [["retry"]] * 5
        answer = await crew.get(f"/events/{kickoff}", headers=STREAM, token=crew.user_token)
        assert answer.status_code == 429
        assert answer.headers["retry-after"] == "10"
        assert (await crew.get(f"/events/{kickoff}", token=crew.user_token)).status_code == 200, "a page"

    async def has_room() -> bool:
        return not await of_user(crew, kickoff)

    await until(has_room, "the server has noticed that the clients are gone")


async def of_user(crew: Crew, kickoff: str) -> bool:
    """Whether another stream of the user is refused."""
    async with stream(crew, kickoff, token=crew.user_token) as found:
        return found.response.status_code == 429


async def test_a_server_that_stops_ends_its_streams_at_once(crew: Crew) -> None:
    run = await started(crew)
    async with serving(crew.server.database.url) as other, stream(crew.at(other), str(run.claimed.id)) as found:
        await write(run, *printed([1]))
        assert (await found.event())["seq"] == 1, "written at one server, read at another"
        stopping = asyncio.create_task(other.stop())
        assert await found.rest() == []
        await stopping


async def test_the_clients_of_one_crew_leave_streams_for_those_of_another(crew: Crew) -> None:
    async with serving(crew.server.database.url) as server:
        mine, other = await server.crew(), await server.crew()
        first, second = [str((await started(one)).claimed.id) for one in (mine, other)]
        async with AsyncExitStack() as stack:
            opened = [await stack.enter_async_context(stream(mine, first)) for _ in range(10)]
            assert [one.response.status_code for one in opened] == [200] * 10
            refused = await mine.get(f"/events/{first}", headers=STREAM)
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "10")
            assert "its share" in refused.text
            another = await stack.enter_async_context(stream(other, second))
            assert another.response.status_code == 200
            assert (await mine.get(f"/events/{first}")).status_code == 200, "a page"


async def test_requests_that_wait_for_one_crew_leave_room_for_those_of_another(crew: Crew) -> None:
    async with serving(crew.server.database.url) as server:
        mine, other = await server.crew(), await server.crew()
        first, second = [str((await started(one)).claimed.id) for one in (mine, other)]
        server.waits._most = 4
        held = [asyncio.create_task(mine.get(f"/status/{first}?wait=60")) for _ in range(2)]

        async def are_held() -> bool:
            return server.waits._taken.total() == len(held)

        await until(are_held, "two requests wait")
        refused = await mine.get(f"/status/{first}?wait=60")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "10")
        assert (await mine.get(f"/status/{first}")).status_code == 200
        assert (await other.get(f"/status/{second}?wait=0.01")).status_code == 200
        for one in held:
            one.cancel()
        await asyncio.gather(*held, return_exceptions=True)


async def test_however_many_crews_have_their_shares_another_one_gets_a_place() -> None:
    shares, crews = Shares(500, "streams"), [UUID(int=number) for number in range(6)]
    counts = []
    with ExitStack() as stack:
        for one in crews:
            count = 0
            with suppress(TooManyStreams):
                while True:
                    stack.enter_context(shares.taken(one))
                    count += 1
            counts.append(count)
    assert counts == [250, 125, 62, 31, 16, 8]
    assert not shares._taken
