"""A worker with several crews, in this process: the server serves one crew, and fairness is between some."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from windlass.aio import serving
from windlass.deployments.registration import Registration
from windlass.kickoffs.ids import new_id
from windlass.lifecycle.accept import Acceptor
from windlass.lifecycle.worker import Worker
from windlass.lifecycle.worker_config import CrewEnvironment, WorkerConfig
from windlass.runner import Runner
from windlass.runner.run_spec import machine_environment
from windlass.secrets.key_ring import KeyRing, MasterKey
from windlass.store.accepting import NewKickoff
from windlass.store.database import Database
from windlass.store.deployments import DeploymentStore
from windlass.store.kickoffs import KickoffStore
from windlass.store.listener import Listener
from windlass.store.migrate import migrate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from windlass.store.claiming import Claimed
    from windlass.store.deployments import Deployment


@dataclass(frozen=True, slots=True)
class Workplace:
    folder: Path
    database: Database
    store: KickoffStore
    runner: Runner
    listener: Listener

    async def crew(self, project: Path, name: str) -> Deployment:
        """The project as a crew of another name."""
        copy = self.folder / name
        shutil.copytree(project, copy, ignore=shutil.ignore_patterns("__pycache__"))
        declared = copy / "pyproject.toml"
        declared.write_text(
            declared.read_text().replace(f'name = "{project.name.replace("_", "-")}"', f'name = "{name}"')
        )
        return await Registration.of(copy).inspect(DeploymentStore(self.database), self.runner, {})

    async def accept(self, crew: Deployment, inputs: dict[str, Any], count: int) -> None:
        version, acceptor = crew.version, Acceptor(self.store)
        assert version is not None
        new = [NewKickoff(new_id(), crew.id, version.id, None, json.dumps(inputs)) for _ in range(count)]
        await asyncio.gather(*map(acceptor.accept, new))

    @asynccontextmanager
    async def working(self, slots: int) -> AsyncIterator[None]:
        worker = Worker(
            self.store,
            self.listener,
            self.runner,
            nothing,
            KeyRing([MasterKey(bytes(32))]),
            WorkerConfig(slots, lease=15.0, renewal=3.75, max_losses=3),
        )
        async with serving(worker):
            yield


async def nothing(_: Claimed) -> CrewEnvironment:
    return CrewEnvironment({})


@asynccontextmanager
async def workplace(url: str, folder: Path) -> AsyncIterator[Workplace]:
    async with Database(url) as database:
        await migrate(database)
        listener, runner = Listener(url), Runner(folder / "runs", machine_environment(os.environ))
        async with serving(listener), serving(runner):
            await listener.listening.wait()
            yield Workplace(folder, database, KickoffStore(database), runner, listener)
