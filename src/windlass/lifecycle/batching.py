from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence

Question = TypeVar("Question")
Answer = TypeVar("Answer")
Asked = tuple[Question, "asyncio.Future[Answer]"]


class Batcher(Generic[Question, Answer]):
    """Questions that arrive while one batch is being answered go together into the next: no waiting when idle, few
    round trips when busy.

    `answer` gets a list and gives the answers in its order. Where it fails for a batch of several, each is asked alone,
    so that one bad question spoils no other; `hopeless` names the errors for which that is of no use. `apart` gives
    keys of a question, None for none: two questions with a key in common are never in one batch.
    """

    def __init__(
        self,
        answer: Callable[[list[Question]], Awaitable[Sequence[Answer]]],
        *,
        hopeless: type[Exception],
        apart: Callable[[Question], Iterable[Hashable | None]] = lambda _: (),
        largest: int = 500,
        lanes: int = 1,
    ) -> None:
        self._answer = answer
        self._hopeless = hopeless
        self._apart = apart
        self._largest = largest
        self._lanes = lanes
        self._waiting: list[Asked[Question, Answer]] = []
        self._busy = 0
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself holds tasks weakly

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
            # Not when the task is done: a question that came in between would start no lane, and wait for ever.
            self._busy -= 1

    def _next_batch(self) -> list[Asked[Question, Answer]]:
        taken: list[Asked[Question, Answer]] = []
        later: list[Asked[Question, Answer]] = []
        keys: set[Hashable] = set()
        for asked in self._waiting:
            own = {key for key in self._apart(asked[0]) if key is not None}
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
        except Exception as error:  # noqa: BLE001 - it goes to those who asked
            await self._settle_failed(batch, error)
        else:
            for (_, future), answer in zip(batch, answers, strict=True):
                if not future.done():  # it is when the one who asked has gone
                    future.set_result(answer)

    async def _settle_failed(self, batch: list[Asked[Question, Answer]], error: Exception) -> None:
        if len(batch) > 1 and not isinstance(error, self._hopeless):
            for asked in batch:
                await self._settle([asked])
            return
        for _, future in batch:
            if not future.done():
                future.set_exception(error)
