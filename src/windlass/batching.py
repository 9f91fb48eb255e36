"""Answers requests in batches: those that arrive while a batch is in progress share the next one."""

# See docs/decisions/queue.md#requests-that-arrive-together-share-one-commit

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence

Question = TypeVar("Question")
Answer = TypeVar("Answer")
Asked = tuple[Question, "asyncio.Future[Answer]"]


class Batcher(Generic[Question, Answer]):
    """Collects the questions that arrive while one batch is being answered into the next batch.

    An idle batcher adds no delay. A busy one needs few round trips.

    `answer` takes a list of questions and returns the answers in the same order. When `answer` fails for a batch of
    several questions, each question is asked alone, so that one bad question does not fail the others. `fatal` is
    the class of errors after which this retry is skipped. `conflicts` returns keys of a question, None for no key. Two
    questions with a common key are never in one batch.
    """

    def __init__(
        self,
        answer: Callable[[list[Question]], Awaitable[Sequence[Answer]]],
        *,
        fatal: type[Exception],
        conflicts: Callable[[Question], Iterable[Hashable | None]] = lambda _: (),
        largest: int = 500,
        lanes: int = 1,
    ) -> None:
        self._answer = answer
        self._fatal = fatal
        self._conflicts = conflicts
        self._largest = largest
        self._lanes = lanes
        self._waiting: list[Asked[Question, Answer]] = []
        self._busy = 0
        self._tasks: set[asyncio.Task[None]] = set()  # the event loop holds only weak references to tasks

    async def ask(self, question: Question) -> Answer:
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, future))
        if self._busy < self._lanes:
            self._busy += 1
            lane = asyncio.create_task(self._work())
            self._tasks.add(lane)
            lane.add_done_callback(self._tasks.discard)
        return await future

    async def _work(self) -> None:
        try:
            while batch := self._next_batch():
                await self._settle(batch)
        finally:
            # Not in a done callback: a question that arrives before the callback would start no lane and wait for ever.
            self._busy -= 1

    def _next_batch(self) -> list[Asked[Question, Answer]]:
        taken: list[Asked[Question, Answer]] = []
        later: list[Asked[Question, Answer]] = []
        keys: set[Hashable] = set()
        for asked in self._waiting:
            own = {key for key in self._conflicts(asked[0]) if key is not None}
            if len(taken) == self._largest or own & keys:
                later.append(asked)
            else:
                taken.append(asked)
                keys |= own
        self._waiting = later
        return taken

    async def _settle(self, batch: list[Asked[Question, Answer]]) -> None:
        try:
            answers = await self._answer([question for question, _ in batch])
        except Exception as error:  # noqa: BLE001 - every caller of the batch gets it
            await self._settle_failed(batch, error)
        else:
            for (_, future), answer in zip(batch, answers, strict=True):
                if not future.done():  # its caller may have been cancelled
                    future.set_result(answer)

    async def _settle_failed(self, batch: list[Asked[Question, Answer]], error: Exception) -> None:
        if len(batch) > 1 and not isinstance(error, self._fatal):
            for asked in batch:
                await self._settle([asked])
            return
        for _, future in batch:
            if not future.done():
                future.set_exception(error)
