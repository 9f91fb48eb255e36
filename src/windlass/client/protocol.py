"""The exchanges with a crew, as generators. A generator yields requests, receives the outcome of each, and returns the
parsed result. It does no I/O.
"""

# See docs/decisions/api.md#a-client-is-a-generator

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Generator
from http import HTTPStatus
from itertools import chain, repeat
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

from windlass.client import requests
from windlass.client.errors import Conflict, CrewError, InvalidRequest, NotACrew, Refused
from windlass.client.requests import ANSWER_SECONDS, Request
from windlass.client.responses import Answer, Outcome, parse_content, parse_outcome, refused_item
from windlass.client.results import File, Inputs, KickoffFailed, Result, Resumed, Status, StillRunning, Stopped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

Parsed = TypeVar("Parsed")
Exchange = Generator[Request, Outcome, Parsed]
Clock = Callable[[], float]

WAIT = 20.0
"""Seconds for which the server may hold back a status. A proxy may cut longer requests."""
LONGEST_WAIT = 60.0
"""Seconds: the server's limit for `wait`."""
PAUSE = 0.5
"""Minimum seconds between two requests for a status, if the server answers immediately."""
PAUSE_FOR_PERSON = 5.0
"""Seconds between two requests while the kickoff waits for a person: the server answers those immediately."""
PAUSES = (0.25, 0.5, 1.0, 2.0)
"""Seconds between tries if the server is unavailable. The last value is repeated."""
GRACE = 5.0
"""Seconds in which the client accepts an answer after its time is over."""
MOST_OF_A_BATCH = 1000
LARGEST_BATCH = 900_000
"""Bytes. If the server's limit is lower, a batch is halved until it fits."""
TOO_LARGE = 413
PIECE = 1 << 20
"""Bytes of a file that one request asks for."""


