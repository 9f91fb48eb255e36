"""A backlog that can't be claimed costs nothing: the claim touches the same few rows with it as without."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from psycopg import AsyncClientCursor
from psycopg.rows import tuple_row
from psycopg.sql import SQL

from windlass.store.claiming import SQL as CLAIMING
from windlass.store.deployments import DeploymentStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store.kickoff_rows import Rows

MANY = 5000
FEW = 100


async def pile_up(rows: Rows, columns: str = "", values: str = "") -> None:
    await rows.database.execute(
        SQL(
            f"INSERT INTO kickoffs (id, deployment_id, version_id, inputs{columns}) "
            f"SELECT gen_random_uuid(), %(deployment)s, %(version)s, '{{}}'{values} FROM generate_series(1, {MANY})"
        ),
        {"deployment": rows.deployment.id, "version": rows.version.id},
    )


async def rows_touched(rows: Rows, statement: str, values: dict[str, Any]) -> int:
    """Rows of kickoffs that the plan's scans looked at."""
    async with rows.database.connection() as connection:
        cursor = AsyncClientCursor(connection, row_factory=tuple_row)
        *before, last = statement.split(";")
        text = ";".join([*before, f"EXPLAIN (ANALYZE, FORMAT JSON) {last}"])
        await cursor.execute(SQL(text), values)
        for _ in before:
            cursor.nextset()
        row = await cursor.fetchone()
    assert row is not None
    scans = [
        node
        for node in nodes(row[0][0]["Plan"])
        if node.get("Relation Name") == "kickoffs" and "Scan" in node["Node Type"]
    ]
    assert scans
    return sum(looked_at(node) for node in scans)


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from nodes(inner)


def looked_at(scan: dict[str, Any]) -> int:
    removed = sum(scan.get(name, 0) for name in ("Rows Removed by Filter", "Rows Removed by Index Recheck"))
    return int((scan["Actual Rows"] + removed) * scan["Actual Loops"])


async def of_a_claim(rows: Rows) -> int:
    values = {"worker": rows.worker, "slots": 2, "lease": timedelta(seconds=60)}
    return await rows_touched(rows, CLAIMING["claim"].as_string(), values)


async def test_the_count_of_rows_can_tell_a_plan_that_touches_many(rows: Rows) -> None:
    await pile_up(rows)
    assert await rows_touched(rows, "SELECT count(*) FROM kickoffs WHERE state = 'PENDING'", {}) >= MANY


@pytest.mark.parametrize("analyzed", [False, True])
@pytest.mark.parametrize("backlog", ["ready", "paused", "full", "due later", "behind one key"])
async def test_a_claim_touches_few_rows(rows: Rows, backlog: str, analyzed: bool) -> None:
    other = await rows.beside("other", **({"concurrency": 1} if backlog == "full" else {}))
    if backlog in {"full", "behind one key"}:
        await other.started(concurrency_key="k")
    columns, values = {
        "due later": (", ready, run_at", ", false, now() + interval '1 hour'"),
        "behind one key": (", ready, concurrency_key", ", false, 'k'"),
    }.get(backlog, ("", ""))
    await pile_up(other, columns, values)
    if backlog == "paused":
        await DeploymentStore(rows.database).pause("other")
    await rows.accept(3)
    if analyzed:
        await rows.database.execute("ANALYZE kickoffs")
    assert await of_a_claim(rows) < FEW


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
