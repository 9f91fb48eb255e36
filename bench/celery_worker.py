"""A Celery worker with two processes, and the rate at which it ends tasks.

Celery is at its best here. Redis writes nothing to disk, and a task is acknowledged before it runs, which is Celery's
default: a task is lost with its worker. Results are kept in Redis. A worker process reserves one task at a time, as is
usual for tasks that take long.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bench.served import seconds, wait_until
from bench.stage import ROOT
from windlass_child.process.process_env import quiet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from celery import Celery
    from celery.backends.base import Backend

PROCESSES = 2
WITHIN = 300.0
POLLED_EVERY = 0.02
"""Seconds. Waiting for a result should cost little CPU."""


@contextmanager
def celery_worker(
    address: str, folder: Path, task: str, *, crew: Path | None = None, own_storage: bool = False
) -> Iterator[Callable[[int], float]]:
    """Runs a worker, and yields a function that runs so many tasks and returns how many ended per second.

    `address` is that of Redis, `folder` a folder to make, and `task` a name in bench.celery_app. With a `crew` its
    module is imported before the worker starts its processes. They share crewai's default storage folder, or have one
    each with `own_storage`.
    """
    from celery import Celery

    # A client with a result backend subscribes to the result of each task: the one that sends has none.
    storage = {"BENCH_STORAGE": str(folder)} if own_storage else {}
    client, results = Celery("peer", broker=address), Celery("peer", backend=address).backend
    folder.mkdir()
    with client, (folder / "log").open("w") as log:
        process = subprocess.Popen(
            command(folder.name),
            cwd=folder,
            env=environment(address, folder, crew) | storage,
            stdout=log,
            stderr=log,
        )
        try:
            wait_until(lambda: answers(process, client, folder), what="Celery's worker")
            yield lambda count: ended_per_second(client, results, folder.name, task, count)
        finally:
            process.terminate()
            process.wait(60)


def command(name: str) -> list[str]:
    celery = [sys.executable, "-m", "celery", "--app", "bench.celery_app", "worker", "--loglevel", "WARNING"]
    limits = ["--concurrency", str(PROCESSES), "--prefetch-multiplier", "1"]
    return [*celery, *limits, "--queues", name, "--hostname", host(name)]


def host(name: str) -> str:
    return f"{name}@localhost"


def environment(address: str, folder: Path, crew: Path | None) -> dict[str, str]:
    """Telemetry is off, as in Windlass. The home folder is empty, since crewai's default storage is in it."""
    given = {name: value for name, value in os.environ.items() if not name.startswith(("CREWAI_", "XDG_"))}
    paths = [str(ROOT), *([str(crew / "src")] if crew else [])]
    own = {"HOME": str(folder), "PYTHONPATH": os.pathsep.join(paths), "BENCH_REDIS": address}
    return {**given, **quiet(), **own, **({"BENCH_CREW": "1"} if crew else {})}


def answers(process: subprocess.Popen[bytes], client: Celery, folder: Path) -> bool:
    if process.poll() is not None:
        raise RuntimeError(f"Celery's worker did not start:\n{(folder / 'log').read_text()[-2000:]}")
    return bool(client.control.ping(destination=[host(folder.name)], timeout=0.5))


def ended_per_second(client: Celery, results: Backend, name: str, task: str, count: int) -> float:
    """From the first start to the last end. The tasks are in the queue before the worker takes the first of them."""
    only = {"destination": [host(name)], "reply": True}
    client.control.cancel_consumer(name, **only)
    ids = [client.send_task(task, queue=name).id for _ in range(count)]
    client.control.add_consumer(name, **only)
    metas = [ended(results, task_id) for task_id in reversed(ids)]  # after the last one few others need waiting
    first = min(float(meta["result"]) for meta in metas)
    return count / (max(seconds(meta["date_done"]) for meta in metas) - first)


def ended(results: Backend, task_id: str) -> dict[str, Any]:
    """Returns what Celery stored of a task that has succeeded."""
    deadline = time.monotonic() + WITHIN
    while (meta := results.get_task_meta(task_id))["status"] != "SUCCESS":
        if meta["status"] == "FAILURE" or time.monotonic() > deadline:
            raise RuntimeError(f"a task of Celery's is not done: {meta}")
        time.sleep(POLLED_EVERY)
    found: dict[str, Any] = meta
    return found
