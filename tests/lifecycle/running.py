"""Workers that run a function which does what it is asked to, on a database of the tests."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

import psutil

from deployments.memory_managers import MemoryManagers
from patience import DEADLINE
from projects_for_tests.making import function_project
from store.whole import events_of, whole
from windlass.aio import serving
from windlass.deployments.registration import Registration
from windlass.deployments.resolution import Resolver
from windlass.errors import DatabaseUnavailable
from windlass.kickoffs.events import to_json
from windlass.kickoffs.ids import new_id
from windlass.lifecycle.statuses import Statuses
from windlass.lifecycle.worker import Worker
from windlass.lifecycle.worker_config import CrewEnvironment, WorkerConfig
from windlass.runner import Runner, RunnerConfig
from windlass.runner.run_spec import machine_environment
from windlass.secrets.key_ring import KeyRing, MasterKey
from windlass.store.accepting import NewKickoff
from windlass.store.credentials import CredentialStore
from windlass.store.database import Database
from windlass.store.deployments import DeploymentStore
from windlass.store.kickoffs import KickoffStore
from windlass.store.listener import Listener
from windlass_child.process.places import WRITE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AsyncExitStack
    from pathlib import Path
    from uuid import UUID

    from windlass.lifecycle.worker_config import Environment, Observer
    from windlass.store.claiming import Claimed
    from windlass.store.database import Row
    from windlass.store.deployments import Version
    from windlass.store.reading import KickoffStatus

KEYS = KeyRing([MasterKey(bytes(32))])
RESOLVER = Resolver(KEYS, CredentialStore(Database("postgresql://127.0.0.1:1/none")), MemoryManagers().connect)
"""Resolves variables with direct values only: its database is not open."""
CODE = '''
import os, pathlib, signal, time


def run(do="echo", **inputs):
    """Does what it is asked to do."""
    return globals()["do_" + do](inputs)


def do_echo(inputs):
    return inputs


def do_environment(inputs):
    return dict(os.environ)


def do_fail(inputs):
    raise ValueError("it could not be done")


def do_exit(inputs):
    os._exit(3)


def do_kill(inputs):
    os.kill(os.getpid(), signal.SIGKILL)


def do_large(inputs):
    return "x" * inputs["size"]


def do_print(inputs):
    for number in range(inputs["lines"]):
        print("line", number)
    return "printed"


def do_hold(inputs):
    """Until it is let go. Each line of its file is a process that came here."""
    place = pathlib.Path(inputs["place"])
    with place.joinpath("held").open("a") as held:
        held.write(f"{os.getpid()}\\n")
    while not place.joinpath("let go").exists():
        time.sleep(0.005)
        if inputs.get("talk"):
            print("still here")
    return f"held in {os.getpid()}"


def inbox():
    """The messages of the worker, which a crew does not see."""
    import gc

    return next(one for one in gc.get_objects() if type(one).__name__ == "Inbox")


def asked(box, **fields):
    from windlass_child.protocol.messages import Asked

    journal = box.journal
    journal._last += 1
    given = {"number": journal._last, "key": "question", "question": "Is it good?", "draft": "a draft", "position": 0,
             "method": None, "choices": [], "record": "{}", "waits": False, **fields}
    box._channel.send(Asked(**given))


def do_ask(inputs):
    """Asks a person, and goes on in the next attempt."""
    box = inbox()
    for number in range(inputs.get("times", 1)):
        if box.journal.take(f"question {number}") is None:
            pathlib.Path("asked.txt").write_text(f"{number}")
            asked(box, key=f"question {number}", **inputs.get("fields", {}))
            os._exit(0)
    return f"answered; the file has {pathlib.Path('asked.txt').read_text()}"


def do_ask_alive(inputs):
    """Asks a person, and waits."""
    import threading

    box, found, there = inbox(), [], threading.Event()
    put = type(box).put

    def taking(self, message):
        if type(message).__name__ == "Answered":
            found.append(message)
            there.set()
        put(self, message)

    type(box).put = taking
    asked(box, waits=True)
    there.wait()
    return f"{found[0].approved} {found[0].feedback}"
'''


class Place:
    """A folder in which runs are held until they are let go."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def inputs(self, **more: Any) -> dict[str, Any]:
        return {"do": "hold", "place": str(self.folder), **more}

    def pids(self) -> list[int]:
        held = self.folder / "held"
        return [int(line) for line in held.read_text().splitlines()] if held.exists() else []

    async def until_held(self, count: int = 1) -> list[int]:
        async with asyncio.timeout(DEADLINE):
            while len(self.pids()) < count:  # noqa: ASYNC110 - another process writes the file
                await asyncio.sleep(0.005)
        return self.pids()

    def let_go(self) -> None:
        self.folder.joinpath("let go").touch()


