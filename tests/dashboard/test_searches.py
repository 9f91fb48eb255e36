"""Finding crews by a part of their name and executions by their id, and going through the pages of a list."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
import pytest_asyncio

from dashboard.made_runs import started
from dashboard.people import Visitor
from windlass.dashboard import audit, crews, people
from windlass.dashboard.executions import PAGE, short_id
from windlass.kickoffs.ids import new_id
from windlass.rights import Role
from windlass.store.reporting import Batch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import ModuleType

    from api.serving import Crew, Server

pytestmark = pytest.mark.asyncio(loop_scope="session")

PAGES = 3
"""Pages of a list that a test goes through."""


@pytest_asyncio.fixture(loop_scope="session")
async def owner(server: Server) -> AsyncIterator[Visitor]:
    visitor = await Visitor.of(server, Role.OWNER)
    yield visitor
    await visitor.close()


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
    for text in (kickoff, kickoff.upper(), kickoff[:23]):
        answer = await viewer.get("/ui/", params={"search": text})
        assert (answer.status_code, answer.headers.get("location")) == (303, path), text
    # Executions of other tests can have the same sixteen bits at the end.
    for text in (short_id(UUID(kickoff)), kickoff[-4:]):
        answer = await viewer.get("/ui/", params={"search": text})
        assert answer.headers.get("location") == path or f'href="{path}"' in answer.text, text
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


@pytest.mark.parametrize(
    ("path", "module", "pattern"),
    [
        ("/ui/people?role=any", people, r'people/user\?name=([^"]+)">'),
        ("/ui/audit?action=user.add", audit, r'class="cut"[^>]* title="([^"]+)"'),
        ("/ui/?search=listed&order=-slug", crews, r'<tr id="crew-([^"]+)"'),
    ],
    ids=["people", "audit", "crews"],
)
async def test_every_list_is_gone_through_in_both_directions(
    server: Server, owner: Visitor, monkeypatch: pytest.MonkeyPatch, path: str, module: ModuleType, pattern: str
) -> None:
    about = module.__name__.rpartition(".")[2]
    for number in range(5):
        added = await owner.post("/ui/people", name=f"listed, {about} {number}", role="viewer")
        assert added.status_code == 303
        await server.crew(f"listed-{about}-{number}")
    monkeypatch.setattr(module, "PAGE", 2)

    async def read(address: str) -> tuple[str, list[str]]:
        page = (await owner.get(address)).text
        return page, re.findall(pattern, page)

    page, shown = await read(path)
    seen, pages = [shown], 1
    while 'rel="next"' in page and pages < PAGES:
        page, shown = await read(link(page, "next"))
        pages += 1
        assert f">Page {pages}<" in page
        seen.append(shown)
    assert pages == PAGES
    assert len({name for one in seen for name in one}) > PAGES, "the pages have different entries"
    for expected in reversed(seen[:-1]):
        page, shown = await read(link(page, "prev"))
        assert shown == expected
    assert 'rel="prev"' not in page


async def test_times_are_shown_in_full_to_a_person_who_wants_that(crew: Crew, viewer: Visitor) -> None:
    await crew.kickoff()
    path = f"/ui/crews/{crew.deployment.slug}/executions"
    assert "data-ago>" in (await viewer.get(path)).text
    for wanted, shown in (
        ("exact", r"<time [^>]*>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC<"),
        ("ago", r"<time [^>]*data-ago>now|ago<"),
    ):
        answer = await viewer.post("/ui/times", times=wanted, back=path)
        assert (answer.status_code, answer.headers["location"]) == (303, path)
        assert re.search(shown, (await viewer.get(path)).text)


async def test_an_execution_whose_process_is_being_prepared_is_starting(crew: Crew, viewer: Visitor) -> None:
    writer = await started(crew)
    path = f"/ui/crews/{crew.deployment.slug}/executions"
    for waits_for, word in (("zygote", "Starting"), ("secrets", "Starting"), ("import", "Starting"), (None, "Running")):
        claimed = writer.run.claimed
        batch = Batch(waiting_for=waits_for, row_changes=True)
        assert await writer.run.store.write_reports(claimed.id, claimed.attempt, batch)
        for page in (path, f"{path}/{claimed.id}"):
            text = (await viewer.get(page)).text
            assert f'aria-hidden="true"></span>{word}</span>' in text, (waits_for, page)
    assert "It is starting" not in text
