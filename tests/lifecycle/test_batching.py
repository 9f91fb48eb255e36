from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from windlass.batching import Batcher

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.unit


class Hopeless(Exception):  # noqa: N818 - said of the question
    pass


class Answering:
    """Doubles numbers, once it is allowed to; what it was asked is in `batches`."""

    def __init__(self, *, lanes: int = 1, largest: int = 500, conflicts: bool = False) -> None:
        self.batches: list[list[int]] = []
        self.allowed = asyncio.Event()
        self.allowed.set()
        self.arrived = asyncio.Event()
        self.batcher: Batcher[int, int] = Batcher(
            self.answer,
            fatal=Hopeless,
            conflicts=(lambda number: (number % 10, number // 100 or None)) if conflicts else (lambda _: ()),
            largest=largest,
            lanes=lanes,
        )

    async def answer(self, numbers: list[int]) -> Sequence[int]:
        self.batches.append(numbers)
        self.arrived.set()
        await self.allowed.wait()
        if 666 in numbers:
            raise LookupError(f"among {len(numbers)}")
        if 999 in numbers:
            raise Hopeless
        return [2 * number for number in numbers]

    async def hold(self) -> asyncio.Task[int]:
        """A first question, on whose answer all later ones have to wait."""
        self.allowed.clear()
        self.arrived.clear()
        first = asyncio.create_task(self.batcher.ask(0))
        await self.arrived.wait()
        return first

    async def ask_all(self, *numbers: int) -> list[int | BaseException]:
        """While the first question is held: they all wait together."""
        first = await self.hold()
        asked = [asyncio.create_task(self.batcher.ask(number)) for number in numbers]
        await asyncio.sleep(0)
        self.allowed.set()
        await first
        return await asyncio.gather(*asked, return_exceptions=True)


async def test_a_question_is_answered() -> None:
    assert await Answering().batcher.ask(21) == 42


async def test_questions_that_arrive_meanwhile_go_together_into_the_next_batch() -> None:
    answering = Answering()
    assert await answering.ask_all(1, 2, 3) == [2, 4, 6]
    assert answering.batches == [[0], [1, 2, 3]]


async def test_a_batch_has_a_largest_size() -> None:
    answering = Answering(largest=2)
    assert await answering.ask_all(1, 2, 3, 4, 5) == [2, 4, 6, 8, 10]
    assert answering.batches == [[0], [1, 2], [3, 4], [5]]


async def test_questions_of_one_key_are_asked_one_after_the_other() -> None:
    answering = Answering(conflicts=True)
    assert await answering.ask_all(11, 21, 5, 31) == [22, 42, 10, 62]
    assert answering.batches == [[0], [11, 5], [21], [31]]


async def test_questions_with_one_of_several_keys_in_common_are_asked_one_after_the_other() -> None:
    answering = Answering(conflicts=True)
    assert await answering.ask_all(101, 102, 203, 13) == [202, 204, 406, 26]
    assert answering.batches == [[0], [101, 203], [102, 13]]


async def test_one_bad_question_spoils_no_other() -> None:
    answering = Answering()
    first, bad, last = await answering.ask_all(1, 666, 3)
    assert (first, last) == (2, 6)
    assert isinstance(bad, LookupError)
    assert answering.batches == [[0], [1, 666, 3], [1], [666], [3]]


async def test_a_question_that_is_asked_alone_is_not_asked_twice() -> None:
    answering = Answering()
    with pytest.raises(LookupError):
        await answering.batcher.ask(666)
    assert answering.batches == [[666]]


async def test_after_a_hopeless_error_nothing_is_asked_again() -> None:
    answering = Answering()
    assert [type(error) for error in await answering.ask_all(1, 999, 3)] == [Hopeless] * 3
    assert answering.batches == [[0], [1, 999, 3]]


async def test_who_asked_and_went_away_spoils_nothing() -> None:
    answering = Answering()
    first = await answering.hold()
    gone, other = (asyncio.create_task(answering.batcher.ask(number)) for number in (1, 2))
    await asyncio.sleep(0)
    gone.cancel()
    answering.allowed.set()
    assert (await first, await other) == (0, 4)
    assert gone.cancelled()


async def test_who_goes_away_while_being_answered_spoils_nothing() -> None:
    answering = Answering()
    first = await answering.hold()
    first.cancel()
    second = asyncio.create_task(answering.batcher.ask(2))
    await asyncio.sleep(0)
    answering.allowed.set()
    assert await second == 4


async def test_lanes_work_side_by_side() -> None:
    answering = Answering(lanes=2)
    first = await answering.hold()
    answering.arrived.clear()
    second = asyncio.create_task(answering.batcher.ask(2))
    await asyncio.wait_for(answering.arrived.wait(), 60)
    third = asyncio.create_task(answering.batcher.ask(3))
    await asyncio.sleep(0)
    assert answering.batches == [[0], [2]]
    answering.allowed.set()
    assert [await first, await second, await third] == [0, 4, 6]


@pytest.mark.parametrize("turns", range(6))
async def test_a_question_that_comes_as_the_last_batch_ends_is_not_forgotten(turns: int) -> None:
    answering = Answering()
    first = await answering.hold()
    late = asyncio.create_task(_ask_after(answering, turns))
    await asyncio.sleep(0)
    answering.allowed.set()
    assert await first == 0
    assert await asyncio.wait_for(late, 60) == 14


async def _ask_after(answering: Answering, turns: int) -> int:
    await answering.allowed.wait()
    for _ in range(turns):
        await asyncio.sleep(0)
    return await answering.batcher.ask(7)
