"""The Celery application that runs beside Windlass: the worker's own processes import it.

BENCH_REDIS is the broker and the result backend, BENCH_CREW is set where the worker runs crews. With BENCH_STORAGE each
worker process gets a storage folder of crewai's in that folder.
"""

from __future__ import annotations

import os
import tempfile
import time
from importlib import import_module
from typing import Any

from celery import Celery
from celery.signals import worker_process_init

ANSWER = "done"

app = Celery("peer", broker=os.environ["BENCH_REDIS"], backend=os.environ["BENCH_REDIS"])

if "BENCH_CREW" in os.environ:  # in the parent of the worker processes, as the imports of a usual tasks.py are
    import_module("three_tasks.crew")


@worker_process_init.connect
def set_storage(**_: Any) -> None:
    if folder := os.environ.get("BENCH_STORAGE"):
        os.environ["CREWAI_STORAGE_DIR"] = tempfile.mkdtemp(dir=folder)


@app.task(name="three_tasks")
def three_tasks() -> float:
    """Returns the Unix time of its start."""
    started = time.time()
    result = import_module("three_tasks.crew").ThreeTasks().crew().kickoff(inputs={})
    if result.raw != ANSWER:
        raise RuntimeError(f"the crew said {result.raw!r}")
    return started


@app.task(name="empty")
def empty() -> float:
    """Returns the Unix time of its start."""
    return time.time()
