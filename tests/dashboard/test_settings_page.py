"""The settings of a crew in the dashboard, and its removal."""

from __future__ import annotations

import asyncio
import re
from html import unescape
from typing import TYPE_CHECKING, Any

import pytest

from dashboard.people import Visitor
from projects_for_tests.namespaces import why_refused
from windlass.dashboard.setting_fields import text_of
from windlass.kickoffs.boundary_parts import boundary_parts, network
from windlass.kickoffs.ids import new_id
from windlass.projects.options import SETTINGS
from windlass.rights import Role
from windlass_child.process.hardening import SCOPES_SIGNALS

if TYPE_CHECKING:
    from api.serving import Crew, Server
    from dashboard.browser import Tabs
    from dashboard.live import LiveServer
    from windlass.kickoffs.declared_settings import Setting


async def own(server: Server, crew: Crew) -> dict[str, Any]:
    return (await server.dashboard.control.management.settings(crew.deployment.slug)).own


def setting(name: str) -> Setting:
    return next(one for one in SETTINGS if one.name == name)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("concurrency", 20, "20"),
        ("weight", 0.5, "0.5"),
        ("limits.timeout", 600.0, "600"),
        ("limits.memory_limit", 512 << 20, "512 MB"),
        ("limits.memory_limit", 1000, "1000"),
        ("retention.events", 0, "forever"),
        ("cors_origins", ["https://a.example", "*"], "https://a.example\n*"),
        ("concurrency", None, ""),
    ],
)
def test_a_value_is_shown_as_it_is_written(name: str, value: Any, text: str) -> None:
    assert text_of(setting(name), value) == text


@pytest.mark.asyncio(loop_scope="session")
async def test_an_unknown_approver_is_shown_beside_the_setting(crew: Crew, developer: Visitor) -> None:
    path = f"/ui/crews/{crew.deployment.slug}/settings"
    assert (await developer.post(path, approvers="owner\r\nnobody-of-us")).status_code == 303
    text = (await developer.get(path)).text
    assert re.search(r'id="field-approvers".*?There is no user &#39;nobody-of-us&#39;.*?id="', text, re.DOTALL)


@pytest.mark.asyncio(loop_scope="session")
async def test_the_page_has_what_holds_the_runs_of_the_crew(server: Server, crew: Crew, owner: Visitor) -> None:
    path, slug, workers = f"/ui/crews/{crew.deployment.slug}/settings", crew.deployment.slug, server.kickoffs.workers

    async def words() -> str:
        (section,) = re.findall(r'<section id="boundary".*?</section>', (await owner.get(path)).text, re.DOTALL)
        return " ".join(unescape(re.sub(r"<[^>]+>", " ", section)).split())

    assert "No worker runs that takes kickoffs of this crew" in await words()
    assert (await owner.post(path, egress="api.openai.com\r\n10.1.2.0/24", files="/data:ro")).status_code == 303
    assert "Only the hosts of the list: api.openai.com , 10.1.2.0/24 ." in await words()
    assert "a folder of the run to write, and /data:ro ." in await words()
    whole = boundary_parts(None, "none", server=1000, landlock=SCOPES_SIGNALS, refused="")
    strong, weak, older = new_id(), new_id(), new_id()
    await workers.seen(strong, slots=1, lease=60, deployments=[slug], boundary=whole)
    assert "1 worker on" in await words()
    assert re.search("Users In part .*Files and processes Yes .*Network Yes Each run has a network", await words())
    not_enforced = "Not every worker enforces it"
    assert not_enforced not in (await owner.get(path)).text
    await workers.seen(
        weak, slots=1, lease=60, deployments=[slug], boundary=[*whole[:2], network("<b>not</b> permitted")]
    )
    await workers.seen(older, slots=1, lease=60, deployments=[slug])
    assert not_enforced in (await owner.get(path)).text
    assert "Network No The machine permits no namespaces to crews: <b>not</b> permitted" in await words()
    assert "an older release, which does not report it" in await words()
    assert (await owner.post(path, egress="unrestricted")).status_code == 303
    assert (await words()).count("Network No The egress of this crew is unrestricted") == 2
    assert not_enforced not in (await owner.get(path)).text
    system = (await owner.get("/ui/system")).text
    assert re.search(r"users: in part</span>, *<span[^>]*>network: open", system)
    for worker in (strong, weak, older):
        await workers.leave(worker)


@pytest.mark.asyncio(loop_scope="session")
async def test_a_worker_reports_what_holds_on_its_machine(live: LiveServer, tabs: Tabs) -> None:
    tab = await tabs(live.url)
    await tab.go(await asyncio.to_thread(live.link))
    await tab.go("/ui/crews/tea/settings")
    found = await tab.page.locator("#boundary tbody tr").all_inner_texts()
    assert [text.split()[0] for text in found] == ["Users", "Files", "Network"]
    assert ("Each run has a network" if not why_refused() else "permits no namespaces") in found[2]


