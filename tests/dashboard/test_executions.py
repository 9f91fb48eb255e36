"""The lists of executions, over plain HTTP."""

from __future__ import annotations

import csv
import io
import re
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from api.runs import begin
from dashboard.made_runs import started
from dashboard.people import Visitor
from windlass.dashboard.executions import PAGE, short_id
from windlass.kickoffs.ids import new_id, parse_id
from windlass.rights import Role
from windlass.store import kickoff_list

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from api.serving import Crew, Server

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def owner(server: Server) -> AsyncIterator[Visitor]:
    visitor = await Visitor.of(server, Role.OWNER)
    yield visitor
    await visitor.close()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def viewer(server: Server) -> AsyncIterator[Visitor]:
    visitor = await Visitor.of(server, Role.VIEWER)
    yield visitor
    await visitor.close()


def rows(page: str) -> list[str]:
    return re.findall(r'<tr id="execution-([0-9a-f-]+)"', page)


async def listed(visitor: Visitor, crew: Crew, query: str = "") -> str:
    answer = await visitor.get(f"/ui/crews/{crew.deployment.slug}/executions{query}")
    assert answer.status_code == 200, answer.text
    return answer.text


async def test_a_list_shows_state_input_and_tokens_and_each_filter_narrows_it(crew: Crew, owner: Visitor) -> None:
    assert "No executions yet" in await listed(owner, crew)
    token = await crew.token_of(f"zoe of {crew.deployment.slug}")
    done = (await started(crew, topic="<b>tides</b>", audience="x")).run
    await done.succeed()
    failed = (await started(crew, await crew.kickoff(token=token))).run
    await failed.fail()
    running = (await started(crew)).run
    queued = await crew.kickoff()
    everything = [queued, *(str(run.claimed.id) for run in (running, failed, done))]
    page = await listed(owner, crew)
    assert rows(page) == everything
    assert "&lt;b&gt;tides&lt;/b&gt;" in page
    assert '<td class="number cell-tokens">120</td>' in page
    assert f"zoe of {crew.deployment.slug}" in page
    short = short_id(done.claimed.id)
    for query, found in {
        "state=queued": [queued],
        "state=running": [everything[1]],
        "state=failed": [everything[2]],
        "state=succeeded&since=1h": [everything[3]],
        "state=stopped": [],
        f"user=zoe+of+{crew.deployment.slug}": [everything[2]],
        "version=1": everything,
        "version=2": [],
        "version=x": [],
        f"version={10**12}": [],
        f"id={queued}": [queued],
        f"id={queued[-5:]}": [queued],
        f"id={short.replace('…', '..')}": [everything[3]],
        "id=nothing": [],
        "id=%00": everything,
        "state=other&since=1x&before=x&top=y": everything,
    }.items():
        assert rows(await listed(owner, crew, f"?{query}")) == found, query
    of_all = (await owner.get(f"/ui/executions?crew={crew.deployment.slug}")).text
    assert rows(of_all) == everything
    assert "No execution matches" in (await owner.get("/ui/executions?crew=none")).text


async def test_new_rows_are_counted_and_older_ones_are_on_the_next_page(crew: Crew, owner: Visitor) -> None:
    kickoffs = [await crew.kickoff() for _ in range(PAGE + 2)][::-1]
    page = await listed(owner, crew, "?state=queued")
    assert rows(page) == kickoffs[:PAGE]
    live = re.search(r'<section id="executions" hx-get="([^"]+)"', page)
    assert live
    fresh = [await crew.kickoff() for _ in range(2)]
    again = (await owner.get(live[1].replace("&amp;", "&"))).text
    assert rows(again) == kickoffs[:PAGE]
    assert re.search(r"2\s+new", again)
    older = re.search(r'href="([^"]+)" rel="next"', again)
    assert older
    assert rows((await owner.get(older[1].replace("&amp;", "&"))).text) == kickoffs[PAGE:]
    assert rows(await listed(owner, crew))[:2] == fresh[::-1]


async def test_a_search_that_read_its_most_executions_shows_so(
    crew: Crew, owner: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kickoff_list, "MOST_READ", 2)
    first, *_, newest = [await crew.kickoff() for _ in range(4)]
    for one in (first, newest):
        await crew.stop(one)
    page = await listed(owner, crew, "?state=stopped")
    assert rows(page) == [newest]
    assert "This page is of 2 executions that were read. Older ones may match, too." in page
    older = re.search(r'href="([^"]+)" rel="next"', page)
    assert older
    page = (await owner.get(older[1].replace("&amp;", "&"))).text
    assert rows(page) == [first]
    assert "None among these 2" in await listed(owner, crew, "?state=failed")
    monkeypatch.undo()
    page = await listed(owner, crew, "?state=stopped")
    assert rows(page) == [newest, first]
    assert "Older ones may match" not in page


