"""The messages of the worker, as the child takes them."""

from __future__ import annotations

import queue
from typing import TYPE_CHECKING

from windlass_child.journal.journal import Journal
from windlass_child.process.budget import Stopping
from windlass_child.protocol.messages import (
    Abort,
    Answered,
    Inspect,
    JournalCommitted,
    JournalReplay,
    Lease,
    NextRun,
    Quit,
    Run,
)

if TYPE_CHECKING:
    from windlass_child.process.channel import Channel
    from windlass_child.protocol.messages import Message


class Inbox:
    """The messages of the worker. `stopping` and `journal` have those of the current run, `orders` has each order, and
    None at the end.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.orders: queue.SimpleQueue[Inspect | Run | None] = queue.SimpleQueue()
        self._begin()

    def _begin(self) -> None:
        self.stopping, self.journal = Stopping(), Journal(self._channel)

    def put(self, message: Message) -> None:
        if isinstance(message, Abort):
            self.stopping.ask(message.message)
        elif isinstance(message, Lease):
            self.stopping.lease = message.until
        elif isinstance(message, JournalReplay):
            self.journal.remember(message)
        elif isinstance(message, JournalCommitted):
            self.journal.written(message.number)
        elif isinstance(message, Answered):
            self.journal.answered(message)
        elif isinstance(message, NextRun):
            self._begin()
        elif isinstance(message, Inspect | Run):
            self.orders.put(message)
        elif isinstance(message, Quit):
            self.orders.put(None)
