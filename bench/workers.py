"""What more workers on one database bring: runs that only wait, and claims of several processes at once."""

from __future__ import annotations

import asyncio
import multiprocessing
import subprocess
import time
from contextlib import AsyncExitStack, ExitStack, contextmanager
from typing import TYPE_CHECKING

from psycopg.sql import SQL

from bench.backlogs import BATCH, kickoff_of, queue
from bench.figures import Figure, spread
from bench.served import PROJECTS, WINDLASS
from bench.workplace import workplace
from windlass.kickoffs.ids import new_id
from windlass.store.database import Database
from windlass.store.kickoffs import KickoffStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from threading import Barrier

    from bench.stage import Stage
    from bench.workplace import Workplace

SLOTS, SECONDS = 4, 2.0
CLAIMING = (1, 4, 16)
KEY = "YmVuY2ggYmVuY2ggYmVuY2ggYmVuY2ggYmVuY2ggYmU="
"""A master key, as each worker of one database needs the same."""
NO_WORKER = SQL("SELECT count(*) = 0 AS holds FROM workers WHERE alive_until > now()")
ENOUGH_WORKERS = SQL("SELECT count(*) = %(count)s AS holds FROM workers WHERE slots > 0 AND alive_until > now()")
ALL_ENDED = SQL("SELECT count(*) = 0 AS holds FROM kickoffs WHERE finished_at IS NULL")


def workers(stage: Stage, *, kickoffs: int, rounds: int, claims: int) -> list[Figure]:
    return asyncio.run(_workers(stage, kickoffs, rounds, claims))


async def _workers(stage: Stage, kickoffs: int, rounds: int, claims: int) -> list[Figure]:
    url = stage.environment["BENCH_DATABASE"]
    times: dict[int, list[float]] = {1: [], 2: []}
    async with workplace(url, stage.folder) as place:
        crew = await place.crew(PROJECTS / "short_run", "sleeping")
        for _ in range(rounds):
            for count, took in times.items():
                await until(place, NO_WORKER)
                with running(stage, count):
                    await until(place, ENOUGH_WORKERS, count=count)
                    await place.accept(crew, {"seconds": 0}, SLOTS * count)  # warms the zygotes
                    await until(place, ALL_ENDED)
                    begun = time.monotonic()
                    await place.accept(crew, {"seconds": SECONDS}, kickoffs)
                    await until(place, ALL_ENDED)
                    took.append(kickoffs / (time.monotonic() - begun))
    one, two = times[1], times[2]
    ratio = [both / alone for both, alone in zip(two, one, strict=True)]
    figures = [
        Figure(f"runs that wait {SECONDS:g} s, one worker with {SLOTS} slots, ended a second", spread(one, "", 2)),
        Figure("  two workers", spread(two, "", 2)),
        Figure("  ratio", spread(ratio, "", 2), "at least 1.9"),
    ]
    for count in CLAIMING:
        rate = await claim_rate(url, count, claims)
        figures.append(Figure(f"claims of one kickoff a second, {count} at once", f"{rate:,.0f}"))
    return figures


@contextmanager
def running(stage: Stage, count: int) -> Iterator[None]:
    """Runs so many `windlass worker` processes, as on machines of their own."""
    with ExitStack() as stack:
        for number in range(count):
            own = {"WINDLASS_HOME": str(stage.folder / f"worker-{number}"), "WINDLASS_MASTER_KEY": KEY}
            log = stack.enter_context((stage.folder / f"worker-{number}.log").open("a"))
            command = [*WINDLASS, "worker", "--slots", str(SLOTS)]
            process = subprocess.Popen(command, env=stage.environment | own, stdout=log, stderr=log)
            stack.callback(process.wait, 60)
            stack.callback(process.terminate)
        yield


async def until(place: Workplace, condition: SQL, **values: int) -> None:
    async with asyncio.timeout(300):
        while not ((row := await place.database.row(condition, values)) and row["holds"]):
            await asyncio.sleep(0.02)


async def claim_rate(url: str, processes: int, claims: int) -> float:
    """Returns how many kickoffs a second so many processes claim together, one kickoff with each statement."""
    async with AsyncExitStack() as stack:
        place = await queue(url, f"claims_of_{processes}", stack)
        for _ in range(0, processes * claims, BATCH):
            await place.store.accept([kickoff_of(place.served) for _ in range(BATCH)])
        context = multiprocessing.get_context("spawn")
        ready = context.Barrier(processes + 1)
        claiming = [
            context.Process(target=claim_some, args=(place.database.url, claims, ready)) for _ in range(processes)
        ]
        for process in claiming:
            process.start()
        await asyncio.to_thread(ready.wait)
        begun = time.monotonic()
        await asyncio.gather(*(asyncio.to_thread(process.join) for process in claiming))
        return processes * claims / (time.monotonic() - begun)


def claim_some(url: str, claims: int, ready: Barrier) -> None:
    async def claim() -> None:
        async with Database(url, connections=2) as database:
            store = KickoffStore(database)
            await asyncio.to_thread(ready.wait)
            for _ in range(claims):
                await store.claim(new_id(), 1, 600.0)

    asyncio.run(claim())
