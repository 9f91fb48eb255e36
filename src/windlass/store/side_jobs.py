"""Runs side jobs on procrastinate, in the same database. A side job may be done twice.

A job is deferred in the transaction of the change that it follows. Any server that knows its task does it.
"""

# See docs/decisions/store.md#side-jobs-run-under-a-loop-of-windlass

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import procrastinate
from procrastinate.exceptions import ConnectorException, UniqueViolation
from procrastinate.jobs import Status
from psycopg.errors import RaiseException
from psycopg_pool import AsyncConnectionPool

from windlass import log
from windlass.errors import DatabaseUnavailable
from windlass.store.database import (
    CONNECT_SECONDS,
    KEEPALIVES,
    POOL_WAIT_SECONDS,
    UNAVAILABLE_ERRORS,
    prepare_session,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence

    from procrastinate.jobs import Job
    from procrastinate.worker import Worker
    from psycopg import AsyncConnection

    from windlass.store.database import Connection

    Work = Callable[..., Awaitable[None]]

AT_ONCE = 4
LOOK_EVERY = 5.0
"""Seconds between two looks for jobs whose lock has become free. New jobs are notified of."""
HEARTBEAT = 5.0
"""Seconds between heartbeats."""
SILENT = 20.0
"""Seconds without a heartbeat after which a worker counts as dead, and its jobs are put back."""
SHUTDOWN_GRACE = 0.5
"""Seconds that running jobs have to finish when their worker stops; then they are put back."""
CATCH_UP = 7 * 24 * 3600
"""Seconds. A server that was down when a periodic job was due does the job once at its start."""
NOT_YET = 1
"""Seconds."""
FAILURES_KEPT = 7 * 24
"""Hours that the row of a failed job is kept. The row of a successful job is deleted at once."""

logger = log.logger(__name__)

# Failed jobs have a log event of their own, and the listener logs that PostgreSQL is unavailable.
logging.getLogger("procrastinate").setLevel(logging.CRITICAL)


@dataclass(frozen=True, slots=True)
class SideJob:
    """A kind of side job.

    `work` is called with the values that the job was deferred with. With `cron`, in UTC, the job is periodic and gets
    no values. At most one such job runs and one more waits, over all servers. A job that fails is tried again `tries`
    times, after 1, 2, 4, 8... seconds.
    """

    name: str
    work: Work
    cron: str | None = None
    tries: int = 0


class NotYet(Exception):  # noqa: N818 - describes the job
    """Is raised by a job that can't be done yet: it is put back for NOT_YET seconds."""


async def defer(
    connection: Connection, name: str, *, lock: str | None = None, priority: int = 0, **values: Any
) -> None:
    """Defers a job, which any server that knows the name does. It can start when the connection's transaction is
    committed. Jobs with the same `lock` are done one after the other. Those with a higher `priority` are done first,
    others in their order.
    """
    app = procrastinate.App(connector=procrastinate.PsycopgConnector())
    await app.configure_task(name, queue=name, lock=lock, priority=priority, connection=connection).defer_async(
        **values
    )


class SideJobs:
    """Does side jobs, `at_once` at the same time. Looks `look_every` seconds for jobs whose lock has become free.

    `work` uses two connections: one listens, the other fetches and finishes jobs.
    """

    def __init__(
        self,
        url: str,
        jobs: Sequence[SideJob],
        *,
        silent: float = SILENT,
        at_once: int = AT_ONCE,
        look_every: float = LOOK_EVERY,
    ) -> None:
        self._url = url
        self._jobs = [*jobs, SideJob("remove_failed_side_jobs", self._remove_failed, cron="17 4 * * *")]
        self._silent = silent
        self._at_once = at_once
        self._look_every = look_every
        self._working: procrastinate.App | None = None

    @property
    def names(self) -> list[str]:
        return [job.name for job in self._jobs]

    async def work(self) -> None:
        """Does jobs until it is cancelled, or fails. Raises DatabaseUnavailable."""
        with _translating_errors():
            async with _pool(self._url) as pool:
                app = _app(self._jobs, procrastinate.PsycopgConnector())
                await app.open_async(pool)
                self._working = app
                try:
                    await app.run_worker_async(
                        # An older server must not fetch jobs that it does not know: they would count as failed.
                        queues=self.names,
                        name="side jobs",
                        concurrency=self._at_once,
                        fetch_job_polling_interval=self._look_every,
                        shutdown_graceful_timeout=SHUTDOWN_GRACE,
                        delete_jobs="successful",
                        install_signal_handlers=False,
                        update_heartbeat_interval=min(HEARTBEAT, self._silent / 4),
                        stalled_worker_timeout=self._silent,
                        worker_middleware=[_log_failure],
                    )
                finally:
                    self._working = None

    async def requeue_stalled(self) -> int:
        """Puts back the jobs of workers that died or lost their connection, and returns their number.

        Puts back none while this worker is not running. Raises DatabaseUnavailable. Two servers may put the same job
        back, and one of them may have started it again in between. Then the job is done twice.
        """
        if (app := self._working) is None:
            return 0
        with _translating_errors():
            found = await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=self._silent)
            stalled = [job for job in found if job.task_name in self.names]
            for job in stalled:
                await _put_back(app, job)
                logger.event("side_job.requeued", job=job.task_name, why="its worker is silent")
        return len(stalled)

    async def _remove_failed(self) -> None:
        if app := self._working:
            with _translating_errors():
                await app.job_manager.delete_old_jobs(
                    FAILURES_KEPT, include_failed=True, include_cancelled=True, include_aborted=True
                )


