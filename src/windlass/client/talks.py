"""What is said with a crew: each talk gives its requests one after the other, is given what came of each, and returns
what it came to.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from itertools import chain, repeat
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

from windlass.client import requests
from windlass.client.answers import Answer, Outcome, judged, refused_item
from windlass.client.errors import CrewError, InvalidRequest, NotACrew, Refused
from windlass.client.requests import ANSWER_SECONDS, Request
from windlass.client.results import Inputs, KickoffFailed, Result, Status, StillRunning, Stopped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

Told = TypeVar("Told")
Talk = Generator[Request, Outcome, Told]
Clock = Callable[[], float]

WAIT = 20.0
"""Seconds for which the server may hold a status back; what stands before it may cut longer ones."""
LONGEST_WAIT = 60.0
"""The most that a server can be asked for."""
PAUSE = 0.5
"""Seconds between two questions at least, where a server answers at once."""
PAUSES = (0.25, 0.5, 1.0, 2.0)
"""Seconds between questions to a server that is away; the last one is repeated."""
GRACE = 5.0
"""Seconds that an answer may come after the time is over."""
MOST_OF_A_BATCH = 1000
LARGEST_BATCH = 900_000
"""Bytes. Where a server takes less, a batch is halved until it fits."""
TOO_LARGE = 413


class Patience:
    """Says when a request that got no answer, or one that may pass, is sent again: for `seconds` in a row at most, and
    never after `end`, a moment of the clock.

    They count from the moment at which the answer was due, or the first failure where that came before.
    """

    def __init__(self, seconds: float, clock: Clock = time.monotonic, end: float = inf) -> None:
        self.seconds = seconds
        self.clock = clock
        self._end = end
        self._since = inf
        self._pauses: Iterator[float] | None = None

    def begin(self, due: float) -> None:
        self._since = due

    def grace(self, due: float) -> float:
        """Seconds after `due` in which an answer is still awaited. One that is asked for once may take its time."""
        left = max(0.0, self._over - due) + GRACE if self.seconds else ANSWER_SECONDS
        return min(ANSWER_SECONDS, left, self._end + GRACE - due)

    def pause(self, error: CrewError) -> float:
        """Seconds to let pass first. Raises the error where it will not pass, or the time is over."""
        if not error.may_pass:
            raise error
        now, tried_again = self.clock(), self._pauses is not None
        if self._pauses is None:
            self._since = min(self._since, now)
            self._pauses = chain(PAUSES, repeat(PAUSES[-1]))
        left = self._over - now
        if left <= 0:
            if tried_again:
                error.hint = f"It was tried again for {self._over - self._since:g} s. {error.hint}".strip()
            raise error
        return min(left, max(next(self._pauses), error.retry_after))

    def rest(self) -> None:
        """The server answers again."""
        self._since = inf
        self._pauses = None

    def anew(self, end: float = inf) -> Patience:
        """As much of it, for one request among others."""
        return Patience(self.seconds, self.clock, end)

    @property
    def _over(self) -> float:
        return min(self._since + self.seconds, self._end)


def once(request: Request) -> Talk[Answer]:
    return judged((yield request))


def asked(request: Request, patience: Patience) -> Talk[Answer]:
    """A request that is held back is so until the same moment when it is sent again."""
    sent = patience.clock() + request.after
    due = sent + request.wait
    patience.begin(due)
    while True:
        ready = max(sent, due)
        outcome = yield request.held(min(request.wait, ready - sent), patience.grace(ready))
        try:
            answer = judged(outcome)
        except CrewError as error:
            request = request.later(patience.pause(error))
            sent = patience.clock() + request.after
        else:
            patience.rest()
            return answer


def inputs(patience: Patience) -> Talk[Inputs]:
    return Inputs.of((yield from asked(requests.inputs(), patience)))


def kickoff(body: bytes, patience: Patience) -> Talk[str]:
    return _id((yield from asked(requests.kickoff(body), patience)))


def status(kickoff_id: str, wait: float, patience: Patience) -> Talk[Status]:
    return Status.of((yield from asked(requests.status(kickoff_id, min(wait, LONGEST_WAIT)), patience)))


def stop(kickoff_id: str, patience: Patience) -> Talk[Stopped]:
    return Stopped.of((yield from asked(requests.stop(kickoff_id), patience)))


def wait(kickoff_id: str, timeout: float | None, patience: Patience) -> Talk[Status]:
    """Until it has ended. Raises StillRunning after `timeout` seconds where it has answered once."""
    clock, seconds = patience.clock, inf if timeout is None else timeout
    until = clock() + seconds
    pause, found = 0.0, None
    while True:
        began = clock() + pause
        request = requests.status(kickoff_id, max(0.0, min(WAIT, until - began))).later(pause)
        try:
            found = Status.of((yield from asked(request, patience.anew(until))))
        except CrewError as error:
            if found and error.may_pass and clock() >= until:
                raise StillRunning(found, seconds) from error
            raise
        if found.has_ended:
            return found
        if clock() >= until:
            raise StillRunning(found, seconds)
        pause = max(0.0, min(began + PAUSE, until) - clock())


def run(body: bytes, patience: Patience) -> Talk[Result]:
    kickoff_id = yield from kickoff(body, patience)
    ended = yield from wait(kickoff_id, None, patience)
    if ended.result is None:
        raise KickoffFailed(ended)
    return ended.result


def kickoff_many(given: Sequence[bytes | InvalidRequest], patience: Patience) -> Talk[list[str | Refused]]:
    """In the order given, which is of bodies, or of why there is none. What is refused for now only is sent again
    while there is patience.
    """
    bodies = {place: body for place, body in enumerate(given) if isinstance(body, bytes)}
    found: dict[int, str | Refused] = {place: why for place, why in enumerate(given) if not isinstance(why, bytes)}
    waiting, pause = list(bodies), 0.0
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
    return [found[place] for place in range(len(given))]


def _batch(
    places: list[int], bodies: Mapping[int, bytes], pause: float, patience: Patience
) -> Talk[dict[int, str | Refused]]:
    request = requests.kickoffs([bodies[place] for place in places]).later(pause)
    try:
        answer = yield from asked(request, patience.anew())
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


def _parts(places: Iterable[int], bodies: Mapping[int, bytes]) -> Iterator[list[int]]:
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
