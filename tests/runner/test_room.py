"""The bytes of large messages that all runs of a worker hold together are bounded."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

from windlass.runner.incoming import LARGE, ROOM, Room, Share

MB = 1 << 20


async def begun(share: Share, size: int) -> asyncio.Task[None]:
    """A message of this size that has been announced."""
    task = asyncio.create_task(share.hold(0, size))
    for _ in range(3):
        await asyncio.sleep(0)
    return task


async def test_large_messages_wait_for_room_in_their_order_and_small_ones_do_not() -> None:
    room = Room(128 * MB)
    with ExitStack() as runs:
        first, second, third, fourth, fifth = (runs.enter_context(room.share()) for _ in range(5))
        held = [await begun(share, 60 * MB) for share in (first, second)]
        waiting, behind = await begun(third, 60 * MB), await begun(fourth, 2 * MB)
        assert [one.done() for one in (*held, waiting, behind)] == [True, True, False, False]
        assert (await begun(fifth, LARGE)).done()
        first.release()
        await asyncio.wait_for(asyncio.gather(waiting, behind), 60)


async def test_a_message_of_more_than_the_room_waits_until_it_is_alone() -> None:
    room = Room(8 * MB)
    with room.share() as small, room.share() as huge, room.share() as next_one:
        assert (await begun(small, 2 * MB)).done()
        whole = await begun(huge, 60 * MB)
        assert not whole.done()
        small.release()
        await asyncio.wait_for(whole, 60)
        after = await begun(next_one, 2 * MB)
        assert not after.done()
        huge.release()
        await asyncio.wait_for(after, 60)


async def test_a_run_that_ends_while_it_waits_leaves_the_room_to_others() -> None:
    room = Room(8 * MB)
    with room.share() as holding, room.share() as ended, room.share() as last:
        assert (await begun(holding, 8 * MB)).done()
        waiting = await begun(ended, 8 * MB)
        after = await begun(last, 8 * MB)
        waiting.cancel()
        await asyncio.wait([waiting])
        holding.release()
        await asyncio.wait_for(after, 60)


def test_a_worker_has_room_for_128_mb() -> None:
    assert ROOM._free == ROOM._size == 128 * MB
