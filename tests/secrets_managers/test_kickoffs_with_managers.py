"""Kickoffs whose variables come from all four providers: rotation, refusals and outages."""

from __future__ import annotations

import socket
from contextlib import AsyncExitStack, ExitStack
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest

from deployments.builds_of_tests import KEYS, PROJECT, Server
from secrets_managers.token_issuer import OTHER_ORGANIZATION
from store.whole import events_of, loaded
from windlass.deployments import resolution
from windlass.deployments.configurations import seal_configuration
from windlass.deployments.resolution import Resolver
from windlass.deployments.secret_reads import connector
from windlass.kickoffs.ids import new_id
from windlass.kickoffs.states import State
from windlass.secrets.providers import NAMES, provider
from windlass.store.credentials import CredentialStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path
    from uuid import UUID

    from secrets_managers.managers_of_tests import ManagerOfTests
    from secrets_managers.serving import Fault
    from secrets_managers.token_issuer import TokenIssuer
    from windlass.secrets.provider import Provider, Subject
    from windlass.secrets.providers.endpoints import Endpoints
    from windlass.store.reading import KickoffStatus

pytestmark = pytest.mark.xdist_group("secrets_managers")

STATIC = {"aws": "assume_role", "google": "service_account", "azure": "client_secret", "vault": "approle"}
ALL = [*(f"{name}_KICKOFF" for name in NAMES), *(f"{name}_DEPLOY" for name in NAMES)]
SECRET = "db-of-kickoffs"
CODE = """
import hashlib, os

def run() -> dict:
    return {
        name: hashlib.sha256(value.encode()).hexdigest()
        for name, value in os.environ.items() if name.endswith(("_KICKOFF", "_DEPLOY"))
    }
"""


class Bench:
    """A server whose credentials lead to the servers of the tests, with tokens of their issuer."""

    def __init__(self, server: Server, server_of: Callable[[str], ManagerOfTests], issuer: TokenIssuer) -> None:
        self.server = server
        self.server_of = server_of
        self.subject: Subject = issuer.token
        self.endpoints: dict[str, Endpoints] = {}

    def provider(self, name: str) -> Provider:
        return provider(name, self.endpoints.get(name) or self.server_of(name).endpoints)

    def resolver(self) -> Resolver:
        return Resolver(KEYS, CredentialStore(self.server.database), connector(KEYS, self.provider, self.token))

    def token(self, audience: str) -> str:
        return self.subject(audience)

    async def add(self, name: str, method: str = "workload_identity") -> UUID:
        credential = new_id()
        configuration = seal_configuration(KEYS, credential, self.server_of(name).configuration(method))
        await self.server.database.execute(
            "INSERT INTO credentials (id, name, provider, method, configuration) "
            "VALUES (%(id)s, %(name)s, %(provider)s, %(method)s, %(configuration)s)",
            {
                "id": credential,
                "name": f"{name}-{method}",
                "provider": name,
                "method": method,
                "configuration": configuration,
            },
        )
        return credential

    async def take_all(self) -> None:
        """Sets a variable for each provider and each time of reading."""
        for name in NAMES:
            await self.server.take_from(await self.add(name), f"{name}_KICKOFF", f"{SECRET}#password")
            static = await self.add(name, STATIC[name])
            await self.server.take_from(static, f"{name}_DEPLOY", f"{SECRET}#password")

    def rotate(self, password: str) -> None:
        for name in NAMES:
            self.server_of(name).put(SECRET, f'{{"user": "app", "password": "{password}"}}')

    async def deploy(self) -> None:
        build = await self.server.build({"pyproject.toml": PROJECT}, CODE)
        assert build.state == "ready", (build.error, build.hint)

    async def run(self) -> KickoffStatus:
        return await self.server.result(await self.server.kickoff())

    async def seen(self) -> dict[str, str]:
        status = await self.run()
        assert status.state is State.SUCCESS, status.error
        found: dict[str, str] = loaded(status.structured)
        return found

    async def causes(self, status: KickoffStatus) -> set[Any]:
        rows = await events_of(self.server.kickoffs, status.id)
        (resolved,) = [row["payload"] for row in rows if row["type"] == "secrets_resolved"]
        return {one.get("error") for one in resolved["variables"]}