class _Again(procrastinate.BaseRetryStrategy):
    """Decides on retries. A job that was interrupted by a stop or by an unavailable database is put back unchanged."""

    def __init__(self, tries: int) -> None:
        self._tries = tries

    def get_retry_decision(self, *, exception: BaseException, job: Job) -> procrastinate.RetryDecision | None:
        if isinstance(exception, asyncio.CancelledError | DatabaseUnavailable):
            return procrastinate.RetryDecision()
        if isinstance(exception, NotYet):
            return procrastinate.RetryDecision(retry_in={"seconds": NOT_YET})
        if job.attempts >= self._tries:
            return None
        return procrastinate.RetryDecision(retry_in={"seconds": 2**job.attempts})


def _app(jobs: Sequence[SideJob], connector: procrastinate.PsycopgConnector) -> procrastinate.App:
    app = procrastinate.App(connector=connector, periodic_defaults={"max_delay": CATCH_UP})
    for job in jobs:
        alone = job.name if job.cron else None
        task = app.task(name=job.name, queue=job.name, retry=_Again(job.tries), lock=alone, queueing_lock=alone)(
            _timeless(job.work) if job.cron else job.work
        )
        if job.cron:
            app.periodic(cron=job.cron)(task)
    return app


def _timeless(work: Work) -> Work:
    async def at(timestamp: int) -> None:  # noqa: ARG001 - procrastinate passes the due time
        await work()

    return at


@asynccontextmanager
async def _pool(url: str) -> AsyncIterator[AsyncConnectionPool]:
    settings = {"connect_timeout": CONNECT_SECONDS, "application_name": "windlass side jobs", **KEEPALIVES}
    pool = AsyncConnectionPool(
        url,
        min_size=1,
        max_size=1,
        open=False,
        timeout=POOL_WAIT_SECONDS,
        reconnect_timeout=0.5,
        kwargs=settings,
        configure=_prepare,
    )
    try:
        await pool.open(wait=True, timeout=CONNECT_SECONDS)
        yield pool
    finally:
        await pool.close(timeout=POOL_WAIT_SECONDS)


async def _prepare(connection: AsyncConnection) -> None:
    await prepare_session(connection)
    await connection.commit()


@contextmanager
def _translating_errors() -> Iterator[None]:
    try:
        yield
    except ConnectorException as error:
        if isinstance(error.__cause__, UNAVAILABLE_ERRORS):
            raise _unavailable() from error
        raise
    except UNAVAILABLE_ERRORS as error:
        raise _unavailable() from error


def _unavailable() -> DatabaseUnavailable:
    return DatabaseUnavailable("The database of the side jobs does not answer.", "They continue automatically.")


async def _put_back(app: procrastinate.App, job: Job) -> None:
    try:
        await app.job_manager.retry_job(job)
    except UniqueViolation:  # another job with the same queueing lock waits already
        await app.job_manager.finish_job(job, Status.ABORTED, delete_job=True)
    except ConnectorException as error:
        if not isinstance(error.__cause__, RaiseException):  # another server has put it back
            raise


async def _log_failure(do: Callable[[], Awaitable[Any]], context: procrastinate.JobContext, _: Worker) -> Any:
    try:
        return await do()
    except (DatabaseUnavailable, NotYet):
        raise
    except Exception as error:
        logger.event("side_job.failed", job=context.job.task_name, exc=error)
        raise
