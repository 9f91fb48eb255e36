"""Tracks in which step of a run code runs.

The keys of crews contain the step that kicks them off, which distinguishes them from crews of other steps.
"""

# See docs/decisions/journal.md#threads-belong-to-the-step-that-started-them

from __future__ import annotations

import contextlib
import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from windlass_child.replacements import replaced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import ThreadPoolExecutor


WITHIN: ContextVar[str | None] = ContextVar("windlass_within", default=None)
"""A method of a flow or a task of a crew; "" outside of all steps.

None if it was not set, as in threads that the crew's code starts. The step is then the one that started the thread.
"""

QUESTION = "ask/"

STARTED_WITHIN: WeakKeyDictionary[threading.Thread, str] = WeakKeyDictionary()


def step_here() -> str | None:
    """Returns the current step, or None in a thread that was started before `inheriting` was entered."""
    step, thread = WITHIN.get(), threading.current_thread()
    if step is not None or thread is threading.main_thread():
        return step or ""
    return STARTED_WITHIN.get(thread)


def task_keys(within: str) -> str:
    """Returns the key prefix of all tasks of crews that this step kicks off, directly or through such tasks."""
    return f"task/{within}/"


def question_keys(within: str) -> str:
    """Returns the key prefix of all questions that this step asks a person, directly or through steps within it."""
    return f"{QUESTION}{within}/"


@contextlib.contextmanager
def within(step: str) -> Iterator[None]:
    token = WITHIN.set(step)
    try:
        yield
    finally:
        WITHIN.reset(token)


@contextlib.contextmanager
def inheriting() -> Iterator[None]:
    """Makes threads inherit the step that starts them, inside the `with` block.

    Work for a pool of threads inherits the step that submits it.
    """
    with (
        replaced("threading:Thread.start", starting),
        replaced("concurrent.futures:ThreadPoolExecutor.submit", submitting),
    ):
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
