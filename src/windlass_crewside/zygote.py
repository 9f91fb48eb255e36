"""One process that has imported a framework, and from which every kickoff's process is forked.

It runs no crew, has no threads and no event loop: what it holds, every child inherits (docs/processes.md).
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import sys
import time
from pathlib import Path
from typing import NamedTuple, NoReturn

from windlass_crewside import child, preload, processes
from windlass_crewside.channel import Channel
from windlass_crewside.hardening import become_subreaper, outlive_parent
from windlass_crewside.lease import Leases
from windlass_crewside.messages import (
    Exited,
    Fork,
    Forked,
    Kill,
    Lease,
    Message,
    NotForked,
    Preload,
    Ready,
    Signal,
    Unready,
)
from windlass_crewside.surroundings import environment, prepare_output

PROGRAM = Path(__file__).with_name("__main__.py")

NICENESS = 10
"""Of children: however busy they are, the server and the zygote come first."""

LEFTOVER_SECONDS = 5.0
"""How long the end of a child is kept back for what it left: a process that waits for a disk can't be killed."""

LOOK_AGAIN_SECONDS = 0.05


def live(descriptor: int, preloaded: str | None, *, with_project: bool = False) -> None:
    """Serves until the other side of the socket is gone."""
    become_subreaper()
    prepare_output()
    channel, machine = Channel(descriptor), environment()
    answer = prepare(channel, preloaded, with_project=with_project)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        outlive_parent()  # from now on it reads its socket, and ends its children first
        if answer is not None:
            channel.send(answer)
        if isinstance(answer, Ready):
            Zygote(channel, machine).serve()
    os._exit(os.EX_OK)  # what was imported need not be taken apart


def prepare(channel: Channel, preloaded: str | None, *, with_project: bool) -> Ready | Unready | None:
    """None when no one is there any more."""
    if not with_project:
        return preload.load(preloaded)
    orders = channel.first()
    return preload.load(preloaded, orders[0]) if orders and isinstance(orders[0], Preload) else None


class Ending(NamedTuple):
    """A child that has ended, while there may be something left of it. `until` on the monotonic clock."""

    told: Exited
    until: float


