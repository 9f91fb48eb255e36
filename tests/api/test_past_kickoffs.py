"""The list of kickoffs and the pages of events: who sees what, and in which pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from api.runs import begin
from windlass.kickoffs.events import TRACEBACK, stored_event
from windlass.kickoffs.ids import new_id
from windlass.rights import Scope
from windlass.store import kickoff_list, reading
from windlass.store.reporting import Batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from api.runs import Run
    from api.serving import Crew
    from windlass.kickoffs.events import StoredEvent

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def listed(crew: Crew, query: str = "", token: str | None = None) -> dict[str, Any]:
    answer = await crew.get(f"/kickoffs{query}", token=token)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def ids(page: dict[str, Any]) -> list[str]:
    return [kickoff["kickoff_id"] for kickoff in page["kickoffs"]]


async def events_of(crew: Crew, kickoff: str, query: str = "", token: str | None = None) -> dict[str, Any]:
    answer = await crew.get(f"/events/{kickoff}{query}", token=token)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def write(run: Run, *events: StoredEvent) -> None:
    assert await run.store.write_reports(run.claimed.id, run.claimed.attempt, Batch(events=events))


def printed(numbers: Sequence[int], size: int = 1) -> list[StoredEvent]:
    return [stored_event(number, "output_stdout", 1000.5 + number, {"line": "x" * size}) for number in numbers]


async def test_a_crew_without_kickoffs_has_an_empty_list(crew: Crew) -> None:
    assert await listed(crew) == {"kickoffs": [], "next_cursor": None}


async def test_kickoffs_are_listed_newest_first(crew: Crew) -> None:
    kickoffs = [await crew.kickoff() for _ in range(3)]
    assert ids(await listed(crew)) == kickoffs[::-1]


async def test_a_row_has_the_members_of_the_status(crew: Crew) -> None:
    run = await begin(crew, kickoff := await crew.kickoff(token=crew.user_token))
    await run.fail()
    status = await crew.status(kickoff)
    (row,) = (await listed(crew))["kickoffs"]
    assert (row.pop("user"), row.pop("total_tokens")) == ("owner", 120)
    assert row == {name: status[name] for name in row}
    assert (row["state"], row["reason"], row["error"]) == ("FAILED", "error", "the tool is broken")


async def test_pages_follow_each_other_without_gap_or_repetition(crew: Crew) -> None:
    kickoffs = [await crew.kickoff() for _ in range(5)]
    first = await listed(crew, "?limit=2")
    await crew.kickoff()  # a new kickoff does not move later pages
    second = await listed(crew, f"?limit=2&cursor={first['next_cursor']}")
    third = await listed(crew, f"?limit=2&cursor={second['next_cursor']}")
    assert [*ids(first), *ids(second), *ids(third)] == kickoffs[::-1]
    assert third["next_cursor"] is None


async def test_a_filter_selects_by_state_and_user(crew: Crew) -> None:
    name = f"cleo {crew.path}"
    cleo = await crew.token_of(name)
    stopped, waits = await crew.kickoff(token=cleo), await crew.kickoff(token=cleo)
    await crew.stop(stopped)
    organizations = await crew.kickoff()
    assert ids(await listed(crew, "?state=FAILED")) == [stopped]
    assert ids(await listed(crew, "?state=PENDING")) == [organizations, waits]
    assert ids(await listed(crew, f"?state=PENDING&user={name}")) == [waits]
    assert ids(await listed(crew, "?user=nobody-of-this-name")) == []


async def test_a_user_token_sees_its_own_kickoffs_and_a_stranger_none(crew: Crew) -> None:
    dora = await crew.token_of(f"dora {crew.path}")
    own, _ = await crew.kickoff(token=dora), await crew.kickoff()
    assert ids(await listed(crew, token=dora)) == [own]
    assert ids(await listed(crew, "?user=owner", token=dora)) == []
    other = await crew.server.crew()
    assert ids(await listed(other)) == []
    assert (await crew.get("/kickoffs", token=other.token)).status_code == 401
    assert (await crew.get("/kickoffs", token="")).status_code == 401


async def test_a_search_for_rare_kickoffs_reads_a_bounded_number_of_rows(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kickoff_list, "MOST_READ", 2)
    rare = await crew.kickoff()
    await crew.stop(rare)
    for _ in range(3):
        await crew.kickoff()
    pages = [await listed(crew, "?state=FAILED")]
    while cursor := pages[-1]["next_cursor"]:
        pages.append(await listed(crew, f"?state=FAILED&cursor={cursor}"))
    assert [ids(page) for page in pages] == [[], [rare], []]


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("?limit=0", "limit"),
        ("?limit=201", "limit"),
        ("?limit=many", "limit"),
        ("?state=DONE", "state"),
        ("?cursor=7", "cursor"),
        ("?user=", "user"),
        ("?user=%00", "user"),
        ("?sate=FAILED", "sate"),
        ("?limit=1&limit=2", "limit"),
    ],
)
async def test_an_invalid_parameter_is_named(crew: Crew, query: str, named: str) -> None:
    answer = await crew.get(f"/kickoffs{query}")
    assert answer.status_code == 400
    assert named in answer.json()["message"]


async def test_events_come_in_pages_with_the_state(crew: Crew) -> None:
    run = await begin(crew, kickoff := await crew.kickoff())
    await write(run, *printed(range(1, 6)))
    first = await events_of(crew, kickoff, "?limit=3")
    assert (first["state"], first["status"], first["next"], first["more"]) == ("STARTED", "running", 3, True)
    assert first["events"][0] == {
        "seq": 1,
        "attempt": 1,
        "type": "output_stdout",
        "at": "1970-01-01T00:16:41.500000Z",
        "payload": {"line": "x"},
    }
    second = await events_of(crew, kickoff, f"?after={first['next']}")
    assert ([event["seq"] for event in second["events"]], second["next"], second["more"]) == ([4, 5], 5, False)
    last = await events_of(crew, kickoff, f"?after={second['next']}")
    assert (last["events"], last["next"], last["more"]) == ([], 5, False)


async def test_large_events_make_short_pages(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PAGE_BYTES", 2500)
    run = await begin(crew, kickoff := await crew.kickoff())
    await write(run, *printed([1, 2, 3], 1000), *printed([4], 5000))
    pages = [await events_of(crew, kickoff)]
    while pages[-1]["more"]:
        pages.append(await events_of(crew, kickoff, f"?after={pages[-1]['next']}"))
    assert [[event["seq"] for event in page["events"]] for page in pages] == [[1, 2], [3], [4]]


async def test_a_traceback_is_for_the_organization_only(crew: Crew) -> None:
    run = await begin(crew, kickoff := await crew.kickoff(token=crew.user_token))
    await write(run, *printed([1]), stored_event(2, TRACEBACK, 1002.0, {"text": "File crew.py"}))
    assert [event["type"] for event in (await events_of(crew, kickoff))["events"]] == ["output_stdout", TRACEBACK]
    own = await events_of(crew, kickoff, token=crew.user_token)
    assert [event["type"] for event in own["events"]] == ["output_stdout"]


async def test_events_of_another_users_kickoff_are_not_found(crew: Crew) -> None:
    kickoff = await crew.kickoff()
    assert (await crew.get(f"/events/{kickoff}", token=crew.user_token)).status_code == 404
    assert (await crew.get(f"/events/{new_id()}")).status_code == 404
    other = await crew.server.crew()
    assert (await other.get(f"/events/{kickoff}")).status_code == 404


@pytest.mark.parametrize(
    "query", ["?after=-1", "?after=x", "?limit=0", "?limit=501", "?from=1", "?after=9007199254740993"]
)
async def test_an_invalid_page_is_refused(crew: Crew, query: str) -> None:
    kickoff = await crew.kickoff()
    assert (await crew.get(f"/events/{kickoff}{query}")).status_code == 400


async def test_a_token_without_the_scope_read_sees_neither(crew: Crew) -> None:
    kickoff = await crew.kickoff()
    runner = (await crew.server.tokens.create(crew.deployment.id, scopes=[Scope.RUN])).reveal()
    for path in ("/kickoffs", f"/events/{kickoff}"):
        assert (await crew.get(path, token=runner)).status_code == 403
