"""The pages Status, Run, Deploy, Versions and that of a build, over plain HTTP on a server without a worker."""

from __future__ import annotations

import io
import itertools
import re
import zipfile
from html import unescape
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
import pytest_asyncio

from api.serving import manifest, unknown_id
from dashboard.people import Visitor
from windlass.rights import Role
from windlass.store.audit import AuditFilter, AuditStore
from windlass.store.builds import BuildStore, NewLine, NewVersion

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx

    from api.serving import Crew, Server

pytestmark = pytest.mark.asyncio(loop_scope="session")

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "topic": {"type": "string", "description": "What to <write> about."},
        "length": {"type": "integer", "minimum": 1, "default": 3},
        "tags": {"type": "array"},
    },
    "required": ["topic"],
}
_numbers = itertools.count(1)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def anna(server: Server) -> AsyncIterator[Visitor]:
    visitor = await Visitor.of(server, Role.DEVELOPER)
    yield visitor
    await visitor.close()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def viewer(server: Server) -> AsyncIterator[Visitor]:
    visitor = await Visitor.of(server, Role.VIEWER)
    yield visitor
    await visitor.close()


async def audited(server: Server, visitor: Visitor, action: str) -> list[dict[str, Any]]:
    entries = await AuditStore(server.database).listed(AuditFilter(user=visitor.name, action=action), limit=10)
    return [entry.details for entry in entries]


