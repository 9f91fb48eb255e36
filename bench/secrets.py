"""What variables from four secret managers on loopback addresses add to a kickoff."""

from __future__ import annotations

import json
import statistics
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from bench.deploys import personal_token, served_deployments, started
from bench.figures import Figure, spread
from bench.served import client_of
from bench.stage import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from bench.deploys import DeployServer

SECRET = "bench-db"
ENDPOINTS = (
    ("aws", "aws.secretsmanager", "aws_secretsmanager"),
    ("aws", "aws.sts", "aws_sts"),
    ("google", "google.secretmanager", "google_secretmanager"),
    ("google", "google.sts", "google_sts"),
    ("azure", "azure.authority", "azure_authority"),
    ("azure", "azure.vault", "azure_vault"),
    ("azure", "azure.ca", "azure_ca"),
)


def secrets(*, starts: int) -> list[Figure]:
    """Starts of a deployment without variables, and of one with a variable of each provider, in turns. All are read
    with workload identities.
    """
    with ExitStack() as stack:
        managers = {name: stack.enter_context(server) for name, server in servers()}
        given = ",".join(f"{name}={getattr(managers[of].endpoints, member)}" for of, name, member in ENDPOINTS)
        server = stack.enter_context(served_deployments({"WINDLASS_SECRET_ENDPOINTS": given}))
        token = personal_token(server)
        for name in ("plain", "with-secrets"):
            server.deploy(name, 0)
        set_variables(server, token, managers)
        plain, with_secrets = started(server, ["plain", "with-secrets"], token, starts)
    added = statistics.median(with_secrets) - statistics.median(plain)
    return [
        Figure("accept to the first statement, no variables, ms", spread(plain, "", 1)),
        Figure("  one variable of each of four secret managers, ms", spread(with_secrets, "", 1)),
        Figure("  difference of the medians, ms", f"{added:.1f}", "under 50"),
    ]


def servers() -> Iterator[tuple[str, AbstractContextManager[Any]]]:
    """Yields the servers of the tests: moto, OpenBao, and those of Google and Azure."""
    sys.path.append(str(ROOT / "tests"))
    from secrets_managers.aws_server import aws_server
    from secrets_managers.azure_server import azure_server
    from secrets_managers.google_server import google_server
    from secrets_managers.vault_server import vault_server

    yield from {
        "aws": aws_server(),
        "google": google_server(),
        "azure": azure_server(),
        "vault": vault_server(),
    }.items()


def set_variables(server: DeployServer, token: str, managers: dict[str, Any]) -> None:
    with client_of(f"{server.url}/api/v1", token) as control:
        identity = control.get("/identity").raise_for_status().json()
        for name, manager in managers.items():
            manager.trust(identity["issuer"], identity["subject"])
            manager.put(SECRET, json.dumps({"user": "app", "password": f"of {name}"}))
            credential = {"name": name, "provider": name, "method": "workload_identity"}
            configuration = manager.configuration("workload_identity")
            control.post("/credentials", json={**credential, "configuration": configuration}).raise_for_status()
            variable = {"source": {"type": "credential", "credential": name}, "secret_name": f"{SECRET}#password"}
            path = f"/deployments/with-secrets/variables/{name.upper()}_PASSWORD"
            control.put(path, json=variable).raise_for_status()
