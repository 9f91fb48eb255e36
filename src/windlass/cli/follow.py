"""Follows a kickoff to its end, even if the server restarts meanwhile."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from windlass.cli.crew_session import RequestRefused, Unreachable
from windlass.cli.printing import Screen
from windlass.cli.progress import changes, has_ended, now
from windlass.client import CrewError
from windlass.client.protocol import Patience

if TYPE_CHECKING:
    from collections.abc import Callable

    from windlass.cli.crew_session import CrewClient
    from windlass.cli.progress import Status

Answer = TypeVar("Answer")

NOT_LOST = "The kickoff was accepted and is not lost. It continues when the server runs again: watch it again then."

WAIT = 2.0
"""Seconds between two statuses of a kickoff without events, such as one that waits."""
PAUSE = 0.5
"""Least number of seconds between two requests, for a server that answers at once."""
SHORTEST = 0.1
"""Least number of seconds between two statuses of a kickoff whose events follow quickly."""


def follow(crew: CrewClient, kickoff_id: str, *, patience: float) -> Status:
    """Shows each change of the kickoff, and returns the final status.

    Raises Unreachable after `patience` seconds without an answer.
    """
    screen = Screen()
    try:
        return _watch(crew, kickoff_id, screen, Retrying(patience, screen.line))
    except KeyboardInterrupt:
        screen.line(f"The kickoff runs on. Follow it again with: {crew.command('status', kickoff_id, '--watch')}")
        screen.line(f"Stop it with: {crew.command('stop', kickoff_id)}")
        raise
    finally:
        screen.clear()


def _watch(crew: CrewClient, kickoff_id: str, screen: Screen, retrying: Retrying) -> Status:
    seen, news = None, News(crew, kickoff_id)
    while True:
        next_request = time.monotonic() + (PAUSE if seen else 0.0)
        wait = WAIT if seen and not news.follows else 0.0
        status = retrying.request(partial(crew.status, kickoff_id, wait=wait))
        for line in changes(seen, status):
            screen.line(line)
        if has_ended(status):
            return status
        screen.live(now(status, datetime.now(UTC)))
        if news.follows:
            news.wait()
        else:
            time.sleep(max(0.0, next_request - time.monotonic()))
        seen = status


class News:
    """Follows the events of a kickoff in a thread. `follows` is false once it can't, for example with an older server:
    the statuses then show the changes, some later.
    """

    def __init__(self, crew: CrewClient, kickoff_id: str) -> None:
        self._something = threading.Event()
        self.follows = True
        follow = partial(self._follow, crew, kickoff_id)
        threading.Thread(target=follow, name="windlass-events", daemon=True).start()

    def wait(self) -> None:
        """Waits for an event or the end, for WAIT seconds at most."""
        time.sleep(SHORTEST)
        self._something.wait(WAIT)
        self._something.clear()

    def _follow(self, crew: CrewClient, kickoff_id: str) -> None:
        with suppress(Exception):  # without its events, the kickoff is followed by its statuses
            for _ in crew.followed_events(kickoff_id, 0.0, lambda _, __: None):
                self._something.set()
        self.follows = False
        self._something.set()


class Retrying:
    """Repeats requests while the server is not available, for at most `seconds` in a row, and reports it.

    `hint` is that of the error when the server stays unavailable.
    """

    def __init__(self, seconds: float, notify: Callable[[str], None], hint: str = NOT_LOST) -> None:
        self._patience = Patience(seconds)
        self._hint = hint
        self._notify = notify
        self._unavailable = False

    def request(self, send: Callable[[], Answer]) -> Answer:
        while True:
            try:
                answer = send()
            except (Unreachable, RequestRefused) as error:
                time.sleep(self._pause(error))
            else:
                self._reset()
                return answer

    def _pause(self, error: Unreachable | RequestRefused) -> float:
        seconds = self._patience.seconds
        try:
            pause = self._patience.pause(error.cause)
        except CrewError as cause:
            raise (_given_up(error, seconds, self._hint) if cause.may_pass else error) from cause
        if not self._unavailable:
            self._notify(f"The server is not available, trying again for {seconds:g} s: {error.message}")
            self._unavailable = True
        return pause

    def _reset(self) -> None:
        self._patience.rest()
        if self._unavailable:
            self._notify("The server answers again.")
            self._unavailable = False


def _given_up(error: Unreachable | RequestRefused, seconds: float, hint: str) -> Unreachable:
    return Unreachable(
        error.cause, hint, message=f"The server was not available for more than {seconds:g} s. {error.message}"
    )
