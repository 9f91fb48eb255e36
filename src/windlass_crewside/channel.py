from __future__ import annotations

import errno
import os
import socket
import threading
from collections import deque
from typing import TYPE_CHECKING

from windlass_crewside.frames import Frames, encode

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
        self._identity = identity_of(descriptor)
        self.descriptors: deque[list[int]] = deque()

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        """Raises OSError when the other side is gone, with EBADF when the socket was closed here, and what `encode`
        raises. Silent in a process that crew code forked: it has no say here. With descriptors the message must be a
        short one.
        """
        frame = encode(message)
        if os.getpid() != self._owner:
            return
        with self._sending:
            self._see_that_it_is_there()
            if descriptors:
                socket.send_fds(self._socket, [frame], list(descriptors))
            else:
                self._socket.sendall(frame)

    def receive(self) -> list[Message] | None:
        """Waits, and gives the messages that have arrived, none while one is incomplete.

        None when the other side is gone. Raises BadMessage.
        """
        self._see_that_it_is_there()
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

    def _see_that_it_is_there(self) -> None:
        """Crew code may have closed it, and what it opened after that has its number by now."""
        if identity_of(self.fileno()) != self._identity:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))


def identity_of(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino
