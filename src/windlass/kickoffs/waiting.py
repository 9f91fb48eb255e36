"""Decides what a kickoff waits for, from facts in the database, and describes it for people."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, Self

from windlass.kickoffs.states import RETRIED, State
from windlass.rights import may_see

if TYPE_CHECKING:
    from uuid import UUID

    from windlass.kickoffs.states import AttemptEnd


def ordinal(number: int) -> str:
    """Returns `1st`, `2nd`, `11th` and so on."""
    ending = "th" if 10 < number % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")  # noqa: PLR2004
    return f"{number}{ending}"


def how_often(count: int) -> str:
    """Returns `once`, `2 times` and so on."""
    return "once" if count == 1 else f"{count} times"


Code = Literal[
    "slot",
    "concurrency",
    "key",
    "time",
    "retry",
    "paused",
    "worker",
    "environment",
    "secrets",
    "zygote",
    "import",
    "human",
    "end",
]
MOST_COUNTED = 200
"""Places in a queue are counted up to this number."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """`message` continues the sentence "It waits for". `place` is the place in the queue, 1 for the next kickoff. It is
    None for a kickoff without a place.
    """

    code: Code
    message: str
    place: int | None = None


WAITS_OF_RUNS: dict[str, Waiting] = {
    one.code: one
    for one in (
        Waiting("human", "a person to answer a question of its crew"),
        Waiting("end", "its processes to end: it was stopped on request"),
        Waiting("environment", "the files and packages of its version, which its worker does not have yet"),
        Waiting("secrets", "the values of its variables, which its worker reads from their secret managers"),
        Waiting("zygote", "the process that crews are forked from, which is being started: some seconds"),
        Waiting("import", "the import of its project's code, which its process does now"),
    )
}
"""What a started kickoff may wait for, by what its worker reports."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Holds the facts from which `waiting` decides.

    - `holder`: the kickoff that has its turn with the same key; None if the asker may not see it
    - `holder_user`: the user who started the holder
    - `holder_state`: the state of the holder; None if there is no holder
    - `ahead`: how many kickoffs that wait for the same thing come before this one; MOST_COUNTED for that many or more
    - `running_here`: the number of running kickoffs of the crew
    - `running`: the number of all running kickoffs; None if the asker may not see it
    - `unstarted`: the number of its latest attempts that ended before a process had started
    - `workers`, `slots`: the number of workers that are alive, and of their slots
    - `ended_as`, `why`: how the latest attempt ended, and the reason
    """

    state: State
    slug: str
    paused: bool = False
    concurrency: int | None = None
    run_at: datetime | None = None
    losses: int = 0
    unstarted: int = 0
    retries: int = 0
    ended_as: AttemptEnd | None = None
    why: str | None = None
    concurrency_key: str | None = None
    waits_for_key: bool = False
    holder: str | None = None
    holder_user: UUID | None = None
    holder_state: State | None = None
    waiting_for: str | None = None
    ahead: int = 0
    running_here: int = 0
    running: int | None = 0
    workers: int = 1
    slots: int = 1

    def visible_to(self, asker: UUID | None) -> Self:
        """Returns the facts that `asker` may see. None stands for the organization, which sees all facts.

        For a user, removes the id of a kickoff that the user may not see, and the count of all running kickoffs.
        """
        holder = self.holder if may_see(asker, self.holder_user) else None
        return replace(self, holder=holder, running=None if asker else self.running)

    @property
    def place(self) -> int | None:
        return self.ahead + 1 if self.ahead < MOST_COUNTED else None

    @property
    def is_held_back_by_key(self) -> bool:
        return self.waits_for_key or self.holder_state in {State.STARTED, State.PENDING_HUMAN_INPUT}

    @property
    def is_full(self) -> bool:
        return self.concurrency is not None and self.running_here >= self.concurrency


def waiting(facts: Facts) -> Waiting | None:
    """Returns what the kickoff waits for, or None if it runs or has ended.

    Of several causes, returns the one that a person checks first.
    """
    match facts:
        case Facts(state=State.PENDING_HUMAN_INPUT):
            return WAITS_OF_RUNS["human"]
        case Facts(state=State.STARTED):
            return WAITS_OF_RUNS.get(facts.waiting_for or "")
        case Facts(state=State.PENDING):
            return _in_the_queue(facts)
    return None


def _in_the_queue(facts: Facts) -> Waiting:
    if facts.run_at is not None:
        return _for_its_time(facts, facts.run_at)
    if facts.paused:
        return Waiting("paused", f"its crew, which is paused: windlass deployments resume {facts.slug}", facts.place)
    if facts.is_held_back_by_key:
        return Waiting("key", _key(facts), facts.place if facts.waits_for_key else 1)
    if facts.workers == 0:
        return Waiting("worker", "a worker: none is alive. Start one for this crew: windlass worker", facts.place)
    if facts.is_full:
        return Waiting("concurrency", f"its crew, {_cap(facts)}; {_place(facts)}", facts.place)
    return Waiting("slot", f"{_slot(facts)}; {_place(facts)}", facts.place)


def _for_its_time(facts: Facts, run_at: datetime) -> Waiting:
    at = f"{run_at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    if facts.ended_as == RETRIED:
        return Waiting("retry", f"its next attempt, at {at}: it failed {how_often(facts.retries)}{_last_error(facts)}")
    if facts.unstarted:
        words = f"an attempt ended {how_often(facts.unstarted)} before its process had started"
        return Waiting("retry", f"its next attempt, at {at}: {words}")
    if facts.losses:
        lost = f"its process or its worker was lost {how_often(facts.losses)}"
        return Waiting("retry", f"its next attempt, at {at}: {lost}")
    return Waiting("time", f"its time to start, {at}")


def _last_error(facts: Facts) -> str:
    last = "last " if facts.retries > 1 else ""
    return f", {last}with: {facts.why.rstrip('.')}" if facts.why else ""


def _key(facts: Facts) -> str:
    if facts.holder_state is None:
        return f"its turn with the concurrencyKey {facts.concurrency_key!r}"
    does = {State.STARTED: "runs", State.PENDING_HUMAN_INPUT: "waits for a person"}
    now = does.get(facts.holder_state, "is to run before it")
    who = facts.holder or "another kickoff"
    return f"its turn with the concurrencyKey {facts.concurrency_key!r}: {who} has the same and {now}"


def _slot(facts: Facts) -> str:
    if facts.running is None:
        return "a free slot of a worker"
    if facts.slots == 0:
        return "a free slot: all workers stop, or can't write to their folders (their logs have folder.not_writable)"
    if facts.running < facts.slots:
        return "a worker to take it, which has a free slot"
    taken = min(facts.running, facts.slots)  # runs of other workers, which do not take this crew's kickoffs
    return f"a free slot: {taken} of {facts.slots} {'is' if taken == 1 else 'are'} taken"


def _cap(facts: Facts) -> str:
    run = "runs" if facts.running_here == 1 else "run"
    return f"of which {facts.running_here} {run}: its concurrency is {facts.concurrency}"


def _place(facts: Facts) -> str:
    if facts.place is None:
        return f"{MOST_COUNTED} or more are before it in the queue of this crew"
    return f"it is the {ordinal(facts.place)} in the queue of this crew"
