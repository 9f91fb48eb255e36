"""One process that has imported a framework, and from which every kickoff's process is forked.

It runs no crew, has no threads and no event loop: what it holds, every child inherits (docs/projects.md).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import selectors
import signal
import socket
import sys
from typing import NoReturn

from windlass_crewside import child, preload
from windlass_crewside.channel import Channel
from windlass_crewside.messages import Exited, Fork, Forked, Kill, Message, NotForked, Ready
from windlass_crewside.surroundings import prepare_output

PR_SET_CHILD_SUBREAPER = 36


def live(descriptor: int, preloaded: str | None) -> None:
    """Serves until the other side of the socket is gone."""
    become_subreaper()
    prepare_output()
    channel = Channel(descriptor)
    answer = preload.load(preloaded)
    channel.send(answer)
    if isinstance(answer, Ready):
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            Zygote(channel).serve()
    os._exit(os.EX_OK)  # what was imported need not be taken apart


def become_subreaper() -> None:
    """What a child leaves behind when it ends comes to the zygote, not to the machine's init process."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class Zygote:
    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._children: dict[int, str] = {}
        self._selector = selectors.DefaultSelector()
        self._bell, self._ringer = socket.socketpair()

    def serve(self) -> None:
        self._listen()
        try:
            while self._turn():
                pass
        finally:
            self._end_children()

    def _listen(self) -> None:
        for end in (self._bell, self._ringer):
            end.setblocking(False)
        signal.set_wakeup_fd(self._ringer.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._selector.register(self._bell, selectors.EVENT_READ)
        self._selector.register(self._channel, selectors.EVENT_READ)

    def _turn(self) -> bool:
        ready = [key.fileobj for key, _ in self._selector.select()]
        if self._bell in ready:
            self._bell.recv(4096)
            self._reap()
        return self._obey() if self._channel in ready else True

    def _obey(self) -> bool:
        orders = self._channel.receive()
        for order in orders or ():
            self._carry_out(order)
        return orders is not None

    def _carry_out(self, order: Message) -> None:
        if isinstance(order, Fork):
            self._fork(order.child, self._channel.descriptors.popleft())
        elif isinstance(order, Kill):
            self._kill(order.child)

    def _fork(self, name: str, descriptors: list[int]) -> None:
        try:
            pid = os.fork()
        except OSError as error:
            self._channel.send(NotForked(name, f"no process could be started: {error.strerror}"))
        else:
            if pid == 0:
                self._become_child(descriptors)
            self._children[pid] = name
            self._channel.send(Forked(name, pid))
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _become_child(self, descriptors: list[int]) -> NoReturn:
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for open_end in (self._channel, self._selector, self._bell, self._ringer):
            open_end.close()
        child.live(*descriptors)

    def _kill(self, name: str) -> None:
        pids = [pid for pid, child_name in self._children.items() if child_name == name]
        for pid in pids:
            end_group(pid)
        if not pids:
            self._channel.send(NotForked(name, "there is no such process"))

    def _reap(self) -> None:
        while (pid := self._ended()) is not None:
            if pid in self._children:
                end_group(pid)  # before it is reaped: until then no one else can have its process id
            _, status = os.waitpid(pid, 0)
            if (name := self._children.pop(pid, None)) is not None:
                self._channel.send(Exited(name, pid, status))

    def _ended(self) -> int | None:
        with contextlib.suppress(ChildProcessError):
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            return None if found is None else found.si_pid
        return None

    def _end_children(self) -> None:
        for pid in self._children:
            end_group(pid)
        for pid in self._children:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def end_group(pid: int) -> None:
    # a child that has not come to its setsid yet has no group of its own: then it is killed alone
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)