@pytest.fixture
async def bench(
    emptied_url: str, tmp_path: Path, server_of: Callable[[str], ManagerOfTests], issuer: TokenIssuer
) -> AsyncIterator[Bench]:
    async with AsyncExitStack() as stack:
        server = await Server.start(emptied_url, tmp_path, stack)
        bench = Bench(server, server_of, issuer)
        await server.resolve_with(bench.resolver())
        bench.rotate("first-password")
        yield bench


def mark(value: str) -> str:
    return sha256(value.encode()).hexdigest()


async def test_a_rotated_secret_is_used_by_the_next_kickoff_or_after_the_next_deploy(bench: Bench) -> None:
    await bench.take_all()
    await bench.deploy()
    await bench.server.worker()
    first, second = mark("first-password"), mark("second-password")
    assert await bench.seen() == dict.fromkeys(ALL, first)
    bench.rotate("second-password")
    assert await bench.seen() == {name: second if name.endswith("_KICKOFF") else first for name in ALL}
    await bench.deploy()
    assert await bench.seen() == dict.fromkeys(ALL, second)


async def test_tokens_that_a_provider_has_ended_are_replaced_within_the_kickoff(bench: Bench) -> None:
    await bench.take_all()
    await bench.deploy()
    await bench.server.worker()
    await bench.seen()
    for name in NAMES:
        bench.server_of(name).end_tokens()
    assert len(await bench.seen()) == len(ALL)


async def test_tokens_of_another_organization_are_refused(bench: Bench, issuer: TokenIssuer) -> None:
    await bench.deploy()
    for name in NAMES:
        await bench.server.take_from(await bench.add(name), f"{name}_KICKOFF", SECRET)
    bench.subject = lambda audience: issuer.token(audience, organization=OTHER_ORGANIZATION)
    await bench.server.worker()
    status = await bench.run()
    assert (status.reason, status.output) == ("secrets", None)
    for name in NAMES:
        assert f"{name}_KICKOFF can't be read from {name} (credential {name}-workload_identity): " in (
            status.error or ""
        )
    assert await bench.causes(status) <= {"credential_refused", "access_denied"}


async def test_a_missing_permission_is_named_for_each_variable(bench: Bench) -> None:
    await bench.take_all()
    await bench.deploy()
    await bench.server.worker()
    with ExitStack() as stack:
        for name in NAMES:
            stack.enter_context(bench.server_of(name).forbidden())
        status = await bench.run()
        build = await bench.server.build({"pyproject.toml": PROJECT}, CODE)
    assert (status.reason, await bench.causes(status)) == ("secrets", {"access_denied"})
    assert build.state == "failed"
    assert all(f"{name}_DEPLOY" in (build.error or "") for name in NAMES)
    assert len(await bench.seen()) == len(ALL)  # with the values of the deploy before


@pytest.mark.parametrize("fault", ["throttle", "slow", "server_error"])
async def test_an_outage(bench: Bench, fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    await bench.deploy()
    for name in NAMES:
        await bench.server.take_from(await bench.add(name), f"{name}_KICKOFF", SECRET)
    await bench.server.worker()
    with ExitStack() as stack:
        for name in NAMES:
            stack.enter_context(bench.server_of(name).faults.during(fault))
        with monkeypatch.context() as patch:
            patch.setattr(resolution, "DEADLINE", 0.5)
            status = await bench.run()
        assert (status.reason, await bench.causes(status)) == ("secrets", {"provider_unavailable"})
        if fault == "slow":  # the requests that are held get no answer of a provider
            return
        kickoff = await bench.server.kickoff()
        await bench.server.waits_for(kickoff, "secrets")
    assert (await bench.server.result(kickoff)).state is State.SUCCESS


async def test_a_provider_that_is_down(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolution, "DEADLINE", 0.5)
    await bench.deploy()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nothing listens there
        for name in set(NAMES) - {"vault"}:
            bench.endpoints[name] = bench.server_of(name).unreachable(taken.getsockname()[1])
            await bench.server.take_from(await bench.add(name), f"{name}_KICKOFF", SECRET)
        await bench.server.worker()
        status = await bench.run()
    assert (status.reason, await bench.causes(status)) == ("secrets", {"provider_unavailable"})
