"""In which step of a run its code runs. By that, crews that are kicked off in one are told from those of others."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from windlass_crewside.frameworks.replacing import replaced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WITHIN: ContextVar[str | None] = ContextVar("windlass_within", default=None)
"""A method of a flow or a task of a crew; "" outside of all. None where no one has said, as in threads that the crew's
code starts: then it is the step that started the thread.
"""

STARTED_WITHIN: WeakKeyDictionary[threading.Thread, str] = WeakKeyDictionary()


def step_here() -> str | None:
    """None in a thread that was there before threads were `inheriting`."""
    step, thread = WITHIN.get(), threading.current_thread()
    if step is not None or thread is threading.main_thread():
        return step or ""
    return STARTED_WITHIN.get(thread)


def task_keys(within: str) -> str:
    """How the keys of all tasks of crews begin that are kicked off within this step, also by such tasks."""
    return f"task/{within}/"


@contextlib.contextmanager
def within(step: str) -> Iterator[None]:
    token = WITHIN.set(step)
    try:
        yield
    finally:
        WITHIN.reset(token)


@contextlib.contextmanager
def inheriting() -> Iterator[None]:
    """Meanwhile, threads belong to the step that starts them, and what is handed to a pool of threads to the step that
    hands it over.
    """
    with replaced(threading.Thread, "start", starting), replaced(ThreadPoolExecutor, "submit", submitting):
        yield


def starting(start: Callable[..., None]) -> Callable[..., None]:
    def start_within(thread: threading.Thread) -> None:
        if (step := step_here()) is not None:
            STARTED_WITHIN[thread] = step
        start(thread)

    return start_within


def submitting(submit: Callable[..., Any]) -> Callable[..., Any]:
    def submit_within(pool: ThreadPoolExecutor, work: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        step = step_here()
        if step is None:
            return submit(pool, work, *arguments, **named)

        def work_within() -> Any:
            with within(step):
                return work(*arguments, **named)

        return submit(pool, work_within)

    return submit_within