class Zygote:
    """`machine` is the environment that it was started with: of a child that is to share nothing else."""

    def __init__(self, channel: Channel, machine: dict[str, str]) -> None:
        self._channel = channel
        self._machine = machine
        self._pid = os.getpid()
        self._children: dict[int, str] = {}
        self._leases = Leases()
        self._endings: list[Ending] = []
        self._untidy = False
        self._own = set(processes.children(self._pid))
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
        wait = self._wait()
        ready = [key.fileobj for key, _ in self._selector.select(wait)]
        if self._bell in ready:
            self._bell.recv(4096)
        self._reap()
        self._tell_endings()
        if self._channel in ready:
            return self._obey()
        if wait == 0:  # a lease has ended, and no renewal waits to be read: a longer wait may be cut short unlooked
            self._end_lapsed()
        return True

    def _wait(self) -> float | None:
        waits = [self._leases.wait(), LOOK_AGAIN_SECONDS if self._untidy else None]
        return min((wait for wait in waits if wait is not None), default=None)

    def _obey(self) -> bool:
        orders = self._channel.receive()
        for order in orders or ():
            self._carry_out(order)
        return orders is not None

    def _carry_out(self, order: Message) -> None:
        if isinstance(order, Fork):
            self._fork(order, self._channel.descriptors.popleft())
        elif isinstance(order, Kill):
            self._kill(order.child)
        elif isinstance(order, Signal):
            self._signal(order)
        elif isinstance(order, Lease) and self._pids(order.child):  # it may have ended meanwhile
            self._leases.keep(order.child, order.until)

    def _fork(self, order: Fork, descriptors: list[int]) -> None:
        try:
            pid = os.fork()
        except OSError as error:
            self._channel.send(NotForked(order.child, f"no process could be started: {error.strerror}"))
        else:
            if pid == 0:
                self._become_child(order, descriptors)
            self._children[pid] = order.child
            self._channel.send(Forked(order.child, pid))
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _become_child(self, order: Fork, descriptors: list[int]) -> NoReturn:
        os.setsid()
        become_subreaper()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for open_end in (self._channel, self._selector, self._bell, self._ringer):
            open_end.close()
        os.nice(NICENESS)
        if order.start == "exec":
            start_afresh(descriptors, self._pid, self._machine)
        channel, output, errors = descriptors
        child.live(channel, output, errors, self._pid)

    def _pids(self, name: str) -> list[int]:
        return [pid for pid, child_name in self._children.items() if child_name == name]

    def _kill(self, name: str) -> None:
        pids = self._pids(name)
        processes.end(pids)
        if not pids and name not in (ending.told.child for ending in self._endings):
            self._channel.send(NotForked(name, "there is no such process"))

    def _signal(self, order: Signal) -> None:
        for pid in self._pids(order.child):
            if order.below:
                processes.send_below([pid], order.number)
            processes.send(pid, order.number)

    def _end_lapsed(self) -> None:
        """A child does so itself, unless its interpreter is held, or it is stopped, or its socket is closed."""
        if lapsed := self._leases.take_lapsed():
            processes.end([pid for pid, name in self._children.items() if name in lapsed])

    def _reap(self) -> None:
        while (pid := self._ended()) is not None:
            name = self._children.pop(pid, None)
            if name is not None:
                processes.send_to_group(pid, signal.SIGKILL)  # while no one else can have its process id
            _, status = os.waitpid(pid, 0)
            self._own.discard(pid)
            if name is not None:
                self._untidy = True
                lapsed = self._leases.drop(name) and processes.was_killed(status)
                self._endings.append(Ending(Exited(name, pid, status, lapsed), time.monotonic() + LEFTOVER_SECONDS))

    def _ended(self) -> int | None:
        with contextlib.suppress(ChildProcessError):
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            return None if found is None else found.si_pid
        return None

    def _tell_endings(self) -> None:
        """A child has ended when nothing is left of it. Whose a leftover is can't be known: all wait for all."""
        if not self._untidy:
            return
        self._untidy = self._end_leftovers()  # also when its end is told already: what is left is ended all the same
        now = time.monotonic()
        told = [ending for ending in self._endings if not self._untidy or ending.until < now]
        self._endings = [ending for ending in self._endings if ending not in told]
        for ending in told:
            self._channel.send(ending.told)

    def _end_leftovers(self) -> bool:
        """Kills what children that have ended left behind, which is this process's now; whether there was any.

        Not what belongs to living children, which keep their own, nor what the zygote had before its first child.
        """
        left = [pid for pid in processes.children(self._pid) if pid not in self._children and pid not in self._own]
        if left:
            processes.end(left)
        return bool(left)

    def _end_children(self) -> None:
        processes.end(list(self._children))
        self._children.clear()
        self._own.clear()
        deadline = time.monotonic() + LEFTOVER_SECONDS / 2
        while time.monotonic() < deadline and self._end_leftovers():
            time.sleep(processes.PAUSE)
            self._reap()


def start_afresh(descriptors: list[int], zygote: int, machine: dict[str, str]) -> NoReturn:
    """Makes this process one that holds nothing of what the zygote has imported."""
    try:
        for descriptor in descriptors:
            os.set_inheritable(descriptor, True)
        arguments = ["-X", "utf8", str(PROGRAM), "child", *map(str, descriptors), str(zygote)]
        os.execve(sys.executable, [sys.executable, *arguments], machine)  # noqa: S606 - no shell is wanted
    except OSError as error:
        os.write(descriptors[-1], f"{sys.executable} can't be started again: {error.strerror}\n".encode())
    finally:
        os._exit(os.EX_SOFTWARE)
