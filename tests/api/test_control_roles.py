"""Every operation of the control API against every sort of caller. A new operation without a row here fails."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from api.control import Person, document
from windlass.api.control_api.application import control_operations
from windlass.rights import Role

if TYPE_CHECKING:
    from api.serving import Crew, Server

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "control-api.md"
VIEWER, DEVELOPER, OWNER = Role
ROLES: dict[tuple[str, str], Role] = {
    ("GET", "/me"): VIEWER,
    ("GET", "/deployments"): VIEWER,
    ("POST", "/deployments"): DEVELOPER,
    ("GET", "/deployments/{slug}"): VIEWER,
    ("DELETE", "/deployments/{slug}"): DEVELOPER,
    ("POST", "/deployments/{slug}/pause"): DEVELOPER,
    ("POST", "/deployments/{slug}/resume"): DEVELOPER,
    ("GET", "/deployments/{slug}/tokens"): DEVELOPER,
    ("POST", "/deployments/{slug}/builds"): DEVELOPER,
    ("GET", "/deployments/{slug}/builds"): VIEWER,
    ("GET", "/builds/{build_id}"): VIEWER,
    ("GET", "/builds/{build_id}/log"): VIEWER,
    ("GET", "/deployments/{slug}/versions"): VIEWER,
    ("GET", "/deployments/{slug}/versions/{number}"): VIEWER,
    ("POST", "/deployments/{slug}/promote"): DEVELOPER,
    ("POST", "/deployments/{slug}/rollback"): DEVELOPER,
    ("GET", "/deployments/{slug}/settings"): VIEWER,
    ("PATCH", "/deployments/{slug}/settings"): DEVELOPER,
    ("GET", "/deployments/{slug}/variables"): VIEWER,
    ("PUT", "/deployments/{slug}/variables"): DEVELOPER,
    ("PUT", "/deployments/{slug}/variables/{name}"): DEVELOPER,
    ("DELETE", "/deployments/{slug}/variables/{name}"): DEVELOPER,
    ("POST", "/deployments/{slug}/redeploy"): DEVELOPER,
    ("GET", "/deployments/{slug}/members"): VIEWER,
    ("PATCH", "/deployments/{slug}/members"): DEVELOPER,
    ("PUT", "/deployments/{slug}/members/{name}"): DEVELOPER,
    ("DELETE", "/deployments/{slug}/members/{name}"): VIEWER,
    ("GET", "/credentials"): DEVELOPER,
    ("POST", "/credentials"): OWNER,
    ("GET", "/credentials/providers"): DEVELOPER,
    ("POST", "/credentials/test"): OWNER,
    ("GET", "/credentials/{name}"): DEVELOPER,
    ("PATCH", "/credentials/{name}"): OWNER,
    ("DELETE", "/credentials/{name}"): OWNER,
    ("POST", "/credentials/{name}/test"): DEVELOPER,
    ("GET", "/credentials/{name}/secrets"): DEVELOPER,
    ("GET", "/kickoffs"): VIEWER,
    ("GET", "/kickoffs/{kickoff_id}"): VIEWER,
    ("GET", "/deployments/{slug}/webhooks"): VIEWER,
    ("PATCH", "/deployments/{slug}/webhooks"): DEVELOPER,
    ("GET", "/deployments/{slug}/webhooks/secret"): DEVELOPER,
    ("POST", "/deployments/{slug}/webhooks/secret"): DEVELOPER,
    ("POST", "/deployments/{slug}/webhooks/test"): DEVELOPER,
    ("GET", "/deliveries"): VIEWER,
    ("GET", "/deliveries/{delivery_id}"): VIEWER,
    ("POST", "/deliveries/{delivery_id}/redeliver"): DEVELOPER,
    ("GET", "/approvals"): VIEWER,
    ("GET", "/approvals/{approval_id}"): VIEWER,
    ("POST", "/approvals/{approval_id}/answer"): VIEWER,
    ("GET", "/workers"): VIEWER,
    ("GET", "/users"): OWNER,
    ("POST", "/users"): OWNER,
    ("PATCH", "/users/{name}"): OWNER,
    ("DELETE", "/users/{name}"): OWNER,
    ("GET", "/tokens"): VIEWER,
    ("POST", "/tokens"): VIEWER,
    ("DELETE", "/tokens/{token_id}"): VIEWER,
    ("GET", "/audit"): OWNER,
    ("GET", "/identity"): OWNER,
    ("POST", "/identity/rotate"): OWNER,
}
NAMES = {"slug": "nowhere", "number": "1", "name": "nobody"}
BAD_BODY: dict[str, Any] = {"unknown": 1}
"""No operation takes it, so that those who may use an operation change nothing here."""


def test_every_operation_has_a_row() -> None:
    found = {(method, route.path): route.role for route in control_operations() for method in route.methods or ()}
    assert found == ROLES


def test_the_document_names_the_roles_and_the_errors() -> None:
    operations = {
        (method.upper(), path): operation
        for path, methods in document()["paths"].items()
        for method, operation in methods.items()
    }
    assert {key: operation["x-role"] for key, operation in operations.items()} == ROLES
    for (method, _), operation in operations.items():
        assert operation["security"] == [{"bearer": []}]
        assert operation["summary"]
        assert {"401", "403", "404"} <= operation["responses"].keys()
        assert "422" not in operation["responses"]
        assert ("409" in operation["responses"]) == (method != "GET")


def test_the_page_has_every_operation_with_its_role() -> None:
    rows = re.findall(r"^\| `([A-Z]+) (/[^` ]*)` \| (\w+) \|", PAGE.read_text("utf-8"), re.MULTILINE)
    assert {(method, path): role for method, path, role in rows} == ROLES
    assert len(rows) == len(ROLES)


def test_the_page_of_people_has_every_action_of_the_audit_log() -> None:
    root = PAGE.parents[2]
    folder = root / "src" / "windlass"
    sources = "".join(path.read_text("utf-8") for ending in ("py", "sql") for path in folder.rglob(f"*.{ending}"))
    actions = set(re.findall(r'Change\(by, "([a-z_.]+)"', sources))
    actions |= set(re.findall(r"'(kickoff\.[a-z_]+)'", sources))  # written by statements of kickoffs
    table = (root / "docs" / "how-to" / "people.md").read_text("utf-8").partition("| actions |")[2].partition("\n\n")[0]
    assert set(re.findall(r"`([a-z_.]+)`", table)) == actions
    assert len(actions) > 10


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def people(server: Server) -> dict[Role, Person]:
    return {role: await Person.of(server, role) for role in Role}


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize(("operation", "needed"), ROLES.items(), ids=str)
async def test_each_role_may_do_what_it_includes_and_strangers_nothing(
    crew: Crew, people: dict[Role, Person], operation: tuple[str, str], needed: Role
) -> None:
    method, template = operation
    path = re.sub(r"\{(\w+)\}", lambda found: NAMES.get(found[1], "0"), template)
    body = {} if method == "GET" else {"json": BAD_BODY}
    for role, person in people.items():
        status = (await person.request(method, path, **body)).status_code
        assert status in ({200, 400, 404} if role.includes(needed) else {403}), role
    strangers = (crew.token, crew.user_token, (await crew.server.tokens.create(None)).reveal(), "none")
    for token in strangers:
        answer = await Person(crew.server, "stranger", token).request(method, path, **body)
        assert answer.status_code == 401, token


def test_each_role_includes_those_below_it() -> None:
    assert [[one.includes(other) for other in Role] for one in Role] == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]
