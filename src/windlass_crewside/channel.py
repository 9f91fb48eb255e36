from __future__ import annotations

import os
import socket
import threading
from collections import deque
from typing import TYPE_CHECKING

from windlass_crewside.messages import Frames, encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windlass_crewside.messages import Message

CHUNK = 1 << 16
MOST_DESCRIPTORS = 3


class Channel:
    """Messages over one stream socket. Sending is safe from any thread, and waits while the other side is busy.

    `descriptors` holds what came with the messages, one list for each message that carried any, in their order.
    """

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._socket.setblocking(True)
        self._socket.set_inheritable(False)
        self._frames = Frames()
        self._sending = threading.Lock()
        self._owner = os.getpid()
        self.descriptors: deque[list[int]] = deque()

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        """Raises OSError when the other side is gone, and what `encode` raises. Silent in a process that crew code
        forked: it has no say here. With descriptors the message must be a short one.
        """
        frame = encode(message)
        if os.getpid() != self._owner:
            return
        with self._sending:
            if descriptors:
                socket.send_fds(self._socket, [frame], list(descriptors))
            else:
                self._socket.sendall(frame)

    def receive(self) -> list[Message] | None:
        """Waits, and gives the messages that have arrived, none while one is incomplete.

        None when the other side is gone. Raises BadMessage.
        """
        # the kernel ends a read at the first frame that carries descriptors, so at most one set comes with it
        data, descriptors, _, _ = socket.recv_fds(self._socket, CHUNK, MOST_DESCRIPTORS)
        if descriptors:
            self.descriptors.append(descriptors)
        return list(self._frames.feed(data)) if data else None

    def first(self) -> list[Message]:
        """The first message, with those that came along with it; none when the other side is gone."""
        while (messages := self.receive()) is not None:
            if messages:
                return messages
        return []

    def close(self) -> None:
        self._socket.close()
