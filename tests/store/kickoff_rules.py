"""What must hold of all rows after each move, seen at one look: a test takes thousands of steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

if TYPE_CHECKING:
    from store.kickoff_model import Expected, Model

    Rows = list[dict[str, Any]]

LOOK = """
SELECT (SELECT coalesce(json_agg(one), '[]')
          FROM (SELECT id, state, attempt, losses, retries, worker_id, lease_until, state = 'PENDING' AND ready AS ready
                  FROM kickoffs) AS one) AS kickoffs,
       (SELECT coalesce(json_agg(one), '[]')
          FROM (SELECT kickoff_id AS id, seq, attempt FROM events ORDER BY seq) AS one) AS events,
       (SELECT coalesce(json_agg(one), '[]')
          FROM (SELECT kickoff_id AS id, state FROM task_records ORDER BY position) AS one) AS tasks,
       (SELECT coalesce(json_agg(one), '[]')
          FROM (SELECT kickoff_id AS id, position FROM journal ORDER BY number) AS one) AS journal,
       (SELECT coalesce(json_agg(one), '[]')
          FROM (SELECT kickoff_id AS id, attempt, ended_as, ended_at FROM attempts ORDER BY attempt) AS one) AS attempts
"""


def check(rows: dict[str, Rows], model: Model) -> None:
    """`rows` are those of LOOK."""
    kickoffs_are_as_expected(rows["kickoffs"], model)
    caps_and_keys_hold(model)
    ready = {UUID(row["id"]) for row in rows["kickoffs"] if row["ready"]}
    what_waits_for_nothing_is_ready(ready, model)
    one_of_each_free_key_has_its_turn(ready, model)
    for kickoff, expected in model.items():
        mine = {name: [row for row in found if row["id"] == str(kickoff)] for name, found in rows.items()}
        events_are_numbered_without_a_gap(mine["events"], expected)
        what_is_in_the_journal_stays_finished(mine["tasks"], mine["journal"], expected)
        each_attempt_tells_how_it_ended(mine["attempts"], expected)


def kickoffs_are_as_expected(rows: Rows, model: Model) -> None:
    columns = ("state", "attempt", "losses", "retries", "worker_id")
    assert {row["id"]: tuple(row[name] for name in columns) for row in rows} == {
        str(kickoff): (one.state, one.attempt, one.losses, one.retries, one.worker and str(one.worker))
        for kickoff, one in model.items()
    }
    assert all((row["lease_until"] is None) is (row["worker_id"] is None) for row in rows)


def caps_and_keys_hold(model: Model) -> None:
    running = model.running()
    assert all(running[deployment] <= cap for deployment, cap in model.caps.items())
    assert all(count == 1 for count in model.running_of_queues().values())


def what_waits_for_nothing_is_ready(ready: set[UUID], model: Model) -> None:
    assert model.waits_for_nothing() == {kickoff for kickoff in ready if not model[kickoff].key}
    assert not any(model[kickoff].later for kickoff in ready)


def one_of_each_free_key_has_its_turn(ready: set[UUID], model: Model) -> None:
    for queue, waiting in model.free_queues().items():
        assert len(waiting & ready) == 1, queue


def events_are_numbered_without_a_gap(events: Rows, expected: Expected) -> None:
    assert [(row["seq"], row["attempt"]) for row in events] == expected.events
    assert [row["seq"] for row in events] == list(range(1, len(events) + 1))


def what_is_in_the_journal_stays_finished(tasks: Rows, journal: Rows, expected: Expected) -> None:
    assert [row["state"] for row in tasks] == expected.task_rows
    assert [row["position"] for row in journal] == expected.journal


def each_attempt_tells_how_it_ended(attempts: Rows, expected: Expected) -> None:
    assert [row["attempt"] for row in attempts] == list(range(1, expected.attempt + 1))
    assert [row["ended_as"] for row in attempts] == expected.ends
    assert [row["ended_at"] is None for row in attempts] == [end is None for end in expected.ends]