@pytest.mark.asyncio(loop_scope="session")
async def test_settings_are_changed_and_reset(server: Server, crew: Crew, developer: Visitor) -> None:
    path = f"/ui/crews/{crew.deployment.slug}/settings"
    sent: dict[str, Any] = {
        "concurrency": "4",
        "limits.memory_limit": "512 MB",
        "limits.timeout": "",
        "retention.kickoffs": "30",
        "preload": "project",
        "cors_origins": "https://a.example\r\nhttps://b.example",
        "retries.reasons[]": ["error", "limit"],
    }
    answer = await developer.post(path, **sent)
    assert (answer.status_code, answer.headers["location"]) == (303, path)
    expected = {
        "concurrency": 4,
        "limits": {"memory_limit": 512 << 20},
        "retention": {"kickoffs": 30},
        "preload": "project",
        "cors_origins": ["https://a.example", "https://b.example"],
        "retries": {"reasons": ["error", "limit"]},
    }
    assert await own(server, crew) == expected
    page = (await developer.get(path)).text
    assert page.count("Set here") == 6
    assert 'value="512 MB"' in page

    again = await developer.post(path, **{**sent, "concurrency": ""})
    assert again.status_code == 303
    del expected["concurrency"]
    assert await own(server, crew) == expected
    await developer.post(path, **{**sent, "concurrency": "", "reset": "limits.memory_limit"})
    assert "limits" not in await own(server, crew)


@pytest.mark.asyncio(loop_scope="session")
async def test_a_form_that_was_loaded_before_a_change_of_another_person_keeps_it(
    server: Server, crew: Crew, developer: Visitor
) -> None:
    path = f"/ui/crews/{crew.deployment.slug}/settings"
    old_form = dict(re.findall(r'name="(was\.[\w.]+)" value="([^"]*)"', (await developer.get(path)).text))
    assert old_form["was.concurrency"] == ""
    reasons = old_form["was.retries.reasons"].split()
    sent: dict[str, Any] = {**old_form, "retries.reasons[]": reasons}
    await developer.post(path, **sent, concurrency="4", cors_origins="https://a.example")
    await developer.post(path, **sent, **{"limits.timeout": "60"})
    kept = {"concurrency": 4, "cors_origins": ["https://a.example"], "limits": {"timeout": 60}}
    assert await own(server, crew) == kept
    wrong = await developer.post(path, **{"was.concurrency": "4", "concurrency": "many"})
    assert 'name="was.concurrency" value="4"' in wrong.text, "not what was typed"
    await developer.post(path, **{**sent, "was.concurrency": "4", "concurrency": ""})
    assert "concurrency" not in await own(server, crew)


@pytest.mark.asyncio(loop_scope="session")
async def test_a_wrong_setting_is_marked_at_its_field(server: Server, crew: Crew, developer: Visitor) -> None:
    path = f"/ui/crews/{crew.deployment.slug}/settings"
    wrong = {"limits.timeout": "-1", "cors_origins": "nowhere", "weight": "2"}
    answer = await developer.post(path, concurrency="many", **wrong)
    assert answer.status_code == 400
    for name in ("concurrency", "limits.timeout", "cors_origins"):
        assert f'id="error-{name}"' in answer.text
        assert f'aria-describedby="hint-{name} error-{name}"' in answer.text
        assert f'href="#field-{name}"' in answer.text
    assert 'id="error-weight"' not in answer.text
    assert 'value="many"' in answer.text
    assert await own(server, crew) == {}


@pytest.mark.asyncio(loop_scope="session")
async def test_a_crew_is_removed_by_its_name_alone(server: Server, developer: Visitor) -> None:
    crew = await server.crew()
    slug = crew.deployment.slug
    kickoff = await crew.kickoff()
    viewer = await Visitor.of(server, Role.VIEWER)
    assert "Remove this crew" not in (await viewer.get(f"/ui/crews/{slug}/settings")).text
    assert (await viewer.post(f"/ui/crews/{slug}/remove", name=slug, stop="on")).status_code == 403
    assert (await viewer.post(f"/ui/crews/{slug}/settings", concurrency="1")).status_code == 403
    await viewer.close()

    assert (await developer.post(f"/ui/crews/{slug}/remove", name="another", stop="on")).status_code == 400
    open_ones = await developer.post(f"/ui/crews/{slug}/remove", name=slug)
    assert (open_ones.status_code, "has open kickoffs: 1" in open_ones.text) == (409, True)
    assert (await crew.status(kickoff))["state"] == "PENDING"
    assert (await developer.post(f"/ui/crews/{slug}/remove", name=slug, stop="on")).status_code == 303
    assert (await developer.get(f"/ui/crews/{slug}/settings")).status_code == 404


@pytest.mark.asyncio(loop_scope="session")
async def test_only_an_owner_can_change_the_egress(crew: Crew, developer: Visitor, owner: Visitor) -> None:
    path = f"/ui/crews/{crew.deployment.slug}/settings"
    refused = await developer.post(path, egress="unrestricted")
    assert refused.status_code == 403
    assert "Only a person with the role owner may change egress." in refused.text
    assert re.search(r'<textarea[^>]*id="egress"[^>]* disabled', (await developer.get(path)).text)
    assert (await owner.post(path, egress="open\r\n127.0.0.1:11434")).status_code == 303
    assert (await own(crew.server, crew))["egress"] == ["open", "127.0.0.1:11434"]
    assert re.search(r'<textarea[^>]*id="egress"[^>]*>\s*open\n127.0.0.1:11434', (await owner.get(path)).text)
