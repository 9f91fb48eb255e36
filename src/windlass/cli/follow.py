"""Follows a kickoff to its end, also over a restart of the server."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import partial
from itertools import chain, repeat
from typing import TYPE_CHECKING, TypeVar

from windlass.cli.crew_client import AWAY, ServerSaidNo, Unreachable
from windlass.cli.printing import Screen
from windlass.cli.progress import changes, has_ended, now

if TYPE_CHECKING:
    from collections.abc import Callable

    from windlass.cli.crew_client import CrewClient
    from windlass.cli.progress import Status

Answer = TypeVar("Answer")

WAIT = 2.0
"""Seconds for which the server may hold an answer back: an end is told at once, a task's move so much later at most."""
PAUSE = 0.5
"""Seconds between two questions at least, where a server answers at once."""
PAUSES = (0.25, 0.5, 1.0, 2.0)
"""Seconds between questions to a server that is away; the last one is repeated."""


def follow(crew: CrewClient, kickoff_id: str, *, patience: float) -> Status:
    """Shows what moves, and returns the last status. Raises Unreachable after `patience` seconds without an answer."""
    screen = Screen()
    try:
        return _watch(crew, kickoff_id, screen, Patience(patience, screen.line))
    except KeyboardInterrupt:
        screen.line(f"The kickoff runs on. Follow it again with: {crew.command('status', kickoff_id, '--watch')}")
        screen.line(f"Stop it with: {crew.command('stop', kickoff_id)}")
        raise
    finally:
        screen.clear()


def _watch(crew: CrewClient, kickoff_id: str, screen: Screen, patience: Patience) -> Status:
    seen = None
    while True:
        next_question = time.monotonic() + (PAUSE if seen else 0.0)
        status = patience.ask(partial(crew.status, kickoff_id, wait=WAIT if seen else 0.0))
        for line in changes(seen, status, crew.base_url):
            screen.line(line)
        if has_ended(status):
            return status
        screen.live(now(status, datetime.now(UTC)))
        time.sleep(max(0.0, next_question - time.monotonic()))
        seen = status


class Patience:
    """Goes on asking a server that is away, for `seconds` in a row at most."""

    def __init__(self, seconds: float, tell: Callable[[str], None]) -> None:
        self._seconds = seconds
        self._tell = tell
        self._away_since: float | None = None

    def ask(self, question: Callable[[], Answer]) -> Answer:
        pauses = chain(PAUSES, repeat(PAUSES[-1]))
        while True:
            try:
                answer = question()
            except (Unreachable, ServerSaidNo) as error:
                self._bear(error, next(pauses))
            else:
                self._be_relieved()
                return answer

    def _bear(self, error: Unreachable | ServerSaidNo, pause: float) -> None:
        if isinstance(error, ServerSaidNo) and error.status not in AWAY:
            raise error
        if self._away_since is None:
            self._away_since = time.monotonic()
            self._tell(f"The server is away, trying again for {self._seconds:g} s: {error.message}")
        left = self._away_since + self._seconds - time.monotonic()
        if left <= 0:
            raise _given_up(error, self._seconds) from error
        time.sleep(min(left, max(pause, error.retry_after)))

    def _be_relieved(self) -> None:
        if self._away_since is not None:
            self._tell("The server answers again.")
            self._away_since = None


def _given_up(error: Unreachable | ServerSaidNo, seconds: float) -> Unreachable:
    hint = "The kickoff was accepted and is not lost: it goes on when the server does. Watch it again then."
    return Unreachable(f"The server was away for more than {seconds:g} s. {error.message}", hint)
