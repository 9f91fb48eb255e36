"""Results of 20 MB: kept whole, beside the rows that others read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg.sql import SQL

from store.whole import loaded
from windlass.kickoffs.states import State

if TYPE_CHECKING:
    from lifecycle.running import World

LARGE = 20_000_000
ROW = 100_000


async def test_a_large_result_is_kept_whole_and_out_of_its_row(world: World) -> None:
    await world.worker()
    kickoff = await world.accept(do="large", size=LARGE)
    status = await world.ended(kickoff)
    assert status.state is State.SUCCESS
    assert len(loaded(status.output)) == LARGE
    for table in ("kickoffs", "task_records", "events"):
        (row,) = await world.database.rows(SQL(f"SELECT pg_relation_size('{table}') AS size"))
        assert row["size"] < ROW


async def test_of_a_large_result_no_event_holds_a_copy(world: World) -> None:
    await world.worker()
    kickoff = await world.accept(do="large", size=LARGE)
    await world.ended(kickoff)
    assert sum(len(str(row["payload"])) for row in await world.events(kickoff)) < ROW
