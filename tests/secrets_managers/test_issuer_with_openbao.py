"""OpenBao trusts the server's own issuer: it fetches the documents over HTTP, and judges the tokens."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from api.serving import KEY_RING, serving
from secrets_managers.vault_server import VaultServer
from windlass.deployments.identity import Identity
from windlass.store.audit import COMMAND_LINE
from windlass.store.signing_keys import SigningKeyStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from secrets_managers.managers_of_tests import ManagerOfTests

pytestmark = pytest.mark.xdist_group("secrets_managers")

MOUNT, AUDIENCE = "jwt-of-the-server", "https://vault.example.com"


class Bao:
    """An auth method of OpenBao that trusts one issuer and one subject."""

    def __init__(self, server: VaultServer) -> None:
        self.server = server
        server.write(f"sys/auth/{MOUNT}", type="jwt")

    def trust(self, identity: Identity) -> None:
        issuer = identity.issuer
        self.server.write(f"auth/{MOUNT}/config", oidc_discovery_url=issuer, bound_issuer=issuer)
        role: dict[str, Any] = {"bound_audiences": [AUDIENCE], "bound_subject": identity.subject_name}
        claims = {"bound_claims": {"organization_id": identity.organization_id}}
        self.server.write(f"auth/{MOUNT}/role/windlass", role_type="jwt", user_claim="sub", **role, **claims)

    def accepts(self, token: str) -> bool:
        try:
            self.server.write(f"auth/{MOUNT}/login", role="windlass", jwt=token)
        except httpx.HTTPStatusError as error:
            if error.response.status_code != 400:
                raise
            return False
        return True


async def test_openbao_accepts_the_tokens_of_the_server_and_no_others(
    server_of: Callable[[str], ManagerOfTests], database_url: str
) -> None:
    vault = server_of("vault")
    assert isinstance(vault, VaultServer)
    bao = Bao(vault)

    async def accepts(identity: Identity, audience: str = AUDIENCE) -> bool:
        token = await asyncio.to_thread(identity.subject, audience)
        return await asyncio.to_thread(bao.accepts, token)

    async with serving(database_url) as server:
        own, store = server.identity, SigningKeyStore(server.database)
        await asyncio.to_thread(bao.trust, own)
        assert await accepts(own), "its first token, whose key was made a moment ago"
        assert not await accepts(own, "https://another.example.com")
        other_issuer = await Identity.open(store, KEY_RING, "https://another.example.com")
        assert not await accepts(other_issuer), "the same key, another issuer"
        stranger = Identity(store, KEY_RING, "00000000-0000-4000-8000-000000000000", fixed=False)
        stranger.issue_at(own.issuer or "")
        await stranger.prepare()
        assert not await accepts(stranger), "another organization"
        before = await asyncio.to_thread(own.subject, AUDIENCE)
        await own.rotate(COMMAND_LINE, now=True)
        assert await accepts(own), "OpenBao fetches the new key"
        assert await asyncio.to_thread(bao.accepts, before), "tokens of the old key are valid for their hour"
        await own.rotate(COMMAND_LINE, withdraw=True)
        assert await accepts(own)
        assert not await asyncio.to_thread(bao.accepts, before), "its key was withdrawn"