def kill_zygote_of(child: int) -> None:
    """Kills the zygote of a run's process: the run is lost."""
    zygote = psutil.Process(child).parent()
    assert zygote is not None
    zygote.kill()


class World:
    """One crew on one database; workers can be added."""

    def __init__(self, url: str, folder: Path, stack: AsyncExitStack) -> None:
        self.url = url
        self.folder = folder
        self.project = function_project(folder / "project", CODE)
        self._stack = stack
        self.database = Database(url)
        self.listener = Listener(url)
        machine = machine_environment(os.environ)  # noqa: TID251 - as windlass.config does
        self.runner = Runner(folder / "runs", machine, RunnerConfig(files=((str(folder), WRITE),)))
        self.store = KickoffStore(self.database)
        self.statuses = Statuses(self.store, self.listener)

    async def __aenter__(self) -> Self:
        """Closes all again if this fails: a pool that stays open keeps the loop of the tests from its end."""
        try:
            return await self._opened()
        except BaseException:
            await self._stack.aclose()
            raise

    async def _opened(self) -> Self:
        await self._stack.enter_async_context(self.database)
        await self._stack.enter_async_context(serving(self.listener))
        await self._stack.enter_async_context(serving(self.runner))
        self.registration = Registration.of(self.project)
        store = DeploymentStore(self.database)
        self.deployment = await self.registration.inspect(store, self.runner, {})
        await asyncio.wait_for(self.listener.listening.wait(), DEADLINE)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @property
    def version(self) -> Version:
        assert self.deployment.version is not None
        return self.deployment.version

    async def worker(
        self,
        environment: Environment | None = None,
        database: Database | None = None,
        observers: Sequence[Observer] = (),
        **settings: Any,
    ) -> Worker:
        made = self.idle_worker(environment, database, observers, **settings)
        return await self._stack.enter_async_context(serving(made))

    def idle_worker(
        self,
        environment: Environment | None = None,
        database: Database | None = None,
        observers: Sequence[Observer] = (),
        **settings: Any,
    ) -> Worker:
        store = KickoffStore(database or self.database)
        given = {"slots": 4, "lease": 15.0, "renewal": 3.75, "max_losses": 3, **settings}
        config, environment = WorkerConfig(**given), environment or no_environment
        return Worker(store, self.listener, self.runner, environment, KEYS, config, observers=observers)

    def new(self, inputs: Mapping[str, Any], **fields: Any) -> NewKickoff:
        return NewKickoff(new_id(), self.deployment.id, self.version.id, None, to_json(inputs), **fields)

    async def accept(self, **inputs: Any) -> UUID:
        new = self.new(inputs)
        await self.store.accept([new])
        return new.id

    async def ended(self, kickoff: UUID) -> KickoffStatus:
        """Asks again when the answer is that the database is away."""
        found = None
        async with asyncio.timeout(DEADLINE):
            while found is None:
                with suppress(DatabaseUnavailable):
                    found = await self.statuses.get_ended(kickoff, DEADLINE)
        assert found.state.ended, found
        return await whole(self.store, kickoff)

    async def status(self, kickoff: UUID) -> KickoffStatus:
        return await whole(self.store, kickoff)

    async def events(self, kickoff: UUID) -> list[Row]:
        return await events_of(self.store, kickoff)

    async def lines(self, kickoff: UUID) -> list[str]:
        return [row["payload"]["line"] for row in await self.events(kickoff) if row["type"].startswith("output_")]

    async def losses(self, kickoff: UUID) -> int:
        (row,) = await self.database.rows("SELECT losses FROM kickoffs WHERE id = %(id)s", {"id": kickoff})
        return int(row["losses"])


async def take_away(world: World) -> None:
    """As another worker's claim would, without another worker."""
    await world.database.execute(
        "UPDATE kickoffs SET attempt = attempt + 1, worker_id = %(other)s, lease_until = now() + interval '1 hour'",
        {"other": new_id()},
    )


async def no_environment(_: Claimed) -> CrewEnvironment:
    return CrewEnvironment({})


def zygotes() -> list[psutil.Process]:
    """Those of this process, the newest first: other tests in it may keep some of their own."""
    found = [child for child in psutil.Process().children() if "windlass_child" in " ".join(child.cmdline())]
    return sorted(found, key=lambda child: child.create_time(), reverse=True)