def words(answer: httpx.Response) -> str:
    """Returns the text of the page as a person reads it, with single spaces."""
    shown = re.sub(r"<(script|style).*?</\1>", "", answer.text, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", shown)).split())


def field_with_error(answer: httpx.Response, name: str) -> str:
    """Returns the message at the field of an input, "" if it has none."""
    found = re.search(
        rf'name="{re.escape(name)}"[^>]*aria-invalid="true".*?class="form-hint bad"[^>]*>(.*?)</p>',
        answer.text,
        re.DOTALL,
    )
    return unescape(found[1]) if found else ""


def zipped(text: str) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("main.py", text)
    return content.getvalue()


async def finish(server: Server, build: str, schema: dict[str, Any] | None = None, error: str = "") -> None:
    """Ends the build as a worker does."""
    store = BuildStore(server.database)
    turn = await store.begin(UUID(build))
    assert turn is not None
    await store.add_lines(turn, 0, [NewLine(0.0, "info", "installing <b>packages</b>"), NewLine(1.0, "warning", "old")])
    if error:
        await store.fail(turn, error, "Add the package, and deploy again.")
        return
    source = {"kind": "crew", "entrypoint": "main", "snapshot": turn.snapshot, "environment": None, "root": ""}
    changes = {"inputs": {"added": ["extra"], "removed": [], "changed": []}, "tasks": {}}
    await store.publish(turn, NewVersion("1" * 64, source, manifest(schema)), lambda *_: changes)


async def deployed(visitor: Visitor, name: str, path: str = "/ui/deploy") -> str:
    """Sends a zip by the form. Returns the id of the build."""
    answer = await visitor.http.post(
        path,
        data={"csrf": await visitor.csrf(), "name": name},
        files={"file": ("project.zip", zipped(f"number = {next(_numbers)}"), "application/zip")},
    )
    assert answer.status_code == 303, words(answer)
    return answer.headers["location"].removeprefix("/ui/builds/")


async def test_the_status_shows_how_to_call_the_crew_without_its_tokens(server: Server, anna: Visitor) -> None:
    crew = await server.crew(inputs_schema=SCHEMA, warnings=[{"code": "telemetry", "message": "It has <telemetry>."}])
    answer = await anna.get(f"/ui/crews/{crew.deployment.slug}")
    assert answer.status_code == 200
    text = words(answer)
    assert f"Base URL {crew.base_url}" in text
    assert crew.token not in answer.text
    assert crew.user_token not in answer.text
    assert f"wlo_{16 * chr(0x2022)}{crew.token[-4:]} everything on this crew" in text
    assert f"{crew.user_token[-4:]} kickoffs of owner only" in text
    assert '-d \'{"inputs": {"topic": "some topic"}}\'' in text
    assert 'inputs = {"topic": "some topic"}' in text
    assert "topic string yes What to <write> about." in text
    assert "length integer no at least 1 3" in text
    assert "It has <telemetry>." in text
    assert "None is alive" in text


@pytest.mark.parametrize("kind", ["organization", "user"])
async def test_a_token_is_shown_on_request_and_each_time_is_in_the_audit_log(
    server: Server, crew: Crew, anna: Visitor, kind: str
) -> None:
    path = f"/ui/crews/{crew.deployment.slug}/tokens/{kind}/show"
    token = crew.token if kind == "organization" else crew.user_token
    before = len(await audited(server, anna, "token.show"))
    answer = await anna.http.post(path, data={"csrf": await anna.csrf()}, headers={"Accept": "application/json"})
    assert answer.json() == {"token": token}
    assert answer.headers["cache-control"] == "no-store"
    page = await anna.post(path)
    assert page.status_code == 200
    assert token in page.text
    assert page.headers["cache-control"] == "no-store"
    seen = await audited(server, anna, "token.show")
    whose = None if kind == "organization" else "owner"
    facts = {"kind": kind, "last_four": token[-4:], "deployment": crew.deployment.slug, "user": whose}
    assert seen[: len(seen) - before] == [facts] * 2


async def test_a_rotated_token_is_refused_and_the_new_one_is_shown(server: Server, anna: Visitor) -> None:
    crew = await server.crew()
    slug = crew.deployment.slug
    answer = await anna.post(f"/ui/crews/{slug}/tokens/organization/rotate")
    assert answer.headers["location"] == f"/ui/crews/{slug}"
    shown = await anna.http.post(
        f"/ui/crews/{slug}/tokens/organization/show",
        data={"csrf": await anna.csrf()},
        headers={"Accept": "application/json"},
    )
    assert (await crew.get("/inputs", token=shown.json()["token"])).status_code == 200
    assert (await crew.get("/inputs", token=crew.user_token)).status_code == 200
    assert len(await audited(server, anna, "token.rotate")) == 1
    assert (await crew.get("/inputs", token=crew.token)).status_code == 401


async def test_the_page_shows_the_profile_and_changes_it(server: Server, anna: Visitor, viewer: Visitor) -> None:
    crew = await server.crew()
    page = f"/ui/crews/{crew.deployment.slug}"
    assert "Change to live" in words(await anna.get(page))
    assert "Change to live" not in words(await viewer.get(page))
    assert (await viewer.post(f"{page}/profile", profile="live")).status_code == 403
    assert (await anna.post(f"{page}/profile", profile="other")).status_code == 404
    assert (await anna.post(f"{page}/profile", profile="live")).status_code == 303
    assert "Change to documented" in words(await anna.get(page))
    assert (await crew.status(await crew.kickoff()))["execution_origin"] == "api"


async def test_a_viewer_sees_no_button_for_tokens_and_there_is_no_third_kind(
    crew: Crew, anna: Visitor, viewer: Visitor
) -> None:
    text = words(await viewer.get(f"/ui/crews/{crew.deployment.slug}"))
    assert crew.token[-4:] in text
    assert "Rotate" not in text
    assert "A developer or an owner can show the tokens." in text
    assert (await anna.post(f"/ui/crews/{crew.deployment.slug}/tokens/personal/show")).status_code == 404


async def test_a_form_starts_a_kickoff_once(server: Server, anna: Visitor) -> None:
    crew = await server.crew(inputs_schema=SCHEMA)
    path = f"/ui/crews/{crew.deployment.slug}/run"
    page = await anna.get(path)
    (once,) = set(re.findall(r'name="once" value="(\w+)"', page.text))
    form = {"once": once, "as": "fields", "in.topic.": "tides\r\nand winds", "in.length.": "5", "in.tags.": '["a"]'}
    first, again = await anna.post(path, **form), await anna.post(path, **form)
    other = await anna.post(path, **{**form, "in.length.": "6"})
    assert first.status_code == 303
    assert first.headers["location"] == again.headers["location"]
    assert first.headers["location"] != other.headers["location"]
    kickoff = first.headers["location"].removeprefix(f"/ui/crews/{crew.deployment.slug}/executions/")
    row = await crew.row(kickoff)
    assert row["inputs"] == {"topic": "tides\nand winds", "length": 5, "tags": ["a"]}
    assert row["user_id"] is None
    assert (await crew.status(kickoff))["state"] == "PENDING"


@pytest.mark.parametrize(
    ("given", "status", "name", "error"),
    [
        ({"in.topic.": "", "in.tags.": "[1]"}, 422, "in.topic.", "required"),
        ({"in.topic.": "tides", "in.length.": "0"}, 400, "in.length.", "minimum"),
        ({"in.topic.": "tides", "in.tags.": "[1,"}, 400, "in.tags.", "at line 1"),
        ({"in.topic.": "tides", "in.tags.": '{"a": 1}'}, 400, "in.tags.", "array"),
        ({"as": "json", "inputs_json": '{"length": 2}'}, 422, "inputs_json", "topic: This input is required."),
        ({"as": "json", "inputs_json": "[1]"}, 400, "inputs_json", "object"),
    ],
)
async def test_an_error_stands_at_its_field_and_nothing_typed_is_lost(
    server: Server, anna: Visitor, given: dict[str, str], status: int, name: str, error: str
) -> None:
    crew = await server.crew(inputs_schema=SCHEMA)
    answer = await anna.post(f"/ui/crews/{crew.deployment.slug}/run", **given)
    assert answer.status_code == status
    assert error in field_with_error(answer, name)
    shown = unescape(answer.text)
    assert all(f">\n{value}</textarea>" in shown or f'value="{value}"' in shown for value in given.values() if value)
    assert (await crew.get("/kickoffs")).json()["kickoffs"] == []


async def test_inputs_of_a_past_kickoff_fill_the_form_as_fields_or_as_json(server: Server, anna: Visitor) -> None:
    crew = await server.crew(inputs_schema=SCHEMA)
    path = f"/ui/crews/{crew.deployment.slug}/run"
    plain = await crew.kickoff({"topic": "<tides>", "length": 7})
    more = await crew.kickoff({"topic": "winds", "unknown": [1]})
    page = await anna.get(f"{path}?from={plain}")
    assert ">\n&lt;tides&gt;</textarea>" in page.text
    assert 'value="7"' in page.text
    page = await anna.get(f"{path}?from={more}")
    assert '"unknown": [' in unescape(page.text)
    assert 'name="inputs_json"' in page.text
    assert [one in page.text for one in (plain, more)] == [True, True]
    elsewhere = await server.crew(inputs_schema=SCHEMA)
    foreign = await elsewhere.kickoff({"topic": "secret"})
    for kickoff in (foreign, unknown_id(), "x"):
        assert (await anna.get(f"{path}?from={kickoff}")).status_code == 404


async def test_webhooks_of_a_kickoff_are_called_again_only_if_a_person_wants_it(server: Server, anna: Visitor) -> None:
    crew = await server.crew(inputs_schema=SCHEMA)
    path = f"/ui/crews/{crew.deployment.slug}/run"
    first = await crew.kickoff({"topic": "tides"}, crewWebhookUrl="https://user:pass@one.example.com/hook?key=1")
    assert "with_webhooks" not in (await anna.get(path)).text
    page = (await anna.get(f"{path}?from={first}")).text
    assert "Call its webhooks again" in page
    assert "At one.example.com." in page
    assert [word in page for word in ("user:pass", "/hook?key=1")] == [False, False]
    elsewhere = await server.crew(inputs_schema=SCHEMA)
    form = {"as": "fields", "in.topic.": "winds"}
    for slug, more, hosts in (
        (crew.deployment.slug, {"from": first}, []),
        (crew.deployment.slug, {"from": first, "with_webhooks": "true"}, [("one.example.com", ["crew"])]),
        (elsewhere.deployment.slug, {"from": first, "with_webhooks": "true"}, []),
    ):
        answer = await anna.post(f"/ui/crews/{slug}/run", **form, **more)
        assert answer.status_code == 303
        assert await hooks_of(server, answer.headers["location"].rpartition("/")[2]) == hosts
    await anna.post("/ui/executions/again", **{"ids[]": first})
    assert "Webhooks that only the first ones were started with are not called." in (await anna.get("/ui/")).text


async def hooks_of(server: Server, kickoff: str) -> list[tuple[str, list[str]]]:
    rows = await server.database.rows(
        "SELECT host, hooks FROM webhooks JOIN webhook_endpoints ON id = endpoint_id WHERE kickoff_id = %(id)s::uuid",
        {"id": kickoff},
    )
    return [(row["host"], list(row["hooks"])) for row in rows]


async def test_the_preview_shows_the_call_and_changes_between_fields_and_json(server: Server, anna: Visitor) -> None:
    crew = await server.crew(inputs_schema=SCHEMA)
    path = f"/ui/crews/{crew.deployment.slug}/run/preview"
    form = {"as": "fields", "once": "abc", "in.topic.": "it's", "in.length.": "x"}
    answer = await anna.post(path, **form)
    assert "whole number" in field_with_error(answer, "in.length.")
    assert """'{"inputs": {"topic": "it'"'"'s"}}'""" in unescape(answer.text)
    answer = await anna.post(path, **{**form, "in.length.": "2", "switch": "json"})
    assert '{\n  "topic": "it\'s",\n  "length": 2\n}</textarea>' in unescape(answer.text)
    answer = await anna.post(path, **{"as": "json", "switch": "fields", "inputs_json": '{"topic": "x", "length": 9}'})
    assert 'value="9"' in answer.text
    answer = await anna.post(path, **{"as": "json", "switch": "fields", "inputs_json": '{"topic": 1}'})
    assert "can't hold these inputs" in field_with_error(answer, "inputs_json")
    assert (await crew.get("/kickoffs")).json()["kickoffs"] == []


async def test_a_full_queue_is_said_above_the_form(server: Server, anna: Visitor, viewer: Visitor) -> None:
    crew = await server.crew(inputs_schema=SCHEMA)
    slug = crew.deployment.slug
    await server.database.execute("UPDATE deployments SET max_waiting = 1 WHERE slug = %(slug)s", {"slug": slug})
    await crew.kickoff({"topic": "tides"})
    answer = await anna.post(f"/ui/crews/{slug}/run", **{"in.topic.": "winds"})
    assert answer.status_code == 429
    assert "The queue of this crew is full" in words(answer)
    assert ">\nwinds</textarea>" in answer.text
    assert "can't run crews" in words(await viewer.get(f"/ui/crews/{slug}/run"))


async def test_a_zip_becomes_a_crew_whose_build_can_be_followed(server: Server, anna: Visitor) -> None:
    name = f"uploaded {next(_numbers)}"
    slug = name.replace(" ", "-")
    build = await deployed(anna, name)
    page = await anna.get(f"/ui/builds/{build}")
    assert re.search(r"Waits for (a worker|\d+ builds? before it)", words(page))  # others may have left some
    assert f'hx-get="/ui/builds/{build}?after=0"' in page.text
    assert "A new version is being built." in words(await anna.get(f"/ui/crews/{slug}"))
    assert "can't run yet" in words(await anna.get(f"/ui/crews/{slug}/run"))
    await finish(server, build)
    text = words(page := await anna.get(f"/ui/builds/{build}"))
    assert "Version 1 is ready. New kickoffs run on it. Call this crew" in text
    assert "installing <b>packages</b>" in text
    assert "?after=" not in page.text
    part = await anna.http.get(f"/ui/builds/{build}?after=1", headers={"HX-Request": "true"})
    assert "installing" not in part.text
    assert "old" in words(part)
    taken = await anna.post("/ui/deploy", name=name, url="https://git.example.com/x.git", ref="", subfolder="")
    assert taken.status_code == 409
    assert "There is a deployment" in words(taken)
    assert 'value="https://git.example.com/x.git"' in taken.text


@pytest.mark.parametrize(
    ("data", "content", "status", "error"),
    [
        ({"name": "x y"}, "no zip", 400, "zip"),
        ({"name": "???"}, "no zip", 400, "needs a letter"),
        ({"name": "fine name"}, "", 400, "Choose a zip file"),
    ],
)
async def test_an_upload_that_is_refused_says_why_and_keeps_the_name(
    anna: Visitor, data: dict[str, str], content: str, status: int, error: str
) -> None:
    files = {"file": ("project.zip" if content else "", content.encode(), "application/zip")}
    answer = await anna.http.post("/ui/deploy", data={"csrf": await anna.csrf(), **data}, files=files)
    assert answer.status_code == status
    assert error in words(answer)
    assert f'value="{data["name"]}"' in answer.text
    assert (await anna.get(f"/ui/crews/{data['name'].replace(' ', '-')}")).status_code == 404


@pytest.mark.parametrize("url", ["http://git.example.com/x.git", "https://user:secret@git.example.com/x.git", "/etc"])
async def test_an_address_of_a_repository_that_is_refused_says_why(crew: Crew, anna: Visitor, url: str) -> None:
    form = {"url": url, "ref": "main", "subfolder": "crews"}
    answer = await anna.post(f"/ui/crews/{crew.deployment.slug}/deploy", **form)
    assert answer.status_code == 400
    assert 'role="alert"' in answer.text
    assert 'value="crews"' in answer.text


async def test_versions_are_promoted_and_rolled_back(server: Server, anna: Visitor) -> None:
    name = f"versions-{next(_numbers)}"
    path = f"/ui/crews/{name}"
    await finish(server, await deployed(anna, name))
    for _ in range(2):
        await finish(server, await deployed(anna, "", f"{path}/deploy"))
    text = words(await anna.get(f"{path}/versions"))
    assert text.index("Version 3 Current") < text.index("Version 2") < text.index("Version 1")
    assert f"by {anna.name}" in text
    assert "Inputs + extra" in text
    assert "Roll back to version 2" in text
    answer = await anna.post(f"{path}/roll-back", current="3")
    assert answer.headers["location"] == f"{path}/versions"
    assert "Version 2 Current" in words(await anna.get(f"{path}/versions"))
    assert (await anna.post(f"{path}/roll-back", current="3")).status_code == 409
    assert (await anna.post(f"{path}/promote", version="1", current="2")).status_code == 303
    assert "Version 1 Current" in words(await anna.get(f"{path}/versions"))
    assert (await anna.post(f"{path}/promote", version="x", current="1")).status_code == 400
    again = await anna.post(f"{path}/redeploy")
    assert "redeploy of version 1" in words(await anna.get(again.headers["location"]))


async def test_a_failed_build_is_on_the_status_with_what_to_do(server: Server, anna: Visitor) -> None:
    name = f"failing-{next(_numbers)}"
    await finish(server, await deployed(anna, name))
    build = await deployed(anna, "", f"/ui/crews/{name}/deploy")
    await finish(server, build, error="No module named <foo>.")
    text = words(await anna.get(f"/ui/crews/{name}"))
    assert "The latest build failed" in text
    assert "Version 1 still serves. No module named <foo>. Add the package, and deploy again." in text
    text = words(await anna.get(f"/ui/builds/{build}"))
    assert "The build failed. No module named <foo>." in text
    assert "Version 1 still serves. Deploy again" in text
    assert "Build Failed" in words(await anna.get(f"/ui/crews/{name}/versions"))


async def test_a_build_of_another_server_or_of_a_removed_crew_is_not_found(anna: Visitor) -> None:
    for build in (unknown_id(), "x"):
        assert (await anna.get(f"/ui/builds/{build}")).status_code == 404
