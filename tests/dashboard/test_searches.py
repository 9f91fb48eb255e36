"""Finding crews by a part of their name and executions by their id, and going through the pages of a list."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from dashboard.made_runs import started
from windlass.dashboard.executions import PAGE, short_id
from windlass.kickoffs.ids import new_id
from windlass.store.reporting import Batch

if TYPE_CHECKING:
    from api.serving import Crew, Server
    from dashboard.people import Visitor

pytestmark = pytest.mark.asyncio(loop_scope="session")


def rows(page: str) -> list[str]:
    return re.findall(r'<tr id="execution-([0-9a-f-]+)"', page)


def link(page: str, rel: str) -> str:
    found = re.search(rf'href="([^"]+)" rel="{rel}"', page)
    assert found, f"the page has no link {rel}"
    return found[1].replace("&amp;", "&")


async def test_the_search_of_every_page_finds_an_execution_by_its_id_or_a_part_of_it(
    crew: Crew, viewer: Visitor
) -> None:
    kickoff = await crew.kickoff()
    path = f"/ui/crews/{crew.deployment.slug}/executions/{kickoff}"
    for text in (kickoff, kickoff.upper(), kickoff[:23], short_id((await started(crew, kickoff)).run.claimed.id)):
        answer = await viewer.get("/ui/", params={"search": text})
        assert (answer.status_code, answer.headers.get("location")) == (303, path), text
    several = (await viewer.get("/ui/", params={"search": kickoff[-4:]})).text
    assert path in several or (await viewer.get("/ui/", params={"search": kickoff[-4:]})).headers["location"] == path
    nothing = (await viewer.get("/ui/", params={"search": str(new_id())})).text
    assert "No crew, and no execution, has" in nothing
    assert "with this id" not in nothing
    for text in ("not-an-id", "abc", "…", "f" * 60):
        assert (await viewer.get("/ui/", params={"search": text})).status_code == 200, text


async def test_a_list_is_filtered_by_the_beginning_of_an_id_and_by_a_part_of_a_crews_name(
    server: Server, crew: Crew, viewer: Visitor
) -> None:
    kickoff = await crew.kickoff()
    for text in (kickoff[:23], kickoff.replace("-", "")[:20], kickoff[-6:]):
        assert rows((await viewer.get(f"/ui/executions?id={text}")).text) == [kickoff], text
    one, two = await server.crew("finder-one-a"), await server.crew("finder-two-a")
    first, second = await one.kickoff(), await two.kickoff()
    for text, found in {
        "finder-one-a": [first],
        "inder-two": [second],
        "FINDER-": [second, first],
        "finder-three": [],
    }.items():
        assert rows((await viewer.get(f"/ui/executions?crew={text}")).text) == found, text
        lines = (await viewer.get(f"/ui/executions.csv?crew={text}")).text.splitlines()
        assert [line[:36] for line in lines[1:]] == found, text
    whole = await server.crew("finder")
    only = await whole.kickoff()
    assert rows((await viewer.get("/ui/executions?crew=finder")).text) == [only], "a whole name is that of one crew"


async def test_a_list_is_gone_through_in_both_directions(crew: Crew, viewer: Visitor) -> None:
    kickoffs = [await crew.kickoff() for _ in range(2 * PAGE + 3)][::-1]
    path = f"/ui/crews/{crew.deployment.slug}/executions?state=queued"
    pages = [kickoffs[at : at + PAGE] for at in range(0, len(kickoffs), PAGE)]
    page = (await viewer.get(path)).text
    assert 'rel="prev"' not in page
    for expected in pages[1:]:
        page = (await viewer.get(link(page, "next"))).text
        assert rows(page) == expected
    assert 'rel="next"' not in page
    assert f'href="{path}">Newest</a>' in page
    page = (await viewer.get(link(page, "prev"))).text
    assert rows(page) == pages[1]
    assert rows((await viewer.get(link(page, "next"))).text) == pages[2]
    page = (await viewer.get(link(page, "prev"))).text
    assert rows(page) == pages[0]
    assert 'rel="prev"' not in page


async def test_an_execution_whose_process_is_being_prepared_is_starting(crew: Crew, viewer: Visitor) -> None:
    writer = await started(crew)
    path = f"/ui/crews/{crew.deployment.slug}/executions"
    for waits_for, word in (("zygote", "Starting"), ("secrets", "Starting"), (None, "Running")):
        claimed = writer.run.claimed
        batch = Batch(waiting_for=waits_for, row_changes=True)
        assert await writer.run.store.write_reports(claimed.id, claimed.attempt, batch)
        for page in (path, f"{path}/{claimed.id}"):
            text = (await viewer.get(page)).text
            assert f'aria-hidden="true"></span>{word}</span>' in text, (waits_for, page)
    assert "It is starting" not in text
