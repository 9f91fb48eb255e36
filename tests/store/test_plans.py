"""A backlog that can't be claimed costs nothing: claims and new kickoffs touch the same few rows with it as without."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

import pytest
from psycopg.sql import SQL

from windlass.kickoffs.ids import new_id
from windlass.store.accepting import SQL as ACCEPTING
from windlass.store.accepting import values_of
from windlass.store.claiming import SQL as CLAIMING
from windlass.store.claiming import values_of as claim_values
from windlass.store.database import fetch
from windlass.store.deployments import DeploymentStore
from windlass.store.ending import SQL as ENDING
from windlass.store.kickoff_list import KickoffFilter, KickoffList

if TYPE_CHECKING:
    from uuid import UUID

    from store.kickoff_rows import Rows
    from windlass.store.database import Connection

MANY = 5000
FEW = 100
COUNTED = SQL(
    "SELECT coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) AS touched "
    "FROM pg_stat_xact_user_tables WHERE relname = %(table)s"
)

BACKLOGS = {
    "due later": (", ready, run_at", ", false, now() + interval '1 hour'"),
    "behind one key": (", ready, concurrency_key", ", false, 'k'"),
    "ended": (", state, concurrency_key", ", 'SUCCESS', 'k'"),
}
"""Columns of the kickoffs of a backlog, and their values."""

KEY_IS_HELD = SQL("SELECT key_is_held(%(deployment)s, %(key)s) AS held")


async def pile_up(rows: Rows, columns: str = "", values: str = "") -> None:
    await rows.database.execute(
        SQL(
            f"INSERT INTO kickoffs (id, deployment_id, version_id, inputs{columns}) "
            f"SELECT gen_random_uuid(), %(deployment)s, %(version)s, '{{}}'{values} FROM generate_series(1, {MANY})"
        ),
        {"deployment": rows.deployment.id, "version": rows.version.id},
    )


async def rows_touched(
    rows: Rows, statement: str, values: dict[str, Any], session: Connection | None = None, table: str = "kickoffs"
) -> int:
    """Rows of the table that the statement's scans looked at, in functions and triggers too."""
    if session is None:
        async with rows.database.connection() as opened:
            return await rows_touched(rows, statement, values, opened, table)
    async with session.transaction():
        await session.execute("SET LOCAL enable_indexonlyscan = off")  # such scans are not counted
        before = await fetch(session, COUNTED, {"table": table})
        await session.execute(SQL(statement), values)
        after = await fetch(session, COUNTED, {"table": table})
    return int(after[0]["touched"] - before[0]["touched"])


async def of_a_claim(rows: Rows, session: Connection | None = None) -> int:
    values = claim_values(rows.worker, 2, 60)
    return await rows_touched(rows, CLAIMING["claim"].as_string(), values, session)


async def test_the_count_of_rows_can_tell_a_plan_that_touches_many(rows: Rows) -> None:
    await pile_up(rows)
    assert await rows_touched(rows, "SELECT count(*) FROM kickoffs WHERE state = 'PENDING'", {}) >= MANY


@pytest.mark.parametrize("statistics", ["none", "of an empty table", "of one row", "up to date"])
@pytest.mark.parametrize("backlog", ["ready", "paused", "full", "due later", "behind one key", "ended"])
async def test_a_claim_touches_few_rows(rows: Rows, backlog: str, statistics: str) -> None:
    other = await rows.beside("other", **({"concurrency": 1} if backlog == "full" else {}))
    if statistics == "of one row":
        await rows.settle(await other.started())
    if statistics != "none":
        await rows.database.execute("ANALYZE")
    if backlog in {"full", "behind one key"}:
        await other.started(concurrency_key="k")
    await pile_up(other, *BACKLOGS.get(backlog, ("", "")))
    if backlog == "paused":
        await DeploymentStore(rows.database).pause("other")
    await rows.accept(3)
    if statistics == "up to date":
        await rows.database.execute("ANALYZE kickoffs")
    assert await of_a_claim(rows) < FEW


@pytest.mark.parametrize("backlog", ["ready", "full", "due later", "behind one key", "ended"])
async def test_a_claim_touches_few_rows_in_a_session_that_knew_a_small_table(rows: Rows, backlog: str) -> None:
    other = await rows.beside("other", **({"concurrency": 1} if backlog == "full" else {}))
    async with rows.database.connection() as session:
        await rows.settle(await other.started())
        await rows.database.execute("ANALYZE")
        await other.accept(concurrency_key="k")
        assert await of_a_claim(rows, session) < FEW, "the plan is made for one row, and kept"
        await pile_up(other, *BACKLOGS.get(backlog, ("", "")))
        await rows.accept(3)
        assert await of_a_claim(rows, session) < FEW


@pytest.mark.parametrize(
    ("columns", "values"),
    [("", ""), (", ready, run_at", ", false, now() + interval '1 hour'"), (", ready, concurrency_key", ", false, 'k'")],
)
async def test_a_look_for_what_has_come_due_or_is_free_touches_few_rows(rows: Rows, columns: str, values: str) -> None:
    await rows.started(concurrency_key="k")
    await pile_up(rows, columns, values)
    await rows.database.execute("ANALYZE kickoffs")
    touched = await rows_touched(rows, CLAIMING["promote_due"].as_string(), {"limit": 1000})
    page = {"deployment": "00000000-0000-0000-0000-000000000000", "key": "", "limit": 1000}
    touched += await rows_touched(rows, CLAIMING["promote_keys"].as_string(), page)
    assert touched < FEW


