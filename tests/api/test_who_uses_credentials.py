"""Who may bind a variable to a credential, see it, and list the names of its secrets."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from api.control import Person
from api.serving import KEY_RING
from windlass.deployments.variables import seal_value
from windlass.rights import Role

if TYPE_CHECKING:
    from api.serving import Crew

pytestmark = pytest.mark.asyncio(loop_scope="session")

_numbers = itertools.count(1)
KEYS = {"region": "eu-central-1", "access_key_id": "AKIAIOSFODNN7EXAMPLE", "secret_access_key": "hidden-word"}


async def added(owner: Person, **members: Any) -> str:
    given = {"name": f"used-{next(_numbers)}", "provider": "aws", "method": "access_keys", "configuration": KEYS}
    made = await owner.value("POST", "/credentials", status=201, json={**given, **members})
    return str(made["name"])


def bound(credential: str) -> dict[str, Any]:
    return {"source": {"type": "credential", "credential": credential}, "secret_name": "app"}


async def bind(person: Person, crew: Crew, credential: str, status: int = 200) -> Any:
    path = f"/deployments/{crew.deployment.slug}/variables/SECRET"
    return await person.value("PUT", path, status=status, json=bound(credential))


async def value_of(crew: Crew) -> str | None:
    (row,) = await crew.server.database.rows(
        "SELECT value FROM variables WHERE deployment_id = %(id)s AND name = 'SECRET'", {"id": crew.deployment.id}
    )
    found: str | None = row["value"]
    return found


async def store_value(crew: Crew) -> None:
    sealed = seal_value(KEY_RING, crew.deployment.id, "SECRET", "the value")
    await crew.server.database.execute(
        "UPDATE variables SET value = %(value)s, read_at = now() WHERE deployment_id = %(id)s",
        {"value": sealed, "id": crew.deployment.id},
    )


async def test_a_new_credential_is_for_owners_until_it_lists_more(crew: Crew) -> None:
    owner, developer = await Person.of(crew.server, Role.OWNER), await Person.of(crew.server, Role.DEVELOPER)
    name = await added(owner)
    refused = await bind(developer, crew, name, status=403)
    assert refused["details"] == {"code": "credential_not_permitted"}
    assert f"Ask {owner.name}, who changed the credential last, or another owner" in refused["message"]
    for method, path in (("GET", ""), ("POST", "/test"), ("GET", "/secrets")):
        await developer.refused(method, f"/credentials/{name}{path}", status=404)
    assert name not in str(await developer.value("GET", "/credentials"))
    await bind(owner, crew, name)
    other = await crew.server.crew()
    slugs = sorted([crew.deployment.slug, other.deployment.slug])
    found = await owner.value("PATCH", f"/credentials/{name}", json={"deployments": slugs})
    assert (found["roles"], found["deployments"]) == ([], slugs)
    await bind(developer, crew, name)
    assert name in str(await developer.value("GET", "/credentials"))
    await owner.refused("PATCH", f"/credentials/{name}", status=404, json={"deployments": ["nowhere-at-all"]})
    await owner.refused("PATCH", f"/credentials/{name}", status=400, json={"roles": ["viewer"]})


async def test_a_list_of_deployments_counts_for_owners_too_and_a_role_for_all_deployments(crew: Crew) -> None:
    owner, developer = await Person.of(crew.server, Role.OWNER), await Person.of(crew.server, Role.DEVELOPER)
    other = await crew.server.crew()
    name = await added(owner, deployments=[other.deployment.slug])
    for person in (owner, developer):
        await bind(person, crew, name, status=403)
        await bind(person, other, name)
    await owner.value("PATCH", f"/credentials/{name}", json={"roles": ["owner"]})
    await bind(owner, crew, name)
    await bind(developer, crew, name, status=403)
    await owner.value("PATCH", f"/credentials/{name}", json={"roles": ["developer"], "deployments": []})
    await bind(developer, crew, name)


async def test_the_default_credential_is_no_way_round(crew: Crew) -> None:
    owner, developer = await Person.of(crew.server, Role.OWNER), await Person.of(crew.server, Role.DEVELOPER)
    await added(owner, is_default=True)
    path = f"/deployments/{crew.deployment.slug}/variables"
    source = {"type": "default", "provider": "aws"}
    await developer.refused("PUT", f"{path}/A", status=403, json={"source": source, "secret_name": "app"})
    several = [{"name": "B", "source": source, "secret_name": "app"}, {"name": "C", "value": "1"}]
    await developer.refused("PUT", path, status=403, json={"variables": several})
    assert (await developer.value("GET", path))["items"] == []


async def test_a_narrower_list_removes_the_stored_value(crew: Crew) -> None:
    owner, developer = await Person.of(crew.server, Role.OWNER), await Person.of(crew.server, Role.DEVELOPER)
    slug, other = crew.deployment.slug, await crew.server.crew()
    name = await added(owner, deployments=[slug, other.deployment.slug])
    await bind(developer, crew, name)
    await store_value(crew)
    await owner.value("PATCH", f"/credentials/{name}", json={"configuration": {"region": "eu-west-1"}})
    assert await value_of(crew) is not None
    await owner.value("PATCH", f"/credentials/{name}", json={"deployments": [other.deployment.slug]})
    assert await value_of(crew) is None
    await bind(developer, crew, await added(owner, roles=["developer"]))  # another one does not bring it back
    assert await value_of(crew) is None


async def test_where_members_see_a_crew_its_owners_choose_credentials(crew: Crew) -> None:
    owner = await Person.of(crew.server, Role.OWNER)
    member, its_owner = await Person.of(crew.server, Role.DEVELOPER), await Person.of(crew.server, Role.DEVELOPER)
    slug = crew.deployment.slug
    await owner.value("PATCH", f"/deployments/{slug}/members", json={"visible_to": "members"})
    for person, is_owner in ((member, False), (its_owner, True)):
        await owner.value("PUT", f"/deployments/{slug}/members/{person.name}", json={"owner": is_owner})
    name = await added(owner, deployments=[slug])
    refused = await bind(member, crew, name, status=403)
    assert its_owner.name in refused["message"]
    await bind(its_owner, crew, name)
    path = f"/deployments/{slug}/variables/SECRET"
    await member.value("PUT", path, json={"value": "a value of its own"})
    stranger = await Person.of(crew.server, Role.DEVELOPER)
    assert name not in str(await stranger.value("GET", "/credentials"))
    await stranger.refused("GET", f"/credentials/{name}", status=404)


async def test_a_removed_deployment_leaves_the_lists(crew: Crew) -> None:
    owner = await Person.of(crew.server, Role.OWNER)
    name = await added(owner, deployments=[crew.deployment.slug])
    assert (await owner.request("DELETE", f"/deployments/{crew.deployment.slug}")).status_code == 202
    assert (await owner.value("GET", f"/credentials/{name}"))["deployments"] == []
    again = await crew.server.crew(crew.deployment.slug)
    await bind(owner, again, name, status=403)  # the new one has only its name
