"""The projects that ask the witness, on the database of a cluster."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from bench.reuse import set_reuse

from projects_for_tests.making import PROJECTS
from windlass.access.tokens import Tokens
from windlass.aio import serving
from windlass.deployments.registration import Registration
from windlass.runner import Runner
from windlass.runner.run_spec import machine_environment
from windlass.secrets.key_file import load_key_ring
from windlass.secrets.secret import Secret
from windlass.store.database import Database
from windlass.store.deployments import DeploymentStore
from windlass.store.migrate import migrate
from windlass.store.tokens import TokenStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


async def registered(
    kinds: Iterable[str], place: Path, url: str, key: str, environment: Mapping[str, str], reuse: int
) -> dict[str, str]:
    """Copies them into `place` and registers them, under the master key that all nodes will have. By kind, a token."""
    given = machine_environment(os.environ) | dict(environment)  # noqa: TID251 - as windlass.config does it
    found: dict[str, str] = {}
    async with Database(url) as database, serving(Runner(place / "registering", given)) as runner:
        await migrate(database)
        tokens = await Tokens.open(TokenStore(database), load_key_ring(place / "none", Secret(key)))
        for kind in kinds:
            set_reuse(project := copied(kind, place), reuse)
            registration = Registration.of(project)
            deployment = await registration.inspect(DeploymentStore(database), runner, given)
            found[kind] = (await tokens.show(deployment)).organization.reveal()
    return found


def copied(kind: str, place: Path) -> Path:
    shutil.copytree(PROJECTS / "witnessed" / kind, place / kind, ignore=shutil.ignore_patterns("__pycache__"))
    return place / kind
