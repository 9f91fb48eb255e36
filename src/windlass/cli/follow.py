"""Follows a kickoff to its end, also over a restart of the server."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from windlass.cli.crew_client import ServerSaidNo, Unreachable
from windlass.cli.printing import Screen
from windlass.cli.progress import changes, has_ended, now
from windlass.client import CrewError
from windlass.client.talks import Patience

if TYPE_CHECKING:
    from collections.abc import Callable

    from windlass.cli.crew_client import CrewClient
    from windlass.cli.progress import Status

Answer = TypeVar("Answer")

WAIT = 2.0
"""Seconds for which the server may hold an answer back: an end is told at once, a task's move so much later at most."""
PAUSE = 0.5
"""Seconds between two questions at least, where a server answers at once."""


def follow(crew: CrewClient, kickoff_id: str, *, patience: float) -> Status:
    """Shows what moves, and returns the last status. Raises Unreachable after `patience` seconds without an answer."""
    screen = Screen()
    try:
        return _watch(crew, kickoff_id, screen, Asking(patience, screen.line))
    except KeyboardInterrupt:
        screen.line(f"The kickoff runs on. Follow it again with: {crew.command('status', kickoff_id, '--watch')}")
        screen.line(f"Stop it with: {crew.command('stop', kickoff_id)}")
        raise
    finally:
        screen.clear()


def _watch(crew: CrewClient, kickoff_id: str, screen: Screen, asking: Asking) -> Status:
    seen = None
    while True:
        next_question = time.monotonic() + (PAUSE if seen else 0.0)
        status = asking.ask(partial(crew.status, kickoff_id, wait=WAIT if seen else 0.0))
        for line in changes(seen, status, crew.base_url):
            screen.line(line)
        if has_ended(status):
            return status
        screen.live(now(status, datetime.now(UTC)))
        time.sleep(max(0.0, next_question - time.monotonic()))
        seen = status


class Asking:
    """Goes on asking a server that is away, for `seconds` in a row at most, and tells of it."""

    def __init__(self, seconds: float, tell: Callable[[str], None]) -> None:
        self._patience = Patience(seconds)
        self._tell = tell
        self._away = False

    def ask(self, question: Callable[[], Answer]) -> Answer:
        while True:
            try:
                answer = question()
            except (Unreachable, ServerSaidNo) as error:
                time.sleep(self._pause(error))
            else:
                self._be_relieved()
                return answer

    def _pause(self, error: Unreachable | ServerSaidNo) -> float:
        seconds = self._patience.seconds
        try:
            pause = self._patience.pause(error.cause)
        except CrewError as cause:
            raise (_given_up(error, seconds) if cause.may_pass else error) from cause
        if not self._away:
            self._tell(f"The server is away, trying again for {seconds:g} s: {error.message}")
            self._away = True
        return pause

    def _be_relieved(self) -> None:
        self._patience.rest()
        if self._away:
            self._tell("The server answers again.")
            self._away = False


def _given_up(error: Unreachable | ServerSaidNo, seconds: float) -> Unreachable:
    hint = "The kickoff was accepted and is not lost: it goes on when the server does. Watch it again then."
    return Unreachable(error.cause, hint, message=f"The server was away for more than {seconds:g} s. {error.message}")
