"""Leaves the time for which a person is asked about a task out of the agent's `max_execution_time`.

crewai counts that time. A person who takes longer than the limit would so make the task fail.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import time
from concurrent import futures
from typing import TYPE_CHECKING, Any

from windlass_child.crewai.features import has
from windlass_child.replacements import replaced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

UNLIMITED = 10**6
"""Seconds that no run takes. It is the limit that crewai gets, because `Limit` ends the task."""


class Waits:
    """The seconds for which persons are asked about tasks. A task asks one question at a time, from any thread."""

    def __init__(self) -> None:
        self._over: dict[str, float] = {}
        self._since: dict[str, float] = {}
        self.limits: dict[str, Limit] = {}

    @contextlib.contextmanager
    def of(self, task: Any) -> Iterator[None]:
        """Counts the time inside the `with` block. Raises TimeoutError for a task that has failed by its limit.

        crewai can't end the thread of such a task, which would ask a person for nothing.
        """
        key = key_of(task)
        if key in self.limits:
            self.limits[key].refuse_if_over()
        self._since[key] = time.monotonic()
        try:
            yield
        finally:
            self._over[key] = self.seconds(task)
            self._since.pop(key, None)

    def seconds(self, task: Any) -> float:
        now = time.monotonic()
        return self._over.get(key_of(task), 0.0) + now - self._since.get(key_of(task), now)


def key_of(task: Any) -> str:
    return str(getattr(task, "id", None))


class Limit:
    """The `max_execution_time` of a task, from now on."""

    def __init__(self, waits: Waits, task: Any, seconds: int) -> None:
        self._waits, self._task, self._seconds = waits, task, seconds
        self._end = time.monotonic() + seconds - waits.seconds(task)
        self._is_over = False
        waits.limits[key_of(task)] = self

    def left(self) -> float:
        return self._end + self._waits.seconds(self._task) - time.monotonic()

    def result(self, running: Any) -> Any:
        """Returns the result, or raises crewai's exception if the time is over.

        crewai raises it also in place of a TimeoutError of the code inside.
        """
        try:
            if running.done():
                return running.result()
        except TimeoutError as fault:
            raise TimeoutError(self._words()) from fault
        self._is_over = True
        raise TimeoutError(self._words())

    def refuse_if_over(self) -> None:
        if self._is_over:
            raise TimeoutError(self._words())

    def _words(self) -> str:
        words = f"Task '{self._task.description}' execution timed out after {self._seconds} seconds."
        return f"{words} Consider increasing max_execution_time or optimizing the task."


@contextlib.contextmanager
def limits_without_waits(waits: Waits) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for name, make in {"_execute_with_timeout": limiting, "_aexecute_with_timeout": limiting_async}.items():
            if has(f"crewai:Agent.{name}"):
                stack.enter_context(replaced(f"crewai:Agent.{name}", make(waits)))
        yield


def limiting(waits: Waits) -> Callable[[Any], Any]:
    def make(execute: Callable[..., Any]) -> Callable[..., Any]:
        def execute_with_timeout(agent: Any, task_prompt: str, task: Any, timeout: int) -> Any:
            if not task.human_input:
                return execute(agent, task_prompt, task, timeout)
            limit = Limit(waits, task, timeout)
            with futures.ThreadPoolExecutor(1) as pool:
                run = contextvars.copy_context().run
                future = pool.submit(run, execute, agent, task_prompt, task, UNLIMITED)
                while not future.done() and (left := limit.left()) > 0:
                    futures.wait([future], left)
                return limit.result(future)

        return execute_with_timeout

    return make


def limiting_async(waits: Waits) -> Callable[[Any], Any]:
    def make(execute: Callable[..., Any]) -> Callable[..., Any]:
        async def execute_with_timeout(agent: Any, task_prompt: str, task: Any, timeout: int) -> Any:
            if not task.human_input:
                return await execute(agent, task_prompt, task, timeout)
            limit = Limit(waits, task, timeout)
            running = asyncio.ensure_future(execute(agent, task_prompt, task, UNLIMITED))
            try:
                while not running.done() and (left := limit.left()) > 0:
                    await asyncio.wait([running], timeout=left)
                return limit.result(running)
            finally:
                running.cancel()

        return execute_with_timeout

    return make