async def test_whether_a_key_is_held_is_found_in_few_rows_also_by_a_session_that_knew_a_small_table(rows: Rows) -> None:
    await rows.started(concurrency_key="k")
    await rows.database.execute("ANALYZE kickoffs")
    held = {"deployment": rows.deployment.id, "key": "k"}
    async with rows.database.connection() as session:
        for _ in range(10):  # from the sixth time on, PostgreSQL keeps the plan
            await session.execute(KEY_IS_HELD, held)
        await pile_up(rows, ", ready, concurrency_key", ", false, 'k'")
        async with session.transaction():
            before = await fetch(session, COUNTED, {"table": "kickoffs"})
            assert await fetch(session, KEY_IS_HELD, held) == [{"held": True}]
            after = await fetch(session, COUNTED, {"table": "kickoffs"})
    assert after[0]["touched"] - before[0]["touched"] < FEW


@pytest.mark.parametrize("statistics", ["none", "of an empty table", "up to date"])
async def test_a_look_for_what_a_new_one_supersedes_touches_few_rows(rows: Rows, statistics: str) -> None:
    if statistics == "of an empty table":
        await rows.database.execute("ANALYZE")
    await pile_up(rows, ", ready, concurrency_key", ", false, 'k'")
    if statistics == "up to date":
        await rows.database.execute("ANALYZE kickoffs")
    some = await rows.database.rows("SELECT id FROM kickoffs LIMIT 20")
    newer = {"ids": [row["id"] for row in some], "strategies": ["enqueue"] * len(some), "error": "superseded"}
    touched = await rows_touched(rows, ACCEPTING["supersede"].as_string(), newer)
    assert touched < FEW


@pytest.mark.parametrize("statistics", ["none", "of an empty table", "up to date"])
async def test_to_count_a_users_share_and_to_find_what_to_stop_touches_no_kickoff_that_has_ended(
    rows: Rows, statistics: str
) -> None:
    if statistics == "of an empty table":
        await rows.database.execute("ANALYZE")
    user = new_id()
    await pile_up(rows, ", state, user_id", f", 'SUCCESS', '{user}'")
    await rows.accept(5, user_id=user)
    if statistics == "up to date":
        await rows.database.execute("ANALYZE kickoffs")
    settings = {"keep": timedelta(hours=24), "max_waiting": 100, "user_share": 0.25}
    careful = ACCEPTING["accept_what_fits"].as_string()
    of_user, of_organization = values_of([rows.new(user_id=user)]), values_of([rows.new()])
    without_share = await rows_touched(rows, careful, of_organization | settings)
    assert await rows_touched(rows, careful, of_user | settings) < without_share + FEW
    wanted = {"deployment": rows.deployment.id, "states": ["PENDING"], "owner": user, "user": None, "before": None}
    assert await rows_touched(rows, ENDING["matching"].as_string(), wanted | {"limit": 100}) < FEW


@pytest.mark.parametrize("statistics", ["of an empty table", "none", "up to date"])
@pytest.mark.parametrize(
    "statement",
    [
        "SELECT human_input(%(id)s)",
        "SELECT close_questions(%(id)s)",
        "SELECT resume_answered(%(id)s)",
        "UPDATE kickoffs SET state = 'CANCELLED', reason = 'cancelled', finished_at = now() WHERE id = %(id)s",
    ],
)
async def test_the_question_of_a_kickoff_is_found_among_many_that_wait(
    rows: Rows, statement: str, statistics: str
) -> None:
    if statistics == "of an empty table":
        await rows.database.execute("ANALYZE questions")
    await pile_up(rows, ", state, asked", ", 'PENDING_HUMAN_INPUT', true")
    await rows.database.execute(
        "INSERT INTO questions (id, kickoff_id, deployment_id, number, key, attempt, question, draft, waits)"
        " SELECT gen_random_uuid(), id, deployment_id, 1, 'question', 1, 'Is it good?', '\"A draft\"', false"
        "   FROM kickoffs"
    )
    if statistics == "up to date":
        await rows.database.execute("ANALYZE questions")
    (last,) = await rows.database.rows("SELECT id FROM kickoffs ORDER BY id DESC LIMIT 1")
    assert await rows_touched(rows, statement, last, table="questions") <= FEW


class Asked:
    """Keeps the statement of a list in place of its execution."""

    async def rows(self, query: SQL, values: dict[str, Any], *, soon: bool) -> list[dict[str, Any]]:
        self.query, self.values, self.soon = query, values, soon
        return [{"id": None, "all_seen": True, "last_seen": None}]


@pytest.mark.parametrize("first", ["newest", "oldest"])
async def test_a_page_of_a_crews_kickoffs_reads_no_more_than_it_shows(
    rows: Rows, first: Literal["newest", "oldest"]
) -> None:
    """Those of one crew are all over the table: each is read from another page of it."""
    await pile_up(rows, ", state", ", 'SUCCESS'")
    wanted = KickoffFilter(deployment=rows.deployment.id)
    await KickoffList(asked := Asked()).listed(wanted, limit=20, first=first)  # type: ignore[arg-type]
    assert await rows_touched(rows, asked.query.as_string(), asked.values) <= FEW
    seen: list[UUID] = []
    page = await rows.store.listed(wanted, limit=999, first=first)
    while page.next is not None:
        seen += [row.id for row in page.rows]
        edge: dict[str, Any] = {"before": page.next} if first == "newest" else {"after": page.next}
        page = await rows.store.listed(replace(wanted, **edge), limit=999, first=first)
    seen += [row.id for row in page.rows]
    assert len(set(seen)) == len(seen) == MANY