async def test_selected_executions_are_stopped_and_started_again(crew: Crew, owner: Visitor) -> None:
    run = await begin(crew, await crew.kickoff({"topic": "ebb", "audience": "x"}, meta={"who": "me"}))
    await run.succeed()
    done, queued = str(run.claimed.id), await crew.kickoff()
    back = f"/ui/crews/{crew.deployment.slug}/executions?state=queued"
    nothing = await owner.post("/ui/executions/stop", back=back)
    assert nothing.status_code == 400
    form = {"csrf": await owner.csrf(), "ids[]": [done, queued, str(new_id()), "x"], "back": back}
    answer = await owner.http.post("/ui/executions/stop", data=form)
    assert (answer.status_code, answer.headers["location"]) == (303, back)
    assert "1 execution is stopped, of 3 selected." in (await owner.get(back)).text
    assert (await crew.status(queued))["reason"] == "cancelled"
    answer = await owner.http.post("/ui/executions/again", data={**form, "ids[]": [done], "back": "https://evil.test"})
    assert answer.headers["location"] == "/ui/executions"
    (new,) = rows(await listed(owner, crew, "?state=queued"))
    assert (await crew.row(new))["inputs"] == {"topic": "ebb", "audience": "x"}
    assert (await crew.row(new))["meta"] == {"who": "me"}


async def test_a_viewer_sees_the_list_and_no_buttons(crew: Crew, viewer: Visitor) -> None:
    kickoff = await crew.kickoff()
    page = await listed(viewer, crew)
    assert rows(page) == [kickoff]
    assert "/executions/stop" not in page
    form = {"csrf": await viewer.csrf(), "ids[]": [kickoff]}
    for action in ("stop", "again"):
        assert (await viewer.http.post(f"/ui/executions/{action}", data=form)).status_code == 403
    assert (await crew.status(kickoff))["state"] == "PENDING"


async def test_the_csv_has_what_matches_or_is_selected_and_no_formulas(crew: Crew, viewer: Visitor) -> None:
    first = await crew.kickoff()
    second = await crew.kickoff()
    name = f"=cmd{crew.deployment.slug}"
    third = await crew.kickoff(token=await crew.token_of(name))
    base = f"/ui/executions.csv?crew={crew.deployment.slug}"

    async def table(query: str) -> list[dict[str, str]]:
        answer = await viewer.get(base + query)
        assert answer.headers["content-disposition"] == 'attachment; filename="executions.csv"'
        return list(csv.DictReader(io.StringIO(answer.text)))

    everything = await table("")
    assert [row["id"] for row in everything] == [third, second, first]
    assert everything[0]["user"] == f"'{name}"
    assert everything[1]["inputs"] == '{"topic":"tides","audience":"sailors"}'
    assert [row["id"] for row in await table(f"&ids={first},{second},x")] == [first, second]
    assert await table("&state=failed") == []
    assert (await viewer.get(f"{base}&ids={','.join(str(new_id()) for _ in range(PAGE + 1))}")).status_code == 400
    assert parse_id(first) is not None


async def test_a_list_its_csv_and_the_first_page_show_why_an_execution_failed(crew: Crew, owner: Visitor) -> None:
    failed = (await started(crew, topic="x" * 20_000, audience="x")).run
    await failed.fail(error="ValueError: the <supplier> has no VAT id")
    page = await listed(owner, crew)
    assert '<span class="bad" title="ValueError: the &lt;supplier&gt; has no VAT id">' in page
    assert f"<span>{'x' * 79}…</span>" in page
    (row,) = csv.DictReader(io.StringIO((await owner.get(f"/ui/executions.csv?crew={crew.deployment.slug}")).text))
    assert row["error"] == "ValueError: the <supplier> has no VAT id"
    first = (await owner.get(f"/ui/?search={crew.deployment.slug}")).text
    assert "ValueError: the &lt;supplier&gt; has no VAT id</span>" in first


async def test_a_viewer_reads_why_there_is_no_button(crew: Crew, viewer: Visitor, owner: Visitor) -> None:
    kickoff = await crew.kickoff()
    slug = crew.deployment.slug
    for path in ("/ui/", f"/ui/crews/{slug}", f"/ui/crews/{slug}/executions", f"/ui/crews/{slug}/executions/{kickoff}"):
        assert "Your role viewer can&#39;t" in (await viewer.get(path)).text.replace("can't", "can&#39;t"), path
        assert 'class="why-not"' not in (await owner.get(path)).text, path


async def test_the_page_of_the_form_has_no_button_that_leads_to_an_empty_one(crew: Crew, owner: Visitor) -> None:
    link = f'href="/ui/crews/{crew.deployment.slug}/run">'
    header = '<header class="page-head">'
    status = (await owner.get(f"/ui/crews/{crew.deployment.slug}")).text.split(header)[1].split("</header>")[0]
    run = (await owner.get(f"/ui/crews/{crew.deployment.slug}/run")).text.split(header)[1].split("</header>")[0]
    assert (link in status, link in run) == (True, False)
