"""The OIDC documents of the server, its identity over the control API, and the rotation of its keys."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import TYPE_CHECKING, Any

import httpx
import jwt
import pytest
from joserfc import jwt as judge
from joserfc.jwk import KeySet

from api.control import Person
from api.serving import KEY_RING, Server, serving, until
from windlass.deployments.identity import Identity
from windlass.rights import Role
from windlass.secrets.key_ring import Sealed
from windlass.secrets.oidc import SigningKey
from windlass.secrets.provider import NoIssuer
from windlass.store.audit import COMMAND_LINE
from windlass.store.database import Database
from windlass.store.signing_keys import SigningKeyStore

if TYPE_CHECKING:
    from api.serving import Crew

DISCOVERY, JWKS = "/.well-known/openid-configuration", "/oauth2/jwks"
ISSUER = "https://crews.example.com"


@cache
def key() -> SigningKey:
    return SigningKey.made()


async def document(server: Server, path: str, status: int = 200) -> dict[str, Any]:
    answer = await server.http.get(server.url + path)
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def published(server: Server) -> list[str]:
    return [one["kid"] for one in (await document(server, JWKS))["keys"]]


async def token_of(identity: Identity, audience: str = "a") -> str:
    return await asyncio.to_thread(identity.subject, audience)


async def signed_by(identity: Identity) -> str:
    return str(jwt.get_unverified_header(await token_of(identity))["kid"])


async def test_a_token_is_checked_with_the_published_documents(emptied_url: str) -> None:
    async with serving(emptied_url) as server:
        discovery = await document(server, DISCOVERY)
        assert discovery["issuer"] == server.url == server.identity.issuer
        empty = await server.http.get(discovery["jwks_uri"])
        assert (empty.json(), empty.headers["cache-control"]) == ({"keys": []}, "no-store")
        token = await token_of(server.identity, "sts.amazonaws.com")
        answer = await server.http.get(discovery["jwks_uri"])
        assert answer.headers["cache-control"] == "public, max-age=300"
        claims = judge.decode(token, KeySet.import_key_set(answer.json()), algorithms=["RS256"]).claims
        assert (claims["iss"], claims["aud"]) == (server.url, "sts.amazonaws.com")
        assert claims["sub"] == f"organization:{server.identity.organization_id}"


async def test_an_organization_keeps_its_id_and_its_keys_over_restarts(emptied_url: str) -> None:
    async with serving(emptied_url) as server:
        await server.identity.prepare()
        before = server.identity.organization_id, await published(server)
    async with serving(emptied_url) as server:
        assert (server.identity.organization_id, await published(server)) == before


async def test_several_servers_make_one_key_together(emptied_url: str) -> None:
    async with serving(emptied_url) as server:
        store = SigningKeyStore(server.database)
        others = [await Identity.open(store, KEY_RING, ISSUER) for _ in range(3)]
        kids = await asyncio.gather(*(signed_by(one) for one in [server.identity, *others]))
        assert len(set(kids)) == 1
        assert await published(server) == [kids[0]]
        (row,) = await store.all()
        assert SigningKey.from_pem(KEY_RING.open(row.key, Sealed.SIGNING_KEY.of(row.id)), "row").id == kids[0]
        assert "PRIVATE" not in row.key


async def test_the_key_is_replaced_in_steps_that_every_server_follows(emptied_url: str) -> None:
    async with serving(emptied_url) as server, serving(emptied_url) as other:
        owner = await Person.of(server, Role.OWNER, "olga")
        first = (await owner.value("GET", "/identity"))["keys"][0]["id"]
        rotated = await owner.value("POST", "/identity/rotate", json={})
        assert [one["state"] for one in rotated["keys"]] == ["signing", "waiting"]
        second = rotated["keys"][1]["id"]

        async def other_publishes(*ids: str) -> bool:
            return await published(other) == list(ids)

        await until(lambda: other_publishes(first, second), "the other server publishes both keys")
        assert await signed_by(other.identity) == await signed_by(server.identity) == first
        refused = await owner.refused("POST", "/identity/rotate", status=409, json={})
        assert "signs from" in refused["message"]
        rotated = await owner.value("POST", "/identity/rotate", json={"now": True})
        assert [(one["id"], one["state"]) for one in rotated["keys"]] == [(first, "published"), (second, "signing")]

        async def other_signs_with(key_id: str) -> bool:
            return await signed_by(other.identity) == key_id

        await until(lambda: other_signs_with(second), "the other server signs with the second key")
        assert await other_publishes(first, second), "tokens of the first key are still valid"
        await server.database.execute("UPDATE signing_keys SET signs_from = signs_from - interval '25 hours'")
        rotated = await owner.value("POST", "/identity/rotate", json={})
        assert first not in [one["id"] for one in rotated["keys"]]
        rotated = await owner.value("POST", "/identity/rotate", json={"compromised": True})
        (last,) = rotated["keys"]
        assert last["state"] == "signing"
        await until(lambda: other_publishes(last["id"]), "the other server publishes the last key only")
        entries = (await owner.value("GET", "/audit", params={"action": "identity.rotate"}))["items"]
        assert [one["user"] for one in entries] == ["olga"] * 4
        assert entries[0]["target"] == last["id"]
        assert second in entries[0]["details"]["removed"]


@pytest.mark.asyncio(loop_scope="session")
async def test_the_identity_is_shown_to_owners_only(server: Server) -> None:
    developer = await Person.of(server, Role.DEVELOPER)
    await developer.refused("GET", "/identity", status=403)
    await developer.refused("POST", "/identity/rotate", status=403, json={"now": True})
    owner = await Person.of(server, Role.OWNER)
    found = await owner.value("GET", "/identity")
    assert (found["issuer"], found["jwks_url"]) == (server.url, server.url + JWKS)
    assert found["subject"] == f"organization:{found['organization_id']}"
    assert "address of this machine" in found["warning"]
    assert sorted(found["providers"]) == ["aws", "azure", "google", "vault"]
    for values in found["providers"].values():
        assert server.url in values["commands"]
        assert found["subject"] in values["commands"]
    assert found["providers"]["aws"]["audience"] == "sts.amazonaws.com"
    await owner.refused("POST", "/identity/rotate", status=400, json={"now": "yes"})
    await owner.refused("POST", "/identity/rotate", status=400, json={"later": True})


async def test_given_keys_are_published_and_not_rotated(emptied_url: str) -> None:
    other = SigningKey.made(signs_from=-2.0)
    async with serving(emptied_url, issuer=ISSUER, signing_keys=[key(), other]) as server:
        owner = await Person.of(server, Role.OWNER)
        found = await owner.value("GET", "/identity")
        assert [(one["id"], one["state"]) for one in found["keys"]] == [(key().id, "signing"), (other.id, "published")]
        assert (found["warning"], found["keys"][0]["signs_from"]) == (None, None)
        assert await signed_by(server.identity) == key().id
        refused = await owner.refused("POST", "/identity/rotate", status=409, json={"now": True})
        assert "OIDC_PRIVATE_KEY" in refused["message"]
        assert await SigningKeyStore(server.database).all() == []


async def test_a_server_without_an_address_has_no_issuer(emptied_url: str) -> None:
    async with serving(emptied_url) as server:
        server.identity._issuer = None
        for path in (DISCOVERY, JWKS):
            assert "OIDC_ISSUER" in (await document(server, path, status=503))["message"]
        owner = await Person.of(server, Role.OWNER)
        assert "OIDC_ISSUER" in (await owner.refused("GET", "/identity", status=503))["message"]
        with pytest.raises(NoIssuer, match="Set OIDC_ISSUER"):
            await token_of(server.identity)


async def test_the_documents_need_no_database(emptied_url: str) -> None:
    async with serving(emptied_url) as server:
        await server.identity.prepare()
        await server.database.__aexit__()
        assert (await document(server, DISCOVERY))["issuer"] == server.url
        assert len(await published(server)) == 1


async def test_a_damaged_key_stops_neither_the_server_nor_the_other_keys(emptied_url: str) -> None:
    async with Database(emptied_url) as database:
        store = SigningKeyStore(database)
        await (await Identity.open(store, KEY_RING, ISSUER)).prepare()
        await database.execute("UPDATE signing_keys SET key = 'v1.00000000.' || repeat('x', 50)")
        identity = await Identity.open(store, KEY_RING, ISSUER)
        assert identity.jwks() == {"keys": []}
        with pytest.raises(NoIssuer, match="can't be decrypted"):
            await token_of(identity)
        await identity.rotate(COMMAND_LINE, now=True)
        assert await signed_by(identity) == identity.key_states()[0].id


@pytest.mark.asyncio(loop_scope="session")
async def test_the_documents_are_on_the_host_of_the_server_only(crew: Crew) -> None:
    slug = crew.deployment.slug
    assert (await crew.server.http.get(f"{crew.base_url}{JWKS}")).status_code == 404
    async with serving(crew.server.database.url, root=slug, domain="crews.example.com") as server:
        assert "keys" in await document(server, JWKS), "a crew at the root does not hide them"
        host = {"Host": f"{slug}.crews.example.com"}
        for path in (DISCOVERY, JWKS):
            assert (await server.http.get(server.url + path, headers=host)).status_code == 404
        for method in ("POST", "PUT", "DELETE"):
            assert (await server.http.request(method, server.url + JWKS)).status_code == 405


@pytest.mark.asyncio(loop_scope="session")
async def test_one_address_can_not_ask_without_end(server: Server) -> None:
    async with serving(server.database.url, trusted_proxies=["127.0.0.1"]) as behind, httpx.AsyncClient() as client:

        async def ask(address: str) -> httpx.Response:
            return await client.get(behind.url + JWKS, headers={"X-Forwarded-For": address})

        allowed = 0
        while (answer := await ask("192.0.2.1")).status_code == 200 and allowed < 5000:
            allowed += 1
        assert (answer.status_code, allowed >= 200) == (429, True)
        assert int(answer.headers["retry-after"]) >= 1
        assert (await ask("192.0.2.2")).status_code == 200
