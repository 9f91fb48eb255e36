"""Follows the events of a kickoff: reads Server-Sent Events, and decides when to connect again. It does no I/O."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import httpx

from windlass.client import requests
from windlass.client.errors import CrewError, NotACrew
from windlass.client.responses import NoAnswer, parse_outcome
from windlass.client.results import Event
from windlass.client.transport import SILENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from windlass.client.protocol import Patience
    from windlass.client.requests import Request
    from windlass.client.transport import Transport


class EventFollower:
    """Follows the events of one kickoff over any number of connections."""

    def __init__(self, kickoff_id: str, after: int, patience: Patience) -> None:
        self._kickoff_id = kickoff_id
        self._last = after
        self._patience = patience
        self._again = False
        self._data: list[str] = []
        self._name = ""
        self._ended = False

    def has_ended(self) -> bool:
        """Returns whether the kickoff has ended, and all its events were read."""
        return self._ended

    def request(self) -> Request:
        """Returns the request of the next connection."""
        self._data, self._name = [], ""
        again, self._again = self._again, True
        return requests.event_stream(self._kickoff_id, self._last, again=again)

    def feed(self, line: str) -> Event | None:
        """Takes one line, without its end. Returns the event that it completes."""
        self._patience.rest()
        if line:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "data":
                self._data.append(value)
            elif name == "event":
                self._name = value
            return None
        data, name = "\n".join(self._data), self._name
        self._data, self._name = [], ""
        if name == "end":
            self._ended = True
        return self._event(data) if data and not name else None

    def _event(self, data: str) -> Event:
        try:
            event = Event.of(json.loads(data))
        except (ValueError, RecursionError):
            raise NotACrew(200, "The stream of events is not from a crew.", "Check the address.") from None
        self._last = event.seq
        return event

    def check_ended(self, base_url: str) -> None:
        """Raises Unreachable if the connection has ended before the last event."""
        if not self._ended:
            error = httpx.RemoteProtocolError("the stream of events broke off")
            parse_outcome(NoAnswer(base_url, error, SILENCE_SECONDS))

    def pause(self, error: CrewError) -> float:
        """Returns the seconds before the next connection. Raises the error if it is permanent or the time is over."""
        return self._patience.pause(error)


def followed(
    transport: Transport, follower: EventFollower, paused: Callable[[float, CrewError], None]
) -> Iterator[Event]:
    """Yields the events. Calls `paused` with the seconds to wait before the next connection, and what ended the last
    one.
    """
    while not follower.has_ended():
        try:
            with transport.lines(follower.request()) as lines:
                if lines is None:
                    return
                for line in lines:
                    if (event := follower.feed(line)) is not None:
                        yield event
                    if follower.has_ended():
                        return
            follower.check_ended(transport.base_url)
        except CrewError as error:
            paused(follower.pause(error), error)
