from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from secrets_managers.aws_server import aws_server
from secrets_managers.azure_server import azure_server
from secrets_managers.google_server import google_server
from secrets_managers.token_issuer import ORGANIZATION, subject_of, token_issuer
from secrets_managers.vault_server import vault_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from secrets_managers.managers_of_tests import ManagerOfTests
    from secrets_managers.token_issuer import TokenIssuer

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
