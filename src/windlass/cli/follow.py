"""Follows a kickoff to its end, even if the server restarts meanwhile."""

from __future__ import annotations

import time
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
"""Seconds for which the server may delay a status. It reports the end of the kickoff at once, and a change of a task
with at most this delay.
"""
PAUSE = 0.5
"""Least number of seconds between two requests, for a server that answers at once."""


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
    seen = None
    while True:
        next_request = time.monotonic() + (PAUSE if seen else 0.0)
        status = retrying.request(partial(crew.status, kickoff_id, wait=WAIT if seen else 0.0))
        for line in changes(seen, status):
            screen.line(line)
        if has_ended(status):
            return status
        screen.live(now(status, datetime.now(UTC)))
        time.sleep(max(0.0, next_request - time.monotonic()))
        seen = status


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
