"""Every route against people who are no members of the deployment. A new route without a decision here fails."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from api.control import Person
from api.deliveries import deliver, ended
from api.runs import begin
from dashboard.people import Visitor
from windlass.api.control_api.application import control_operations
from windlass.api.crew_api.routes import OPERATIONS
from windlass.api.crewai_cli import API as CREWAI
from windlass.api.crewai_cli import CrewaiCli
from windlass.dashboard.pages import PAGES
from windlass.deployments.members import SUBJECTS
from windlass.kickoffs.ids import new_id
from windlass.rights import Role
from windlass.store.audit import COMMAND_LINE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from api.serving import Server

pytestmark = pytest.mark.asyncio(loop_scope="session")

_numbers = itertools.count(1)
CONTROL = sorted((method, one.path, one.role) for one in control_operations() for method in one.methods or ())
UI = sorted((method, path, role) for group in PAGES for method, path, role, _ in group.table if role is not None)
PARAMETER = re.compile(r"{(\w+)(?::\w+)?}")
OF_NO_DEPLOYMENT = {"name", "number", "token_id", "token", "session", "provider", "method", "kind", "hook", "path"}
"""Parameters that name a deployment only together with another one, or none at all."""
LISTS = {
    *("/deployments", "/kickoffs", "/deliveries", "/approvals"),
    *("/", "/executions", "/executions.csv", "/approvals", "/system"),
}
"""Lists over all deployments, which a test below reads as a stranger."""
OF_OWNERS_OF_THE_SERVER = {"/audit", "/audit.csv", "/tokens/crew"}
WITHOUT_DEPLOYMENTS = {
    *("/me", "/workers", "/tokens", "/tokens/{token_id}", "/users", "/users/{name}", "/identity", "/identity/rotate"),
    *("/account", "/account/password", "/account/sessions/{session}/end", "/account/sign-out-everywhere"),
    *("/tokens/personal", "/tokens/{token}/revoke", "/deploy"),
    *("/people", "/people/user", "/people/role", "/people/disable", "/people/enable", "/people/remove", "/people/link"),
}
CREDENTIALS = "/credentials"
"""Who sees a credential is tested in tests/api/test_who_uses_credentials.py."""
OF_SELECTED = {"/executions/stop", "/executions/again"}
"""Forms with the ids of executions."""


@dataclass
class Scene:
    """A deployment that only its members see, with something of everything."""

    slug: str
    of: dict[str, str]
    """Parameter of a path -> its value for this deployment."""

    def path(self, template: str) -> str:
        return PARAMETER.sub(lambda found: self.of[found[1]], template)

    def missing(self, template: str) -> str:
        """The path of things that do not exist."""
        return PARAMETER.sub(
            lambda found: (
                "nowhere"
                if found[1] == "slug"
                else str(new_id())
                if found[1] in SUBJECTS or found[1] not in self.of
                else self.of[found[1]]
            ),
            template,
        )


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def scene(server: Server) -> Scene:
    return await made_scene(server)


async def made_scene(server: Server) -> Scene:
    crew = await server.crew()
    slug = crew.deployment.slug
    control = server.dashboard.control
    await ended(crew, crewWebhookUrl="http://127.0.0.1:9/")
    await deliver(crew)
    (delivery,) = await server.database.rows(
        "SELECT id FROM deliveries WHERE deployment_id = %(id)s", {"id": crew.deployment.id}
    )
    source = control.deploys.source_of_git("https://example.org/crew.git", None, None, {})
    build = await control.deploys.build(slug, source, COMMAND_LINE)
    run = await begin(crew, kickoff := await crew.kickoff())
    await run.start_task(0)
    question = await run.ask()
    owner = await new_person(server, Role.OWNER)
    await owner.value("PATCH", f"/deployments/{slug}/members", json={"visible_to": "members"})
    ids = {"build": build.id, "kickoff": kickoff, "delivery": delivery["id"], "question": question}
    names = {parameter: str(ids.get(subject, slug)) for parameter, subject in SUBJECTS.items()}
    return Scene(slug, {**names, "name": "NAME", "number": "1", "hook": "crew", "kind": "user", "path": "report.md"})


@dataclass
class Both:
    """A person, over the control API and as a visitor of the dashboard."""

    person: Person
    visitor: Visitor

    @classmethod
    async def of(cls, server: Server, role: Role) -> Both:
        visitor = await Visitor.of(server, role)
        _, token = await server.tokens.create_personal(visitor.name, "test")
        return cls(Person(server, visitor.name, token.reveal()), visitor)

    async def ui(self, method: str, path: str) -> tuple[int, str]:
        url = f"/ui{path}"
        answer = await (self.visitor.get(url) if method == "GET" else self.visitor.post(url))
        message = re.search(r"<main.*?</main>", answer.text, re.DOTALL)
        return answer.status_code, message[0] if message else ""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def strangers(server: Server) -> AsyncIterator[list[Both]]:
    found = [await Both.of(server, role) for role in (Role.VIEWER, Role.DEVELOPER)]
    yield found
    for one in found:
        await one.visitor.close()


async def member_of(server: Server, scene: Scene, role: Role, *, is_owner: bool = False) -> Person:
    return await made_member(server, scene, await new_person(server, role), is_owner=is_owner)


async def new_person(server: Server, role: Role) -> Person:
    return await Person.of(server, role, f"{role} among strangers {next(_numbers)}")


async def made_member(server: Server, scene: Scene, person: Person, *, is_owner: bool = False) -> Person:
    owner = await new_person(server, Role.OWNER)
    await owner.value("PUT", f"/deployments/{scene.slug}/members/{person.name}", json={"owner": is_owner})
    return person


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def viewer_of_it(server: Server, scene: Scene) -> AsyncIterator[Both]:
    """A member with the role `viewer`."""
    found = await Both.of(server, Role.VIEWER)
    await made_member(server, scene, found.person)
    yield found
    await found.visitor.close()


async def test_each_route_has_a_decision() -> None:
    """A route names something of a deployment, and is then refused to strangers, or it is in a list above."""
    for _, path, _ in (*CONTROL, *UI):
        parameters = set(PARAMETER.findall(path))
        assert parameters <= {*SUBJECTS, *OF_NO_DEPLOYMENT}, f"{path}: is this parameter of a deployment?"
        decided = LISTS | OF_OWNERS_OF_THE_SERVER | WITHOUT_DEPLOYMENTS | OF_SELECTED
        assert parameters & SUBJECTS.keys() or path in decided or path.startswith(CREDENTIALS), path


@pytest.mark.parametrize(("method", "path", "role"), [one for one in CONTROL if PARAMETER.search(one[1])], ids=str)
async def test_strangers_find_nothing_of_a_deployment_over_the_control_api(
    scene: Scene, strangers: list[Both], method: str, path: str, role: Role
) -> None:
    if not SUBJECTS.keys() & set(PARAMETER.findall(path)):
        return
    for stranger, of in zip(strangers, (Role.VIEWER, Role.DEVELOPER), strict=True):
        body = {} if method == "GET" else {"json": {"unknown": 1}}
        hidden = await stranger.person.request(method, scene.path(path), **body)
        missing = await stranger.person.request(method, scene.missing(path), **body)
        assert hidden.status_code == (404 if of.includes(role) else 403)
        assert hidden.status_code == missing.status_code
        assert hidden.json()["message"].replace(scene.slug, "nowhere") == missing.json()["message"]


@pytest.mark.parametrize(("method", "path", "role"), [one for one in UI if PARAMETER.search(one[1])], ids=str)
async def test_strangers_find_nothing_of_a_crew_in_the_dashboard(
    scene: Scene, strangers: list[Both], method: str, path: str, role: Role
) -> None:
    if not SUBJECTS.keys() & set(PARAMETER.findall(path)):
        return
    for stranger, of in zip(strangers, (Role.VIEWER, Role.DEVELOPER), strict=True):
        status, text = await stranger.ui(method, scene.path(path))
        assert status == (404 if of.includes(role) else 403)
        assert (status, text) == await stranger.ui(method, scene.missing(path))


async def test_lists_show_a_person_what_the_person_sees(
    scene: Scene, strangers: list[Both], viewer_of_it: Both
) -> None:
    kickoff, question = scene.of["kickoff"], scene.of["question"]
    lists = {
        "/api/v1/deployments?limit=1000": scene.slug,
        "/api/v1/kickoffs?limit=1000": kickoff,
        "/api/v1/deliveries?limit=1000": scene.of["delivery"],
        "/api/v1/approvals?limit=1000": question,
        "/metrics": f'"{scene.slug}"',
        f"{CREWAI}/crews": scene.slug,
        f"/ui/?search={scene.slug}": f"/ui/crews/{scene.slug}",
        f"/ui/?search={kickoff}": scene.slug,
        "/ui/executions": kickoff,
        f"/ui/executions?crew={scene.slug}": kickoff,
        f"/ui/executions?id={kickoff[-6:]}": kickoff,
        "/ui/executions.csv": kickoff,
        f"/ui/executions.csv?ids={kickoff}": kickoff,
        "/ui/approvals": question,
    }
    for path, words in lists.items():
        for one, sees in ((viewer_of_it, True), *((stranger, False) for stranger in strangers)):
            headers = {} if path.startswith("/ui") else {"Authorization": f"Bearer {one.person.token}"}
            answer = await one.visitor.http.get(path, headers=headers, follow_redirects=True)
            assert answer.status_code == 200, path
            shown = answer.text.replace(f"search={scene.slug}", "").replace(f'value="{scene.slug}"', "")
            shown = (
                shown.replace(f'value="{kickoff}"', "").replace(f"search={kickoff}", "").replace(f"ids={kickoff}", "")
            )
            assert (words in shown) is sees, (path, one.person.name)


async def test_counts_and_queries_do_not_reveal_a_deployment(scene: Scene, strangers: list[Both]) -> None:
    for stranger in strangers:
        for name in ("approvals", "deliveries"):
            await stranger.person.refused("GET", f"/{name}?deployment={scene.slug}", status=404)
        page = await stranger.person.value("GET", f"/kickoffs?deployment={scene.slug}&limit=1")
        assert page == {"items": [], "next_cursor": None}
        system = (await stranger.visitor.get("/ui/system")).text
        assert scene.slug not in system
        for path in ("/?search=", "/executions?crew="):
            pages = [(await stranger.ui("GET", path + one))[1].replace(one, "") for one in (scene.slug, "xyz")]
            assert pages[0] == pages[1], path
    developer = strangers[1].visitor
    for path in sorted(OF_SELECTED):
        answer = await developer.post(f"/ui{path}", **{"ids[]": scene.of["kickoff"]})
        assert answer.status_code == 404, path


async def test_a_search_finds_a_crew_whose_name_begins_with_that_of_a_hidden_one(
    server: Server, strangers: list[Both]
) -> None:
    scene = await made_scene(server)
    seen = await server.crew(f"{scene.slug}-too")
    kickoff = await seen.kickoff()
    for stranger in strangers:
        assert kickoff in (await stranger.ui("GET", f"/executions?crew={scene.slug}"))[1]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.name)
async def test_a_personal_token_of_a_stranger_does_not_open_the_api_of_a_crew(
    server: Server, scene: Scene, strangers: list[Both], operation: Any
) -> None:
    path = operation.path.replace("{kickoff_id}", scene.of["kickoff"]).replace("{path:path}", "report.md")
    for stranger in strangers:
        headers = {"Authorization": f"Bearer {stranger.person.token}"}
        url = f"{server.url}/crews/{scene.slug}{path}"
        answer = await stranger.visitor.http.request(operation.method, url, headers=headers)
        assert (answer.status_code, "There is no crew" in answer.text) == (404, True)


async def test_a_token_of_the_crew_and_an_owner_of_the_server_see_it_as_before(server: Server, scene: Scene) -> None:
    owner = await new_person(server, Role.OWNER)
    deployment = await server.deployments.get(scene.slug)
    assert deployment is not None
    crew_token = (await server.tokens.create(deployment.id)).reveal()
    for token in (owner.token, crew_token):
        answer = await server.http.get(
            f"{server.url}/crews/{scene.slug}/status/{scene.of['kickoff']}",
            headers={"Authorization": f"Bearer {token}"},
        )
        assert answer.status_code == 200
    assert (await owner.value("GET", f"/kickoffs/{scene.of['kickoff']}"))["deployment"] == scene.slug


async def test_the_program_of_crewai_finds_no_deployment_of_others(
    server: Server, scene: Scene, strangers: list[Both]
) -> None:
    row = await server.dashboard.control.management.show(scene.slug)
    headers = {"Authorization": f"Bearer {strangers[1].person.token}"}
    routes = [one for one in CrewaiCli(server.dashboard.control).routes() if PARAMETER.search(one.path)]
    seen = 0
    for route in routes:
        if "slug" in PARAMETER.findall(route.path):
            continue  # it leads a browser to the page of the API, which is public
        path = route.path.replace("{uuid}", str(row.id)).replace("{name}", scene.slug).replace("{kind}", "deploy")
        (method,) = (route.methods or set()) - {"HEAD"}
        answer = await strangers[1].visitor.http.request(method, path, headers=headers)
        assert answer.status_code == 404, path
        seen += 1
    assert seen > 8


async def test_a_member_may_what_the_role_permits(scene: Scene, viewer_of_it: Both) -> None:
    for method, path, role in CONTROL:
        if SUBJECTS.keys() & set(PARAMETER.findall(path)) and method == "GET":
            answer = await viewer_of_it.person.request(method, scene.path(path))
            assert answer.status_code == (403 if role is not Role.VIEWER else 200), path
    for method, path, role in UI:
        if SUBJECTS.keys() & set(PARAMETER.findall(path)) and role is not Role.VIEWER:
            assert (await viewer_of_it.ui(method, scene.path(path)))[0] == 403, path


OF_OWNERS = {("PATCH", "/deployments/{slug}/members"), ("PUT", "/deployments/{slug}/members/{name}")}


async def test_a_developer_who_is_a_member_changes_all_but_the_members(server: Server) -> None:
    scene = await made_scene(server)
    developer = await member_of(server, scene, Role.DEVELOPER)
    last = ("DELETE", "/deployments/{slug}")
    operations = [(method, path) for method, path, _ in CONTROL if SUBJECTS.keys() & set(PARAMETER.findall(path))]
    for method, path in sorted(operations, key=lambda one: one == last):
        body = {} if method == "GET" else {"json": {"unknown": 1}}
        answer = await developer.request(
            method, f"{scene.path(path)}{'?stop=true' if (method, path) == last else ''}", **body
        )
        hidden = answer.status_code == 404 and "There is no deployment" in answer.text
        assert not hidden, path
        assert answer.status_code != 403 or (method, path) == ("DELETE", "/deployments/{slug}/members/{name}"), path
    assert answer.status_code == 202


async def test_owners_of_a_deployment_change_its_members(server: Server) -> None:
    scene = await made_scene(server)
    owner = await member_of(server, scene, Role.DEVELOPER, is_owner=True)
    member = await member_of(server, scene, Role.DEVELOPER)
    stranger = await new_person(server, Role.DEVELOPER)
    path = f"/deployments/{scene.slug}/members"
    for method, where, body in (
        ("PUT", f"{path}/{stranger.name}", {"owner": False}),
        ("PUT", f"{path}/{member.name}", {"owner": True}),
        ("PATCH", path, {"visible_to": "everybody"}),
        ("DELETE", f"{path}/{owner.name}", None),
    ):
        refused = await member.refused(method, where, status=403, **({"json": body} if body else {}))
        assert f"Ask an owner of this server or of {scene.slug}: {owner.name}" in refused["message"]
    await stranger.refused("GET", path, status=404)
    found = await owner.value("PUT", f"{path}/{stranger.name}", json={})
    assert [(one["user"], one["owner"]) for one in found["items"]] == [
        (owner.name, True),
        *sorted([(member.name, False), (stranger.name, False)]),
    ]
    assert (await stranger.value("GET", f"/deployments/{scene.slug}"))["visible_to"] == "members"
    assert (await owner.request("DELETE", f"{path}/{member.name}")).status_code == 204
    await member.refused("GET", f"/deployments/{scene.slug}", status=404)
    assert (await stranger.request("DELETE", f"{path}/{stranger.name}")).status_code == 204  # one's own
    await owner.refused("DELETE", f"{path}/{member.name}", status=404)
    await owner.refused("PUT", f"{path}/nobody", status=404, json={})
    await owner.value("PATCH", path, json={"visible_to": "everybody"})
    assert (await member.value("GET", f"/deployments/{scene.slug}"))["visible_to"] == "everybody"


async def test_the_creator_owns_a_new_deployment_which_others_do_not_see(server: Server) -> None:
    creator, other = await new_person(server, Role.DEVELOPER), await new_person(server, Role.DEVELOPER)
    slug = f"made-by-{creator.name}".replace(" ", "-")
    made = await creator.value("POST", "/deployments", status=201, json={"name": slug})
    assert made["deployment"]["visible_to"] == "members"
    found = await creator.value("GET", f"/deployments/{slug}/members")
    assert [(one["user"], one["owner"]) for one in found["items"]] == [(creator.name, True)]
    await other.refused("GET", f"/deployments/{slug}", status=404)
    await other.refused("POST", "/deployments", status=409, json={"name": slug})  # names are no secret