class Patience:
    """Decides when to repeat a request that failed temporarily. It allows tries for `seconds` in a row at most, and
    none after the time `end` of `clock`.

    `seconds` count from the time at which the answer was due, or from the first failure if that was earlier.
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
        """Returns the seconds after `due` in which the client still waits for an answer. A request that is not repeated
        gets the full time.
        """
        left = max(0.0, self._over - due) + GRACE if self.seconds else ANSWER_SECONDS
        return min(ANSWER_SECONDS, left, self._end + GRACE - due)

    def pause(self, error: CrewError) -> float:
        """Returns the seconds before the next try. Raises the error if it is permanent, or if the time is over."""
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
        """Resets the time, because the server has answered."""
        self._since = inf
        self._pauses = None

    def copy(self, end: float = inf) -> Patience:
        """Returns a new Patience with the same seconds, for one of several requests."""
        return Patience(self.seconds, self.clock, end)

    @property
    def _over(self) -> float:
        return min(self._since + self.seconds, self._end)


def once(request: Request) -> Exchange[Answer]:
    return parse_outcome((yield request))


def retried(request: Request, patience: Patience) -> Exchange[Answer]:
    return _retried(request, patience, parse_outcome)


def _retried(request: Request, patience: Patience, parse: Callable[[Outcome], Parsed]) -> Exchange[Parsed]:
    """Repeats a request while `patience` allows. The end of its `wait` stays the same in each try."""
    sent = patience.clock() + request.after
    due = sent + request.wait
    patience.begin(due)
    while True:
        ready = max(sent, due)
        outcome = yield request.held(min(request.wait, ready - sent), patience.grace(ready))
        try:
            answer = parse(outcome)
        except CrewError as error:
            request = request.later(patience.pause(error))
            sent = patience.clock() + request.after
        else:
            patience.rest()
            return answer


def inputs(patience: Patience) -> Exchange[Inputs]:
    return Inputs.of((yield from retried(requests.inputs(), patience)))


def kickoff(body: bytes, patience: Patience) -> Exchange[str]:
    return _id((yield from retried(requests.kickoff(body), patience)))


def status(kickoff_id: str, wait: float, patience: Patience) -> Exchange[Status]:
    return Status.of((yield from retried(requests.status(kickoff_id, min(wait, LONGEST_WAIT)), patience)))


def files(kickoff_id: str, patience: Patience) -> Exchange[list[File]]:
    found = (yield from retried(requests.files(kickoff_id), patience)).get("files")
    if not isinstance(found, list):
        raise NotACrew(200, "The answer has no `files`, so it is not from a crew.", "Check the address.")
    return [File.of(file if isinstance(file, dict) else {}) for file in found]


def content(kickoff_id: str, file: File, write: Callable[[bytes], None], patience: Patience) -> Exchange[None]:
    """Passes the content of the file to `write`, in pieces. Raises Conflict if the content is another one by now."""
    digest, start = hashlib.sha256(), 0
    while start < file.size:
        end = min(start + PIECE, file.size)
        request = requests.piece(kickoff_id, file.path, file.sha256, start, end)
        piece = yield from _retried(request, patience, parse_content)
        if len(piece) != end - start:
            raise _changed(file)
        digest.update(piece)
        write(piece)
        start = end
    if digest.hexdigest() != file.sha256:
        raise _changed(file)


def _changed(file: File) -> Conflict:
    message = f"The content of {file.path!r} is not the one that the list of files describes."
    return Conflict(HTTPStatus.CONFLICT, message, "The run may still change it: list the files again.")


def stop(kickoff_id: str, patience: Patience) -> Exchange[Stopped]:
    return Stopped.of((yield from retried(requests.stop(kickoff_id), patience)))


def resume(
    kickoff_id: str,
    task_id: str | None,
    approve: bool | None,
    feedback: str | None,
    key: str | None,
    patience: Patience,
) -> Exchange[Resumed]:
    """Answers the question of a kickoff, or with `task_id` that question or the one of that task."""
    if task_id is None:
        found = yield from status(kickoff_id, 0.0, patience.copy())
        if found.human_input is None:
            message = f"Kickoff {kickoff_id} does not wait for an answer: its state is {found.state}."
            raise InvalidRequest(HTTPStatus.BAD_REQUEST, message, "Wait until its state is PENDING_HUMAN_INPUT.")
        task_id = found.human_input.task_id
    return Resumed.of((yield from retried(requests.resume(kickoff_id, task_id, approve, feedback, key), patience)))


def delete(kickoff_id: str, stop: bool, patience: Patience) -> Exchange[None]:
    yield from retried(requests.delete(kickoff_id, stop=stop), patience)


def stop_all(request: Request, patience: Patience) -> Exchange[int]:
    stopped = (yield from retried(request, patience)).get("stopped")
    if not isinstance(stopped, int):
        raise NotACrew(200, "The answer has no `stopped`, so it is not from a crew.", "Check the address.")
    return stopped


def wait(kickoff_id: str, timeout: float | None, patience: Patience) -> Exchange[Status]:
    """Waits until the kickoff has ended. Raises StillRunning after `timeout` seconds if the server answered before."""
    clock, seconds = patience.clock, inf if timeout is None else timeout
    until = clock() + seconds
    pause, found = 0.0, None
    while True:
        began = clock() + pause
        request = requests.status(kickoff_id, max(0.0, min(WAIT, until - began))).later(pause)
        try:
            found = Status.of((yield from retried(request, patience.copy(until))))
        except CrewError as error:
            if found and error.may_pass and clock() >= until:
                raise StillRunning(found, seconds) from error
            raise
        if found.has_ended:
            return found
        if clock() >= until:
            raise StillRunning(found, seconds)
        least = PAUSE if found.human_input is None else PAUSE_FOR_PERSON
        pause = max(0.0, min(began + least, until) - clock())


def run(body: bytes, patience: Patience) -> Exchange[Result]:
    kickoff_id = yield from kickoff(body, patience)
    ended = yield from wait(kickoff_id, None, patience)
    if ended.result is None:
        raise KickoffFailed(ended)
    return ended.result


def kickoff_many(given: Sequence[bytes | InvalidRequest], patience: Patience) -> Exchange[list[str | Refused]]:
    """Returns an id or an error for each item, in the same order. `given` holds a body for each item, or the reason why
    it has none. Items that were refused temporarily are sent again while `patience` allows.
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
) -> Exchange[dict[int, str | Refused]]:
    request = requests.kickoffs([bodies[place] for place in places]).later(pause)
    try:
        answer = yield from retried(request, patience.copy())
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
        raise NotACrew(200, "The answer to a batch does not have an entry for each kickoff.", "Check the address.")
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
    members = item if isinstance(item, dict) else {}
    kickoff_id = members.get("kickoff_id")
    return kickoff_id if isinstance(kickoff_id, str) else refused_item(members.get("error"))


def _id(answer: Answer) -> str:
    found = answer.get("kickoff_id")
    if not isinstance(found, str):
        raise NotACrew(200, "The answer has no `kickoff_id`, so it is not from a crew.", "Check the address.")
    return found
