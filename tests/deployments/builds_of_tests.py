"""A server that builds and runs deployments of small functions, on a database of the tests."""

from __future__ import annotations

import asyncio
import os
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from deployments.memory_managers import MemoryManagers
from lifecycle.waiting import until
from patience import DEADLINE
from projects_for_tests.making import written
from projects_for_tests.wheels import index
from store.whole import whole
from windlass.aio import serving
from windlass.config import environment
from windlass.deployments.building import Building
from windlass.deployments.builds import Builds
from windlass.deployments.checkouts import Checkouts
from windlass.deployments.deployed_code import DeployedCode
from windlass.deployments.environment import CrewEnvironments
from windlass.deployments.resolution import Resolver
from windlass.deployments.sources import Sources
from windlass.deployments.variables import seal_value
from windlass.kickoffs.events import to_json
from windlass.kickoffs.ids import new_id
from windlass.lifecycle.background_tasks import SideJobWorker
from windlass.lifecycle.statuses import Statuses
from windlass.lifecycle.worker import Worker
from windlass.lifecycle.worker_config import WorkerConfig
from windlass.projects.bounded_reader import BoundedReader
from windlass.projects.environments import Environments
from windlass.projects.snapshot import pack
from windlass.projects.uv import Builder, uv_program
from windlass.runner import Runner, RunnerConfig
from windlass.runner.run_spec import machine_environment
from windlass.secrets.key_ring import KeyRing, MasterKey
from windlass.store.accepting import NewKickoff
from windlass.store.builds import JOB, Build, BuildStore
from windlass.store.credentials import CredentialStore
from windlass.store.crew_users import CrewUsers
from windlass.store.database import Database
from windlass.store.deployments import DeploymentStore
from windlass.store.kickoffs import KickoffStore
from windlass.store.listener import Listener
from windlass.store.side_jobs import SideJob, SideJobs
from windlass.store.sources import SourceStore
from windlass_child.process.places import WRITE

if TYPE_CHECKING:
    from contextlib import AsyncExitStack
    from pathlib import Path
    from uuid import UUID

    from windlass.store.deployments import Version
    from windlass.store.reading import KickoffStatus

KEYS = KeyRing([MasterKey(bytes(32))])
PROJECT = '[project]\nname = "tea"\nversion = "1"\ndependencies = []\n[tool.windlass]\nentrypoint = "work:run"\n'
CODE = 'def run(topic: str) -> str:\n    """Does the work."""\n    return f"first: {topic}"\n'


