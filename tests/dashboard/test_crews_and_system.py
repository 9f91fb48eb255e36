"""The list of crews and the System page: over plain HTTP, and in a browser."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import TYPE_CHECKING, Any

import pytest

from dashboard.people import Visitor
from windlass.dashboard import charts
from windlass.dashboard.charts import HEIGHT, line, sparkline
from windlass.kickoffs.ids import new_id
from windlass.rights import Role
from windlass.store.claiming import WorkerUsage
from windlass.store.statistics import CrewStatistics, StatisticsStore

if TYPE_CHECKING:
    from uuid import UUID

    from api.serving import Crew, Server

in_a_session = pytest.mark.asyncio(loop_scope="session")
END = """
INSERT INTO kickoffs (id, deployment_id, version_id, state, reason, error, attempt, inputs, created_at, started_at,
                      finished_at)
VALUES (%(id)s, %(deployment)s, %(version)s, %(state)s, %(reason)s, %(error)s, 1, '{}', now() - %(ago)s,
        now() - %(ago)s, now() - %(ago)s)
"""
SOON = timedelta(seconds=1)


async def ended(crew: Crew, state: str = "SUCCESS", count: int = 1, **values: Any) -> UUID:
    """The last of these kickoffs."""
    assert crew.deployment.version
    usual = {"reason": None, "error": None, "ago": SOON, "state": state}
    for _ in range(count):
        kickoff = new_id()
        ids = {"id": kickoff, "deployment": crew.deployment.id, "version": crew.deployment.version.id}
        await crew.server.database.execute(END, {**usual, **ids, **values})
    return kickoff


async def rows_of(visitor: Visitor, path: str) -> dict[str, str]:
    """The words of each row of the list of crews, by the name of the crew."""
    answer = await visitor.get(path)
    assert answer.status_code == 200, answer.text
    found = re.findall(r'<tr id="crew-([^"]+)">(.*?)</tr>', answer.text, re.DOTALL)
    return {name: " ".join(unescape(re.sub(r"<[^>]+>", " ", row)).split()) for name, row in found}


async def next_page(visitor: Visitor, path: str) -> str | None:
    found = re.search(r'href="([^"]+)" rel="next"', (await visitor.get(path)).text)
    return unescape(found[1]) if found else None


@in_a_session
async def test_a_crew_is_listed_with_its_load_its_last_day_and_its_newest_failure(
    server: Server, viewer: Visitor
) -> None:
    crew = await server.crew("listed-one")
    await server.crew("listed-two")
    assert (await rows_of(viewer, "/ui/?search=listed-two"))["listed-two"] == "listed-two Online 0 0 No run yet – 1"  # noqa: RUF001
    await ended(crew, count=1000)
    await ended(crew, "CANCELLED")
    failure = await ended(crew, "TIMED_OUT", reason="timed_out", error="<b>it</b> took too long", ago=2 * SOON)
    await crew.kickoff()
    page = (await viewer.get("/ui/?search=listed-one")).text
    assert f'href="/ui/crews/listed-one/executions/{failure}"' in page
    assert 'title="&lt;b&gt;it&lt;/b&gt; took too long"' in page
    assert "1,002 ended in the last 24 hours, 1 failed" in page
    row = (await rows_of(viewer, "/ui/?search=listed-one"))["listed-one"]
    assert re.fullmatch(
        r"listed-one Online 0 1 1,002 ended in the last 24 hours, 1 failed 1,002 99.9 % \d+ s ago : timed out "
        r"<b>it</b> took too long 1",
        row,
    )
    assert "Deploy a crew" not in page, "a viewer may not deploy"
    developer = await Visitor.of(server, Role.DEVELOPER)
    assert "Deploy a crew" in (await developer.get("/ui/")).text
    await developer.close()


@in_a_session
async def test_crews_are_found_by_name_and_state_and_listed_in_pages_in_each_order(
    server: Server, viewer: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"paged-{letter}" for letter in "badec"]
    for name in names:
        await server.crew(name)
    await server.deployments.pause("paged-a")
    await server.database.execute(
        "UPDATE deployments SET current_version = NULL WHERE slug = 'paged-e';"
        "INSERT INTO builds (id, deployment_id, origin, state) "
        "SELECT gen_random_uuid(), id, '{}', 'failed' FROM deployments WHERE slug = 'paged-e'"
    )
    monkeypatch.setattr("windlass.dashboard.crews.PAGE", 2)
    expected = {
        "": sorted(names),
        "-slug": sorted(names, reverse=True),
        "created_at": names,
        "-created_at": names[::-1],
    }
    for order, listed in expected.items():
        found: list[str] = []
        path: str | None = f"/ui/?search=PAGED&order={order}"
        while path:
            found += await rows_of(viewer, path)
            path = await next_page(viewer, path)
        assert found == listed
    monkeypatch.undo()
    page = (await viewer.get("/ui/?search=paged")).text
    chips = re.findall(r'>(\w+) <span class="count">(\d+)<', page)
    assert chips == [("All", "5"), ("Online", "3"), ("Failed", "1"), ("Paused", "1")]
    assert list(await rows_of(viewer, "/ui/?search=paged&state=paused")) == ["paged-a"]
    assert "View the build log" in (await rows_of(viewer, "/ui/?search=paged&state=failed"))["paged-e"]
    assert "All 5" in re.sub("<[^>]+>", "", (await viewer.get("/ui/?search=paged&state=paused")).text)
    nothing = (await viewer.get("/ui/?search=<script>alert(1)</script>&state=failed&order=x")).text
    assert "No crew matches" in nothing
    assert "<script>alert" not in nothing
    assert (await viewer.get("/ui/?order=created_at&after=x")).status_code == 400
    for odd in ("search=%00", "after=%00", "state=x", "after=zzzz"):
        assert (await viewer.get(f"/ui/?{odd}")).status_code == 200


@in_a_session
async def test_the_system_page_has_workers_queues_charts_database_and_retention(
    server: Server, viewer: Visitor
) -> None:
    await server.database.execute("DELETE FROM workers")
    await StatisticsStore(server.database).count()
    crew = await server.crew("busy")
    page = (await viewer.get("/ui/system")).text
    assert "No worker runs" in page
    assert "windlass worker" in page
    worker = new_id()
    await server.kickoffs.workers.seen(worker, slots=8, lease=60, usage=WorkerUsage(3, 2, 512 << 20))
    await crew.kickoff()
    await ended(crew)
    words = " ".join(unescape(re.sub(r"<[^>]+>", " ", (await viewer.get("/ui/system")).text)).split())
    for expected in (
        "1 alive with 8 slots · 3 running · 2 prepared processes, 512 MB",
        "3 of 8",
        "busy 1",
        "30 days after the end",
        "7 days after the end",
        "1 day after the end",
    ):
        assert expected in words
    assert re.search(r"Accepted [\d,]+ per minute [1-9][\d,]* in all", words)
    assert re.search(r"Connections \d+ of \d+", words)
    assert "The charts end" not in words
    assert "per hour" in (await viewer.get("/ui/system?span=day")).text
    await server.database.execute("UPDATE statistics_progress SET counted_until = now() - interval '20 hours'")
    assert "The charts end" in (await viewer.get("/ui/system")).text
    await StatisticsStore(server.database).count()
    assert "The charts end" not in (await viewer.get("/ui/system?after=x")).text
    await server.kickoffs.workers.leave(worker)


@in_a_session
async def test_the_first_page_has_the_sums_of_its_crews(server: Server, viewer: Visitor) -> None:
    one, two = await server.crew("summed-one"), await server.crew("summed-two")
    await ended(one, count=3)
    await ended(two, "FAILED")
    await ended(two, count=6)
    for crew in (one, two, two):
        await crew.kickoff()
    page = (await viewer.get("/ui/?search=summed-")).text
    (totals,) = re.findall(r'<ul class="run-facts">(.*?)</ul>', page, re.DOTALL)
    words = " ".join(unescape(re.sub(r"<svg.*?</svg>|<[^>]+>", " ", totals, flags=re.DOTALL)).split())
    assert words == "0 running 3 in the queue 10 in 24 h, 90 % succeeded"
    assert "10 ended in the last 24 hours, 1 failed" in totals


@in_a_session
async def test_kickoffs_of_a_paused_crew_do_not_wait_for_a_slot(server: Server, viewer: Visitor) -> None:
    def words(page: str) -> str:
        return " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).split())

    crew = await server.crew("idle-crew")
    await crew.kickoff()
    before = words((await viewer.get("/ui/system")).text)
    waiting = re.search(r"([\d,]+) kickoffs? waits? to start", before)
    assert waiting
    await server.database.execute("UPDATE deployments SET paused_at = now() WHERE slug = 'idle-crew'")
    after = words((await viewer.get("/ui/system")).text)
    assert re.search(r"\b1 waits for a crew that is paused|\d+ wait for crews that are paused", after)
    assert "idle-crew Paused 1" in after
    left = int(waiting[1].replace(",", "")) - 1
    assert f"{left} kickoff" in after if left else "to start" not in after


@in_a_session
async def test_only_people_with_a_role_see_the_pages(server: Server) -> None:
    nobody = await Visitor.of(server)
    for path in ("/ui/", "/ui/system"):
        assert (await nobody.get(path)).headers["location"].startswith("/ui/sign-in")
    await nobody.close()


def test_a_line_has_gaps_and_a_sparkline_shows_each_failure() -> None:
    found = line([0, 10, None, 5, None], 10)
    assert found.line == f"M0 {HEIGHT - 1}L60 2M180 28.5h0"
    assert found.area == f"M0 {HEIGHT - 1}L60 2V{HEIGHT}H0z"
    assert line([], 1) == charts.Line("", "")
    hours = CrewStatistics(None, (0, 1000, 1000, 2, 10), (0, 0, 1, 2, 10), 0, None, None)  # type: ignore[arg-type]
    bars = sparkline(hours)
    assert bars.ended.count("M") == 2
    assert bars.failed == "M8 20h3v2h-3zM12 20h3v2h-3zM16 20h3v2h-3z"
    assert bars.idle == "M0 21h3v1h-3z"
    assert bars.width == 19
