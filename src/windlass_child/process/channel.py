"""Sends and receives frames and descriptors on a Unix socket."""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections import deque
from typing import TYPE_CHECKING

from windlass_child.protocol.frames import Frames, encode
from windlass_child.protocol.messages import Asked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windlass_child.protocol.messages import Message

CHUNK = 1 << 16
MOST_DESCRIPTORS = 4


class Channel:
    """Sends and receives messages over one stream socket. `send` is safe from any thread. It waits while the other side
    is busy.

    `descriptors` has one list of descriptors for each message that carried any, in the order of the messages.
    """

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._socket.setblocking(True)
        self._socket.set_inheritable(False)
        self._frames = Frames()
        self._sending = threading.Lock()
        self._ended = False
        self._owner = os.getpid()
        self._identity = identity_of(descriptor)
        self.descriptors: deque[list[int]] = deque()

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        """Sends a message. With descriptors the message must be short.

        Raises OSError when the other side is gone, OSError with EBADF when the socket was closed in this process, and
        the errors of `encode`. Sends nothing in a process that crew code forked: that process may not report. Sends
        nothing after an `Asked` that is the last message of an attempt.
        """
        frame = encode(message)
        if os.getpid() != self._owner:
            return
        with self._sending:
            if self._ended:
                return
            self._check_open()
            self._ended = isinstance(message, Asked) and not message.waits
            if descriptors:
                socket.send_fds(self._socket, [frame], list(descriptors))
            else:
                self._socket.sendall(frame)

    def receive(self) -> list[Message] | None:
        """Waits for bytes, and returns the messages that are complete, which may be none.

        Returns None when the other side is gone. Raises BadMessage.
        """
        self._check_open()
        # The kernel ends a read at the first frame that carries descriptors, so a read returns at most one set.
        data, descriptors, _, _ = socket.recv_fds(self._socket, CHUNK, MOST_DESCRIPTORS)
        if descriptors:
            self.descriptors.append(descriptors)
        return list(self._frames.feed(data)) if data else None

    def first(self) -> list[Message]:
        """Waits for the first message, and returns it with those that arrived together with it. Returns none when the
        other side is gone.
        """
        while (messages := self.receive()) is not None:
            if messages:
                return messages
        return []

    def close(self) -> None:
        self._socket.close()

    def _check_open(self) -> None:
        """Raises OSError (EBADF) when crew code has closed the socket. Another file may have its number by now."""
        if identity_of(self.fileno()) != self._identity:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))


def identity_of(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino
