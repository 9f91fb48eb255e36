"""Repeats steps in the background, until the database answers or a value is stored, and runs side jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from windlass import log
from windlass.aio import cancelled
from windlass.errors import DatabaseUnavailable, StatementGivenUp, Unstorable
from windlass.store.managing import REMOVAL
from windlass.store.side_jobs import SideJob
from windlass.store.tokens import USER_REMOVAL

if TYPE_CHECKING:
    from windlass.lifecycle.deletion import Retaining
    from windlass.lifecycle.removals import Removals
    from windlass.store.side_jobs import SideJobs
    from windlass.store.statistics import StatisticsStore
    from windlass.store.webhooks import WebhookStore


BETWEEN_ATTEMPTS = 0.5
"""Seconds."""
LARGE = 1 << 20
"""Bytes from which a value may be too large for a statement. A smaller value waits for the database without a limit."""
MOST_GIVEN_UP = 3
"""Statements that are given up before a large value counts as one that can't be stored."""
LESS = "Return a smaller value, or store it elsewhere and return its address."
TRIES_OF_REMOVALS = 12
"""Attempts of a removal whose kickoffs have not ended. The last pause between two attempts is an hour."""
BETWEEN_LOOKS = 10.0
"""Seconds between two searches for jobs whose worker has died."""

logger = log.logger(__name__)

Step = Callable[[], Awaitable[None]]
Answer = TypeVar("Answer")


class BackgroundTasks:
    """Repeats each step in a task of its own. After an error in one turn, pauses and repeats the step."""

    def __init__(self, *steps: Step) -> None:
        self._steps = steps
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def running(self) -> bool:
        return bool(self._tasks) and not any(task.done() for task in self._tasks)

    async def start(self) -> None:
        if not self._tasks:
            self._tasks = [asyncio.create_task(_again_and_again(step), name=step.__name__) for step in self._steps]

    async def stop(self) -> None:
        tasks, self._tasks = self._tasks, []
        await cancelled(*tasks)


async def until_the_database_answers(step: Callable[[], Awaitable[Answer]]) -> Answer:
    """Repeats the step until the database answers, and returns the answer. The step may run twice: its answer can be
    lost after its commit.
    """
    while True:
        try:
            return await step()
        except DatabaseUnavailable:
            await asyncio.sleep(BETWEEN_ATTEMPTS)


async def until_stored(
    step: Callable[[], Awaitable[Answer]],
    answers: Callable[[], Awaitable[bool]],
    size: int,
    *,
    given_up: int = MOST_GIVEN_UP,
) -> Answer:
    """Repeats the step as `until_the_database_answers` does.

    Raises Unstorable when the stored value is large (`size` in bytes) and its statement was given up `given_up` times
    while the database answered others.
    """
    while True:
        try:
            return await step()
        except StatementGivenUp as error:
            if size > LARGE and await answers():
                given_up -= 1
            if not given_up:
                raise Unstorable("the database takes too long to store it, or has no room for it.", LESS) from error
        except DatabaseUnavailable:
            pass
        await asyncio.sleep(BETWEEN_ATTEMPTS)


async def _again_and_again(step: Step) -> None:
    while True:
        try:
            await step()
        except DatabaseUnavailable:
            await asyncio.sleep(BETWEEN_ATTEMPTS)
        except Exception as error:  # noqa: BLE001 - an error ends one turn, not the loop
            logger.event("worker.loop_failed", loop=step.__name__, exc=error)
            await asyncio.sleep(BETWEEN_ATTEMPTS)


class SideJobWorker:
    """Runs side jobs. When procrastinate's worker ends, for example because the database is down, starts it again."""

    def __init__(self, jobs: SideJobs, *, look_every: float = BETWEEN_LOOKS) -> None:
        self._jobs = jobs
        self._look_every = look_every
        self._loops = BackgroundTasks(self._do_side_jobs, self._requeue_stalled)

    async def start(self) -> None:
        await self._loops.start()

    async def stop(self) -> None:
        """Gives a running job half a second to end. Requeues a job that takes longer."""
        await self._loops.stop()

    async def _do_side_jobs(self) -> None:
        await self._jobs.work()
        await asyncio.sleep(
            BETWEEN_ATTEMPTS
        )  # procrastinate's worker ends without an error when one of its parts fails

    async def _requeue_stalled(self) -> None:
        await asyncio.sleep(self._look_every)
        await self._jobs.requeue_stalled()


def side_jobs(
    retaining: Retaining, removals: Removals, statistics: StatisticsStore, webhooks: WebhookStore
) -> list[SideJob]:
    """Returns all side jobs. Each server has the same list, because any server may run a job that another deferred."""
    return [
        SideJob("remove_what_is_over", retaining.remove_what_is_over, cron="7 * * * *"),
        SideJob("sweep_leftovers", retaining.sweep_leftovers, cron="37 3 * * *"),
        SideJob("forget_the_expired", retaining.forget_the_expired, cron="*/5 * * * *"),
        SideJob("count_statistics", statistics.count, cron="* * * * *"),
        SideJob("defer_forgotten_webhooks", webhooks.defer_forgotten, cron="*/2 * * * *"),
        SideJob("remind_of_questions", webhooks.remind, cron="* * * * *"),
        SideJob("remove_unused_endpoints", webhooks.remove_unused_endpoints, cron="47 3 * * *"),
        SideJob(REMOVAL, removals.remove_deployment, tries=TRIES_OF_REMOVALS),
        SideJob(USER_REMOVAL, removals.remove_user, tries=TRIES_OF_REMOVALS),
    ]
