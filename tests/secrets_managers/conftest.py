from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from secrets_managers.aws_server import aws_server
from secrets_managers.azure_server import azure_server
from secrets_managers.google_server import google_server
from secrets_managers.network_watch import other_hosts
from secrets_managers.token_issuer import ORGANIZATION, subject_of, token_issuer
from secrets_managers.vault_server import vault_server
from windlass.secrets.provider import WORKLOAD_IDENTITY
from windlass.secrets.providers import provider

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from secrets_managers.managers_of_tests import ManagerOfTests
    from secrets_managers.token_issuer import TokenIssuer
    from windlass.secrets.provider import Manager, Subject
    from windlass.secrets.providers.endpoints import Endpoints

Connect = Callable[..., "Manager"]

SERVERS: dict[str, Callable[[], AbstractContextManager[ManagerOfTests]]] = {
    "aws": aws_server,
    "google": google_server,
    "azure": azure_server,
    "vault": vault_server,
}


@pytest.fixture(scope="session")
def issuer() -> Iterator[TokenIssuer]:
    with token_issuer() as issuer:
        yield issuer


@pytest.fixture(scope="session")
def server_of(issuer: TokenIssuer) -> Iterator[Callable[[str], ManagerOfTests]]:
    """Starts the server of a provider when it is needed first. It trusts the issuer, for one organization."""
    started: dict[str, ManagerOfTests] = {}
    with ExitStack() as stack:

        def server_of(name: str) -> ManagerOfTests:
            if name not in started:
                started[name] = stack.enter_context(SERVERS[name]())
                started[name].trust(issuer.url, subject_of(ORGANIZATION))
            return started[name]

        yield server_of


@pytest.fixture
def connect(issuer: TokenIssuer, server_of: Callable[[str], ManagerOfTests]) -> Iterator[Connect]:
    """Connects to the server of a provider, with tokens of the issuer."""
    made: list[Manager] = []

    def connect(
        name: str,
        method: str = WORKLOAD_IDENTITY,
        subject: Subject | None = None,
        endpoints: Endpoints | None = None,
        **change: Any,
    ) -> Manager:
        server = server_of(name)
        model = provider(name).methods[method].model_validate({**server.configuration(method), **change})
        manager = provider(name, endpoints or server.endpoints).connect(model, subject or issuer.token)
        made.append(manager)
        return manager

    yield connect
    for one in made:
        one.close()


@pytest.fixture(autouse=True)
def _nothing_but_loopback(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fails a test in which a client connects to another machine, also in a thread of its own."""
    with other_hosts(monkeypatch) as found:
        yield
    assert not found, f"connections to {sorted(found)}"