class Server:
    """One machine with a database, a runner and a folder for code."""

    def __init__(self, url: str, folder: Path, stack: AsyncExitStack, runner: Runner) -> None:
        self.folder = folder
        self.runner = runner
        self._stack = stack
        self.database = Database(url)
        self.listener = Listener(url)
        self.store = BuildStore(self.database)
        self.deployments = DeploymentStore(self.database)
        self.builds = Builds(self.store, self.listener)
        self.kickoffs = KickoffStore(self.database)
        self.statuses = Statuses(self.kickoffs, self.listener)
        self.sources = SourceStore(self.database)
        self.wheels = folder / "wheels"
        self.reader = BoundedReader()
        self.managers = MemoryManagers()
        self._resolve_with(Resolver(KEYS, CredentialStore(self.database), self.managers.connect))
        self.deployment = new_id()
        self.use(folder / "machine")

    async def resolve_with(self, resolver: Resolver) -> None:
        """From now on, variables from secret managers are read by this resolver."""
        self._resolve_with(await self._stack.enter_async_context(serving(resolver)))

    def _resolve_with(self, resolver: Resolver) -> None:
        self.resolver = resolver
        self.crews = CrewEnvironments([], resolver)

    async def waits_for(self, kickoff: UUID, code: str) -> None:
        async def waits() -> bool:
            found = await self.statuses.waiting(kickoff, asker=None)
            return found is not None and found.code == code

        await until(waits)

    def use(self, machine: Path) -> None:
        """From now on, code is on another machine, which has none yet."""
        self.checkouts = Checkouts(self.sources, machine / "sources")
        self.environments = Environments(machine / "environments", self._builder, self.reader)

    def _builder(self) -> nullcontext[Builder]:
        variables = {**environment(), **index(self.wheels), "UV_CACHE_DIR": str(self.folder / "cache")}
        return nullcontext(Builder(uv_program(), variables, lambda _: True, downloads=False))

    @classmethod
    async def start(cls, url: str, folder: Path, stack: AsyncExitStack) -> Server:
        machine = machine_environment(os.environ)  # noqa: TID251 - as windlass.config does
        runner = await stack.enter_async_context(
            serving(Runner(folder / "runs", machine, RunnerConfig(files=((str(folder), WRITE),))))
        )
        server = cls(url, folder, stack, runner)
        await stack.enter_async_context(server.database)
        await stack.enter_async_context(serving(server.listener))
        await stack.enter_async_context(serving(server.resolver))
        await asyncio.wait_for(server.listener.listening.wait(), DEADLINE)
        server.deployment = await server.add("tea")
        return server

    async def add(self, slug: str) -> UUID:
        deployment = new_id()
        values = {"id": deployment, "slug": slug}
        await self.database.execute(
            "INSERT INTO deployments (id, slug, deployed) VALUES (%(id)s, %(slug)s, true)", values
        )
        return deployment

    def building(self, **more: Any) -> Building:
        return Building(
            self.store,
            sources=Sources(self.sources, self.folder / "uploads", self._builder, allow_private=True),
            checkouts=self.checkouts,
            environments=self.environments,
            reader=self.reader,
            runner=self.runner,
            crew_environments=self.crews,
            resolver=self.resolver,
            crew_users=CrewUsers(self.database, ()),
            **more,
        )

    async def side_jobs(self, building: Building | None = None) -> SideJobWorker:
        jobs = [SideJob(JOB, (building or self.building()).run)]
        worker = SideJobWorker(SideJobs(self.database.url, jobs, silent=1.0, look_every=0.2), look_every=0.1)
        return await self._stack.enter_async_context(serving(worker))

    async def queued(self, files: dict[str, str], **origin: str) -> UUID:
        """Starts a build of these files. `origin` are further members of its origin."""
        number = len(list(self.folder.glob("project-*")))
        project = written(self.folder / f"project-{number}", {"pyproject.toml": PROJECT, **files})
        snapshot = await asyncio.to_thread(pack, project, self.folder / f"{number}.zip")
        await self.sources.add(snapshot)
        build = await self.builds.start(self.deployment, {"type": "folder", **origin}, snapshot.digest, None)
        return build.id

    async def build(self, files: dict[str, str] | None = None, code: str = CODE, **more: Any) -> Build:
        """Builds without side jobs, and returns the ended build."""
        build = await self.queued({"work.py": code, **(files or {})})
        await self.building(**more).run(str(build))
        found = await self.builds.get(build)
        assert found is not None
        assert found.has_ended
        return found

    async def ended(self, build: UUID) -> Build:
        after = 0
        async with asyncio.timeout(DEADLINE):
            while True:
                page = await self.builds.log(build, after=after, wait=1)
                assert page is not None
                if page.build.has_ended and not page.lines:
                    return page.build
                after = page.next_after

    async def log(self, build: Build) -> list[str]:
        return [line.message for line in await self.store.log(build.id, after=0, limit=20_000)]

    async def current(self, slug: str = "tea") -> Version | None:
        found = await self.deployments.get(slug)
        return found.version if found else None

    async def set_variable(self, name: str, value: str, *, secret: bool = True) -> None:
        sealed = seal_value(KEYS, self.deployment, name, value)
        await self.database.execute(
            "INSERT INTO variables VALUES (%(id)s, %(name)s, %(value)s, %(secret)s) "
            "ON CONFLICT (deployment_id, name) DO UPDATE SET value = excluded.value",
            {"id": self.deployment, "name": name, "value": sealed, "secret": secret},
        )

    async def add_credential(self, name: str, method: str = "workload_identity", *, default: bool = False) -> UUID:
        credential = new_id()
        await self.database.execute(
            "INSERT INTO credentials (id, name, provider, method, configuration, is_default) "
            "VALUES (%(id)s, %(name)s, 'vault', %(method)s, 'sealed', %(default)s)",
            {"id": credential, "name": name, "method": method, "default": default},
        )
        return credential

    async def take_from(self, credential: UUID | str, name: str, secret_name: str) -> None:
        """Sets a variable whose value comes from a secret manager, with a credential or the default one of a
        provider.
        """
        values = {"id": self.deployment, "name": name, "secret_name": secret_name}
        values |= (
            {"provider": credential, "credential": None}
            if isinstance(credential, str)
            else {"provider": None, "credential": credential}
        )
        await self.database.execute(
            "INSERT INTO variables (deployment_id, name, secret, provider, credential_id, secret_name) "
            "VALUES (%(id)s, %(name)s, true, %(provider)s, %(credential)s, %(secret_name)s)",
            values,
        )

    async def worker(self) -> Worker:
        deployed = DeployedCode(self.checkouts, self.environments, self.resolver, CrewUsers(self.database, ()))
        config = WorkerConfig(slots=4, lease=15.0, renewal=3.75, max_losses=3, deployed=deployed)
        worker = Worker(self.kickoffs, self.listener, self.runner, self.crews, KEYS, config)
        return await self._stack.enter_async_context(serving(worker))

    async def kickoff(self, version: Version | None = None, **inputs: Any) -> UUID:
        version = version or await self.current()
        assert version is not None
        new = NewKickoff(new_id(), self.deployment, version.id, None, to_json(inputs))
        await self.kickoffs.accept([new])
        return new.id

    async def result(self, kickoff: UUID) -> KickoffStatus:
        found = await self.statuses.get_ended(kickoff, DEADLINE)
        assert found is not None
        assert found.state.ended
        return await whole(self.kickoffs, kickoff)
