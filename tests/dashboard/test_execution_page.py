"""The page of one execution, over plain HTTP."""

from __future__ import annotations

import asyncio
import io
import json
import re
import zipfile
from typing import TYPE_CHECKING

import httpx
import pytest
import pytest_asyncio

from api.test_files_of_a_kickoff import with_files
from dashboard.made_runs import BRIEF, started
from dashboard.people import Visitor
from windlass.dashboard.output import MOST_SHOWN
from windlass.dashboard.timeline_rows import AT_EACH_END, MOST_ROWS
from windlass.kickoffs.ids import new_id
from windlass.kickoffs.states import Reason, State
from windlass.rights import Role

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from api.runs import Run
    from api.serving import Crew, Server

pytestmark = pytest.mark.asyncio(loop_scope="session")

TRACE = """Traceback (most recent call last):
  File ".../windlass_child/process/child.py", line 215, in execute
    result = crew.run(order, report)
  File "invoice.py", line 51, in _percent
    raise ValueError("it is 119")
ValueError: it is 119
"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def people(server: Server) -> AsyncIterator[dict[Role, Visitor]]:
    found = {role: await Visitor.of(server, role) for role in Role}
    yield found
    for visitor in found.values():
        await visitor.close()


@pytest.fixture
def owner(people: dict[Role, Visitor]) -> Visitor:
    return people[Role.OWNER]


def path(crew: Crew, run: Run | str) -> str:
    kickoff = run if isinstance(run, str) else run.claimed.id
    return f"/ui/crews/{crew.deployment.slug}/executions/{kickoff}"


async def text(visitor: Visitor, url: str, status: int = 200) -> str:
    answer = await visitor.get(url)
    assert answer.status_code == status, (url, answer.text)
    return answer.text


def bars(page: str) -> list[tuple[str, str]]:
    """The state and the name of each row of a timeline."""
    found = re.findall(r'class="row depth-\d is-(\w+) kind-\w+".*?class="row-text">([^<]*)<', page, re.DOTALL)
    return [(state, name) for state, name in found]


async def test_a_succeeded_execution_shows_its_output_in_three_ways(crew: Crew, owner: Visitor) -> None:
    writer = await started(crew, topic="tides", audience="<script>alert(1)</script>")
    await writer.run.start_task(0)
    await writer.run.end_task(0)
    await writer.run.succeed(BRIEF + "\n<script>alert(2)</script>", {"title": "</script><script>", "rows": [1]})
    url = path(crew, writer.run)
    page = await text(owner, url)
    assert '<span class="json-key">title</span>' in page
    assert "<h3>Tides</h3>" in await text(owner, f"{url}?view=markdown")
    assert "two high and two low tides**" in await text(owner, f"{url}?view=raw")
    for tab in (
        "output",
        "output&view=markdown",
        "output&view=raw",
        "inputs",
        "log",
        "attempts",
        "files",
        "timeline",
        "x",
    ):
        found = await text(owner, f"{url}?tab={tab}")
        assert "<script>" not in found
        assert " hx-get=" not in found.split("<main")[1]  # it has ended
    assert "&lt;script&gt;alert(1)" in await text(owner, f"{url}?tab=inputs")
    moved = await owner.get(f"/ui/executions/{writer.run.claimed.id}")
    assert moved.headers["location"] == url
    for other in (new_id(), "x"):
        await text(owner, path(crew, str(other)), 404)
    await text(owner, url.replace(crew.deployment.slug, "other"), 404)


async def test_a_failure_shows_reason_task_advice_and_the_projects_own_frames(crew: Crew, owner: Visitor) -> None:
    writer = await started(crew)
    await writer.run.start_task(0)
    writer.event("traceback", text=TRACE)
    writer.event("output_stderr", line="\x1b[31mred\x1b[0m")
    await writer.write()
    await writer.run.end_task(0, None, "failed")
    await writer.run.fail(error="ValueError: it is 119")
    page = await text(owner, path(crew, writer.run))
    assert "<b>ValueError: it is 119</b>" in page
    assert "It happened in the task <b>research</b>. Correct what the trace names" in page
    own = re.search(r"<code>(Traceback.*?)</code>", page, re.DOTALL)
    assert own
    assert "File &#34;invoice.py&#34;, line 51" in own[1]
    assert "windlass_child" not in own[1]
    assert '<span class="log-text">red</span>' in await text(owner, f"{path(crew, writer.run)}?tab=log")
    stopped = (await started(crew)).run
    await stopped.end(State.CANCELLED, Reason.CANCELLED)
    assert "It was stopped" in await text(owner, path(crew, stopped))


async def test_a_waiting_execution_says_why_and_is_stopped_and_deleted(crew: Crew, people: dict[Role, Visitor]) -> None:
    viewer, developer, owner = (people[role] for role in Role)
    url = path(crew, await crew.kickoff())
    page = await text(developer, url)
    assert "It waits for a worker" in page
    assert "Place 1 in the queue" in page
    assert '<meta http-equiv="refresh"' in page
    assert f"{url}/stop" not in await text(viewer, url)
    assert (await viewer.post(f"{url}/stop")).status_code == 403
    assert (await developer.post(f"{url}/delete")).status_code == 403
    assert (await owner.post(f"{url}/delete")).status_code == 409
    assert (await developer.post(f"{url}/stop", csrf="")).status_code == 403
    assert (await developer.post(f"{url}/stop")).headers["location"] == url
    assert "It is stopped." in await text(developer, url)
    assert "Stopped" in await text(developer, url)
    assert (await owner.post(f"{url}/delete")).status_code == 303
    await text(owner, url, 404)


async def test_a_timeline_has_a_row_for_each_step_and_a_panel_its_prompt(crew: Crew, owner: Visitor) -> None:
    writer = await started(crew, ago=60)
    writer.task("find_facts", 2.0, tool=0.5)
    writer.begin_task("write")
    first = writer.model("write", 3.0, "<b>Answer</b> " + "x" * 30_000, earlier="x" * 5000)
    await writer.write()
    url = f"{path(crew, writer.run)}?tab=timeline"
    page = await text(owner, url)
    assert bars(page) == [
        ("done", "find_facts"),
        ("done", "Researcher on tides"),
        ("done", "gpt-4.1-mini"),
        ("done", "look_up_notes"),
        ("running", "write"),
        ("running", "Researcher on tides"),
        ("done", "gpt-4.1-mini"),
    ]
    assert 'hx-trigger="sse:changed' in page
    widths = [float(one) for one in re.findall(r'<rect x="[\d.]+%" y="4" width="([\d.]+)%"', page)]
    assert widths[2] == pytest.approx(4 * widths[3], rel=0.02)
    chosen = await text(owner, f"{url}&row={first}")
    assert 'aria-current="true"' in chosen
    assert "What do the notes hold?" in chosen
    assert "&lt;b&gt;Answer&lt;/b&gt;" in chosen
    assert "more characters are in the events" in chosen
    assert "<b>240</b> → <b>42</b>" in chosen
    await writer.run.succeed()
    assert [state for state, _ in bars(await text(owner, f"{url}&row=999999"))].count("running") == 0


async def test_a_later_attempt_shows_what_came_from_the_journal(crew: Crew, owner: Visitor) -> None:
    before = await started(crew, ago=100)
    before.task("research", 5.0)
    before.begin_task("write")
    await before.write()
    await before.run.requeue()
    kickoff = str(before.run.claimed.id)
    await crew.server.database.execute(
        "UPDATE kickoffs SET run_at = NULL, ready = true WHERE id = %(id)s::uuid", {"id": kickoff}
    )
    after = await started(crew, kickoff)
    after.event("journal_restored", tasks=["research"], methods=[])
    after.task("write", 2.0)
    await after.write()
    await after.run.succeed()
    page = await text(owner, f"{path(crew, kickoff)}?tab=timeline")
    assert "<b>Attempt 2</b>" in page
    assert "from attempt 1" in page
    assert bars(page)[:5] == [
        ("done", "research"),
        ("done", "Researcher on tides"),
        ("done", "gpt-4.1-mini"),
        ("lost", "write"),
        ("lost", "agent"),
    ]
    assert bars(page)[5:7] == [("restored", "research"), ("done", "write")]
    attempts = await text(owner, f"{path(crew, kickoff)}?tab=attempts")
    assert "its process was lost" in attempts


async def test_many_rows_are_folded(crew: Crew, owner: Visitor) -> None:
    writer = await started(crew, ago=500)
    writer.task("short", *[0.1] * 20)
    writer.begin_task("long")
    calls = [writer.model("long", 0.1) for _ in range(MOST_ROWS)]
    await writer.write()
    url = f"{path(crew, writer.run)}?tab=timeline"
    page = await text(owner, url)
    assert len(bars(page)) == 2 * AT_EACH_END - 1
    assert re.search(r"</svg>21 steps</a>", page)
    assert f"</svg>{MOST_ROWS + 4 - 2 * AT_EACH_END} more rows</a>" in page
    assert len(bars(await text(owner, f"{url}&rows=all"))) == MOST_ROWS + 24
    opened = re.search(r'href="[^"]*(open=\d+)"', page)
    assert opened
    assert bars(await text(owner, f"{url}&{opened[1]}"))[:3] == [
        ("done", "short"),
        ("done", "Researcher on tides"),
        ("done", "gpt-4.1-mini"),
    ]
    middle = await text(owner, f"{url}&row={calls[MOST_ROWS // 2]}")
    assert len(bars(middle)) == 2 * AT_EACH_END


async def test_a_project_without_events_of_tasks_has_a_row_for_each_task_record(crew: Crew, owner: Visitor) -> None:
    run = (await started(crew)).run
    await run.start_task(0)
    await run.end_task(0)
    await run.start_task(1)
    rows = bars(await text(owner, f"{path(crew, run)}?tab=timeline"))
    assert rows[-2:] == [("done", "research"), ("running", "Task 2")]


async def test_a_large_output_is_shown_in_part_and_downloaded_whole(crew: Crew, owner: Visitor) -> None:
    writer = await started(crew)
    output = '<b>ü😀</b> \\ "line"\n' * 200_000
    structured = [{"number": number, "text": "x" * 50} for number in range(20_000)]
    await writer.run.succeed(output, structured)
    url = path(crew, writer.run)
    for view in ("markdown", "raw", "json"):
        page = await text(owner, f"{url}?view={view}")
        assert len(page) < 6 * MOST_SHOWN
        assert "Download the whole output" in page
    whole = await owner.get(f"{url}/downloads/output.txt")
    assert whole.text == output
    assert whole.headers["content-disposition"].startswith("attachment")
    assert whole.headers["content-security-policy"] == "sandbox; default-src 'none'"
    assert json.loads((await owner.get(f"{url}/downloads/structured.json")).text) == structured
    await text(owner, f"{url}/downloads/inputs.txt", 404)


async def test_text_that_is_no_unicode_and_very_deep_json_are_shown(crew: Crew, owner: Visitor) -> None:
    writer = await started(crew, topic="a \x00 b", audience=json.loads("[" * 80 + "]" * 80))
    writer.event("output_stdout", line="half \ud800 \x00 pair")
    await writer.write()
    await writer.run.succeed("\ud800", {"\ud800": "\x00"})
    url = path(crew, writer.run)
    for tab in ("output", "output&view=raw", "inputs", "log", "timeline"):
        await text(owner, f"{url}?tab={tab}")
    await text(owner, url.rpartition("/")[0])


async def test_files_are_downloads_that_no_browser_shows_as_pages(crew: Crew, people: dict[Role, Visitor]) -> None:
    kickoff = await with_files(crew, {"out/page.html": b"<script>alert(1)</script>", "ü #?.txt": b"tea"})
    viewer, url = people[Role.VIEWER], path(crew, kickoff)
    page = await text(viewer, f"{url}?tab=files")
    links = [one.replace("&amp;", "&") for one in re.findall(r'href="([^"]+/files/[^"]+)"', page)]
    assert len(links) == 2
    for link, content in zip(links, (b"<script>alert(1)</script>", b"tea"), strict=True):
        answer = await viewer.get(link)
        assert answer.content == content
        assert answer.headers["content-disposition"].startswith("attachment")
        assert answer.headers["content-security-policy"] == "sandbox; default-src 'none'"
        assert answer.headers["x-content-type-options"] == "nosniff"
    with zipfile.ZipFile(io.BytesIO((await viewer.get(f"{url}/files.zip")).content)) as archive:
        assert sorted(archive.namelist()) == ["out/page.html", "ü #?.txt"]
    await text(viewer, f"{url}/files/none", 404)


async def test_changes_are_streamed_to_the_end_while_the_person_has_a_role(crew: Crew, server: Server) -> None:
    visitor = await Visitor.of(server, Role.VIEWER)
    writer = await started(crew)
    url = f"{path(crew, writer.run)}/changes"
    async with asyncio.timeout(20), visitor.http.stream("GET", url) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.aiter_lines()
        writer.event("output_stdout", line="one")
        writer.event("output_stdout", line="two")
        await writer.write()
        assert await _until(lines, "event: changed")
        await writer.run.succeed()
        assert await _until(lines, "event: ended")
        assert [line async for line in lines if line][1:] == []
    other = (await started(crew)).run
    async with asyncio.timeout(20), visitor.http.stream("GET", f"{path(crew, other)}/changes") as answer:
        lines = answer.aiter_lines()
        await anext(lines)
        await server.tokens.set_role(visitor.name, None)
        await other.succeed()
        assert not await _until(lines, "event: ended")
    await visitor.close()


async def _until(lines: AsyncIterator[str], wanted: str) -> bool:
    try:
        async for line in lines:
            if line == wanted:
                return True
    except httpx.RemoteProtocolError:
        pass
    return False


async def test_a_failed_execution_opens_on_the_step_that_failed(crew: Crew, owner: Visitor) -> None:
    writer = await started(crew, ago=60)
    writer.task("research", 1.0)
    writer.begin_task("write")
    known = {"task_id": "write", "call_id": "c", "model": "gpt-4.1-mini", "agent_role": "Writer"}
    first = writer.event("llm_call_started", **known, event_id="call")
    writer.at += 1
    writer.event("llm_call_failed", **known, started_event_id="call", error="the key is refused")
    writer.event("task_failed", task_id="write", started_event_id="task-write", error="the key is refused")
    await writer.write()
    await writer.run.fail()
    page = await text(owner, path(crew, writer.run))
    assert f'row={first}" aria-current="true"' in page
    assert "the key is refused" in page.split('id="detail"')[1]
    closed = await text(owner, f"{path(crew, writer.run)}?tab=timeline&row=")
    assert 'aria-current="true"' not in closed.split("data-timeline")[1]
    assert 'id="output-title"' in await text(owner, f"{path(crew, writer.run)}?tab=output")


async def test_a_cold_start_leaves_the_room_to_the_steps(crew: Crew, owner: Visitor) -> None:
    writer = await started(crew, ago=66)
    writer.at += 60
    writer.task("research", 4.0)
    await writer.write()
    await writer.run.succeed()
    page = await text(owner, f"{path(crew, writer.run)}?tab=timeline")
    assert '<line class="break"' in page
    assert "1 min 0 s" in page.split("Start of the process")[1].split("</li>")[0]
    (lead, task) = re.findall(r'<rect x="[\d.]+%" y="4" width="([\d.]+)%"', page)[:2]
    assert float(lead) == pytest.approx(9, abs=4)
    assert float(task) > 50


async def test_a_refused_connection_leads_to_its_setting(server: Server, crew: Crew, owner: Visitor) -> None:
    kickoff = await crew.kickoff()
    setting = f'href="/ui/crews/{crew.deployment.slug}/settings#field-egress"'
    assert setting not in await text(owner, path(crew, kickoff))
    warning = [{"code": "egress_refused", "message": "The egress of this crew does not permit x.test:443."}]
    await server.database.execute(
        "UPDATE kickoffs SET warnings = %(warnings)s WHERE id = %(id)s",
        {"warnings": json.dumps(warning), "id": kickoff},
    )
    assert setting in await text(owner, path(crew, kickoff))
