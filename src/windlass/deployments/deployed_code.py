"""The code of deployed versions on this machine: the files and the environment of each, and their removal."""

from __future__ import annotations

import asyncio
import sys
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from windlass import log
from windlass.errors import ProjectError
from windlass.lifecycle.worker_config import Code
from windlass.runner.run_spec import Boundary
from windlass_child.masking.server_paths import ServerPaths

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from windlass.deployments.checkouts import Checkouts
    from windlass.deployments.resolution import Resolver
    from windlass.projects import Options
    from windlass.projects.environments import Environments
    from windlass.store.builds import BuildStore
    from windlass.store.claiming import Claimed
    from windlass.store.crew_users import CrewUsers

SECONDS = 1800.0
"""The longest time that a run waits for its environment."""
BETWEEN_REMOVALS = 3600.0
LOGS_KEPT = timedelta(days=90)

logger = log.logger(__name__)


class DeployedCode:
    """Provides the code of deployed versions for runs, on the machine of this worker."""

    def __init__(
        self, checkouts: Checkouts, environments: Environments, resolver: Resolver, crew_users: CrewUsers
    ) -> None:
        self._checkouts = checkouts
        self._environments = environments
        self._resolver = resolver
        self._crew_users = crew_users

    async def __call__(self, claimed: Claimed, options: Options) -> Code:
        """Raises WindlassError when the files can't be fetched, or when the environment can't be made here."""
        try:
            async with asyncio.timeout(SECONDS):
                root = await self._checkouts.get(claimed.source["snapshot"])
                with _readable(root):
                    boundary = Boundary(await self._crew_users.of(claimed.deployment_id))
                    return Code(root, await self._interpreter(claimed, options, root), boundary)
        except TimeoutError:
            raise ProjectError(
                f"the environment of the project was not made within {SECONDS / 60:g} minutes on this machine.",
                "Check the package index, and the log of the worker.",
            ) from None

    async def _interpreter(self, claimed: Claimed, options: Options, root: Path) -> Path:
        key = claimed.source["environment"]
        if key is None:
            return self._environments.own(options.python)
        if found := self._environments.interpreter(key):
            return found
        logger.event("environment.making", deployment=claimed.slug, environment=key)
        variables = (await self._resolver.resolve(claimed.deployment_id, claimed.variables)).values
        minor, asked, framework = key.rpartition("-py")[2], options.python or "", claimed.source["preload"]
        prepared = await self._environments.prepare(
            root,
            claimed.source["snapshot"],
            asked if asked.startswith(f"{minor}.") else minor,
            framework,
            variables,
            ignore,
            deployment=str(claimed.deployment_id),
        )
        if prepared.key != key:
            raise ProjectError(
                "the environment of this version can't be made any more: the package indexes of the deployment have "
                "changed since its build, or this machine has another architecture.",
                "Deploy the project again.",
            )
        return prepared.interpreter


@contextmanager
def _readable(root: Path) -> Iterator[None]:
    """Takes the paths of this machine out of errors, which those who started the kickoff read."""
    paths = ServerPaths(str(root), sys.executable)
    try:
        yield
    except ProjectError as error:
        raise ProjectError(paths.out_of(error.message), paths.out_of(error.hint)) from error


def ignore(_: str) -> None:
    pass


class Removal:
    """Removes files and environments of deployed versions that this machine has not used for a while, and old logs."""

    def __init__(self, store: BuildStore, checkouts: Checkouts, environments: Environments) -> None:
        self._store = store
        self._checkouts = checkouts
        self._environments = environments

    async def remove_unused(self) -> None:
        """Waits, and then removes what no current version of a deployment has, and old logs of builds."""
        await asyncio.sleep(BETWEEN_REMOVALS)
        await self.remove_now()

    async def remove_now(self) -> None:
        while await self._store.remove_old_lines(LOGS_KEPT):
            pass
        in_use = await self._store.in_use()
        await self._checkouts.remove_unused(in_use.snapshots)
        for key in await self._environments.remove_unused(in_use.environments):
            logger.event("environment.removed", environment=key)
