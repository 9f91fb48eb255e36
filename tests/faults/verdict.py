"""What the witnesses say after the faults: whether anything was lost, paid for twice, or written too late."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from faults.witness import USAGE_OF_A_CALL, repeated, run_again

if TYPE_CHECKING:
    from faults.cluster import Cluster
    from faults.watch import Runner
    from faults.witness import Call
    from store.audit import Right

UNTOLD_TASKS = """
SELECT kickoff_id, task_records.name, task_records.state
  FROM task_records
  JOIN kickoffs ON kickoffs.id = kickoff_id
 WHERE kickoffs.state = 'SUCCESS' AND task_records.state <> 'completed'
"""
USAGE = "SELECT id, (token_usage ->> 'total_tokens')::int AS tokens FROM kickoffs WHERE state = 'SUCCESS'"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Lists of what must not be; each entry says of which kickoff it is."""

    without_end: list[Any] = field(default_factory=list)
    two_ends: list[Any] = field(default_factory=list)
    two_kickoffs: list[Any] = field(default_factory=list)
    wrong_moves: list[Any] = field(default_factory=list)
    finished_and_run_again: list[Any] = field(default_factory=list)
    repeated_without_a_kill: list[Any] = field(default_factory=list)
    late_rows: list[Any] = field(default_factory=list)
    past_their_lease: list[Any] = field(default_factory=list)
    untold_tasks: list[Any] = field(default_factory=list)
    wrong_usage: list[Any] = field(default_factory=list)

    @property
    def troubles(self) -> dict[str, list[Any]]:
        """Empty when all is well."""
        return {name: found for name in self.__slots__ if (found := getattr(self, name))}


def verdict(cluster: Cluster) -> Verdict:
    """Of the kickoffs that are in `accepted`. To be asked when all of them should have ended."""
    audit, mine = cluster.audit, cluster.kickoff_ids()
    runs = {started.run for started in cluster.accepted}
    calls = [call for call in cluster.witness.calls() if call.run in runs]
    cluster.watch.look()
    return Verdict(
        without_end=[kickoff for kickoff in audit.without_end() if kickoff in mine],
        two_ends=[kickoff for kickoff in audit.more_than_one_end() if kickoff in mine],
        two_kickoffs=two_kickoffs(cluster),
        wrong_moves=audit.wrong_moves(),
        finished_and_run_again=run_again(calls) + after_the_journal(cluster, calls),
        repeated_without_a_kill=repeated_without_a_kill(cluster, calls),
        late_rows=[row for row in audit.late_rows() if row["kickoff_id"] in mine],
        past_their_lease=past_their_lease(cluster),
        untold_tasks=[row for row in audit.rows(UNTOLD_TASKS) if row["kickoff_id"] in mine],
        wrong_usage=wrong_usage(cluster, calls),
    )


def two_kickoffs(cluster: Cluster) -> list[Any]:
    """Of one request, which was repeated with its idempotency key; and of none that was answered."""
    found = cluster.audit.rows("SELECT inputs ->> 'run' AS run, count(*) AS count FROM kickoffs GROUP BY 1")
    counts = {row["run"]: row["count"] for row in found}
    return [(started.run, counts.get(started.run, 0)) for started in cluster.accepted if counts.get(started.run) != 1]


def after_the_journal(cluster: Cluster, calls: list[Call]) -> list[Call]:
    """Calls of a crew's task that began when the journal held it."""
    ids = {started.run: kickoff for kickoff, started in cluster.kickoff_ids().items() if started.slug == "crew"}
    journaled = {key: at.timestamp() for key, at in cluster.audit.journaled_at().items()}
    crews = [(call, journaled.get((ids[call.run], call.step - 1))) for call in calls if call.run in ids]
    return [call for call, at in crews if at is not None and call.began > at]


def repeated_without_a_kill(cluster: Cluster, calls: list[Call]) -> list[Any]:
    """A kill may cost the one call that was in flight."""
    attempts = {str(row["id"]): row["attempt"] for row in cluster.audit.rows("SELECT id, attempt FROM kickoffs")}
    more = repeated(calls)
    return [
        (started.id, f"{more[started.run]} calls more in {attempts[started.id]} attempts")
        for started in cluster.accepted
        if more[started.run] > attempts[started.id] - 1
    ]


def wrong_usage(cluster: Cluster, calls: list[Call]) -> list[Any]:
    """Crews that have not counted each step's answer, in whichever attempt it came, or more than was answered."""
    answered = Counter(call.run for call in calls if call.ended is not None)
    steps = Counter(run for run, _ in {(call.run, call.step) for call in calls})
    tokens = {row["id"]: row["tokens"] for row in cluster.audit.rows(USAGE)}
    return [
        (started.id, f"{tokens[kickoff]} tokens of {answered[started.run]} answers, {steps[started.run]} steps")
        for kickoff, started in cluster.kickoff_ids().items()
        if started.slug == "crew" and kickoff in tokens
        if not steps[started.run] <= (tokens[kickoff] or 0) / USAGE_OF_A_CALL <= answered[started.run]
    ]


def past_their_lease(cluster: Cluster) -> list[Any]:
    rights, ids = cluster.audit.rights(), {one.run: kickoff for kickoff, one in cluster.kickoff_ids().items()}
    found = []
    for runner in cluster.watch.all:
        right, until = right_of(runner, rights.get(ids[runner.run], [])) if runner.run in ids else (None, None)
        if right and (late := last_at_work(cluster, runner, until) - right.until.timestamp()) > 0:
            found.append((str(right.kickoff_id), right.attempt, f"{late:.2f} s"))
    return found


def last_at_work(cluster: Cluster, runner: Runner, next_attempt: float | None) -> float:
    """When it was last seen alive. With `reuse`, its process may live on after its last call of the model, and may run
    the next attempt too: it does if all calls since then are its own.
    """
    if cluster.reuse == 1:
        return runner.alive
    calls = cluster.witness.calls(runner.run)
    after = [call for call in calls if next_attempt is not None and call.began >= next_attempt]
    if {call.pid for call in after} == {runner.process.pid}:
        calls = [call for call in calls if call not in after]
    return max((call.ended or runner.alive for call in calls if call.pid == runner.process.pid), default=runner.alive)


def right_of(runner: Runner, rights: list[Right]) -> tuple[Right | None, float | None]:
    """Of the attempt that it runs: the last one that had begun when it first asked the model. Also returns when the
    next attempt began.
    """
    begun = [right for right in rights if right.since.timestamp() <= runner.asked]
    later = [right.since.timestamp() for right in rights[len(begun) :]]
    return (begun[-1] if begun else None), (later[0] if later else None)
