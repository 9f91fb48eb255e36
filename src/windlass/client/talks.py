"""What is said with a crew: each talk gives its requests one after the other, is given what came of each, and returns
what it came to.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from itertools import chain, repeat
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

from windlass.client import requests
from windlass.client.answers import Answer, Outcome, judged, refused_item
from windlass.client.errors import CrewError, InvalidRequest, NotACrew, Refused
from windlass.client.requests import Request
from windlass.client.results import Inputs, KickoffFailed, Result, Status, StillRunning, Stopped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Told = TypeVar("Told")
Talk = Generator[Request, Outcome, Told]
Clock = Callable[[], float]

WAIT = 20.0
"""Seconds for which the server may hold a status back; what stands before it may cut longer ones."""
PAUSE = 0.5
"""Seconds between two questions at least, where a server answers at once."""
PAUSES = (0.25, 0.5, 1.0, 2.0)
"""Seconds between questions to a server that is away; the last one is repeated."""
MOST_OF_A_BATCH = 1000
LARGEST_BATCH = 900_000
"""Bytes. Where a server takes less, a batch is halved until it fits."""
TOO_LARGE = 413


class Patience:
    """Says when a request that got no answer, or one that may pass, is sent again: for `seconds` in a row at most."""

    def __init__(self, seconds: float, clock: Clock = time.monotonic) -> None:
        self.seconds = seconds
        self.clock = clock
        self._until: float | None = None
        self._pauses: Iterator[float] = iter(())

    def pause(self, error: CrewError) -> float:
        """Seconds to let pass first. Raises the error where it will not pass, or the time is over."""
        if not error.may_pass:
            raise error
        now = self.clock()
        if self._until is None:
            self._until = now + self.seconds
            self._pauses = chain(PAUSES, repeat(PAUSES[-1]))
        left = self._until - now
        if left <= 0:
            if self.seconds:
                error.hint = f"It was tried again for {self.seconds:g} s. {error.hint}".strip()
            raise error
        return min(left, max(next(self._pauses), error.retry_after))

    def rest(self) -> None:
        """The server answers again."""
        self._until = None

    def within(self, seconds: float) -> Patience:
        return Patience(min(self.seconds, seconds), self.clock)


def once(request: Request) -> Talk[Answer]:
    return judged((yield request))


def asked(request: Request, patience: Patience) -> Talk[Answer]:
    while True:
        outcome = yield request
        try:
            answer = judged(outcome)
        except CrewError as error:
            request = request.later(patience.pause(error))
        else:
            patience.rest()
            return answer


def inputs(patience: Patience) -> Talk[Inputs]:
    return Inputs.of((yield from asked(requests.inputs(), patience)))


def kickoff(body: bytes, patience: Patience) -> Talk[str]:
    return _id((yield from asked(requests.kickoff(body), patience)))


def status(kickoff_id: str, wait: float, patience: Patience) -> Talk[Status]:
    return Status.of((yield from asked(requests.status(kickoff_id, wait), patience)))


def stop(kickoff_id: str, patience: Patience) -> Talk[Stopped]:
    return Stopped.of((yield from asked(requests.stop(kickoff_id), patience)))


def wait(kickoff_id: str, timeout: float | None, patience: Patience) -> Talk[Status]:
    """Until it has ended. Raises StillRunning after `timeout` seconds."""
    clock = patience.clock
    until = float("inf") if timeout is None else clock() + timeout
    pause = 0.0
    while True:
        began = clock() + pause
        left = max(0.0, until - began)
        request = requests.status(kickoff_id, min(WAIT, left)).later(pause)
        found = Status.of((yield from asked(request, patience.within(left))))
        if found.has_ended:
            return found
        if timeout is not None and clock() >= until:
            raise StillRunning(found, timeout)
        pause = max(0.0, min(began + PAUSE, until) - clock())


def run(body: bytes, patience: Patience) -> Talk[Result]:
    kickoff_id = yield from kickoff(body, patience)
    ended = yield from wait(kickoff_id, None, patience)
    if ended.result is None:
        raise KickoffFailed(ended)
    return ended.result


def kickoff_many(bodies: Sequence[bytes], patience: Patience) -> Talk[list[str | Refused]]:
    """In the order of the bodies. What is refused for now only is sent again while there is patience."""
    found: dict[int, str | Refused] = {}
    waiting, pause = list(range(len(bodies))), 0.0
    while waiting:
        for part in _parts(waiting, bodies):
            found |= yield from _batch(part, bodies, pause, patience)
            pause = 0.0
        later = {place: error for place in waiting if isinstance(error := found[place], Refused) and error.may_pass}
        waiting = list(later)
        if later:
            try:
                pause = patience.pause(max(later.values(), key=attrgetter("retry_after")))
            except Refused:
                break
    return [found[place] for place in range(len(bodies))]


def _batch(
    places: list[int], bodies: Sequence[bytes], pause: float, patience: Patience
) -> Talk[dict[int, str | Refused]]:
    request = requests.kickoffs([bodies[place] for place in places]).later(pause)
    try:
        answer = yield from asked(request, patience.within(patience.seconds))
    except InvalidRequest as error:
        if error.status != TOO_LARGE:
            raise
        if len(places) == 1:
            return {places[0]: error}
        half = len(places) // 2
        first = yield from _batch(places[:half], bodies, 0.0, patience)
        return first | (yield from _batch(places[half:], bodies, 0.0, patience))
    items = answer.get("kickoffs")
    if not isinstance(items, list) or len(items) != len(places):
        raise NotACrew(200, "The answer to a batch of kickoffs does not have one for each.", "Check the address.")
    return dict(zip(places, map(_accepted, items), strict=True))


def _parts(places: list[int], bodies: Sequence[bytes]) -> Iterator[list[int]]:
    part: list[int] = []
    size = 0
    for place in places:
        size += len(bodies[place]) + 1
        if part and (len(part) == MOST_OF_A_BATCH or size > LARGEST_BATCH):
            yield part
            part, size = [], len(bodies[place]) + 1
        part.append(place)
    if part:
        yield part


def _accepted(item: object) -> str | Refused:
    said = item if isinstance(item, dict) else {}
    kickoff_id = said.get("kickoff_id")
    return kickoff_id if isinstance(kickoff_id, str) else refused_item(said.get("error"))


def _id(answer: Answer) -> str:
    found = answer.get("kickoff_id")
    if not isinstance(found, str):
        raise NotACrew(200, "The answer to a kickoff has no `kickoff_id`: it is not a crew's.", "Check the address.")
    return found
