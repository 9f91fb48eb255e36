"""The zygote: a process that has imported a framework, and from which the processes of kickoffs are forked.

It runs no crew, and has no threads and no event loop, because every child inherits its state
(docs/concepts/processes.md).
"""

# See docs/decisions/child.md#a-zygote-runs-little-python-between-forks

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import NamedTuple, NoReturn

from windlass_child.process import child, namespaces, places, preload, processes
from windlass_child.process.channel import Channel
from windlass_child.process.hardening import become_subreaper, bound_tasks, confine, resume_without_parent
from windlass_child.process.huge_pages import HugePages
from windlass_child.process.output import prepare_output
from windlass_child.process.process_env import environment
from windlass_child.protocol.frames import encode
from windlass_child.protocol.lease import LAPSED, Leases
from windlass_child.protocol.messages import (
    Exited,
    Fork,
    Forked,
    Kill,
    Lease,
    Listening,
    Message,
    NotForked,
    Preload,
    Ready,
    Signal,
    Unready,
)
from windlass_child.protocol.working_folder import HOME, TEMPORARY, WORK

PROGRAM = Path(__file__).parents[1] / "__main__.py"

NICENESS = 10
"""The niceness of children, so that the server and the zygote have priority over busy children."""

LEFTOVER_SECONDS = 5.0
"""How long the report of a child's exit waits for the end of its leftover processes. A process that waits for a disk
can't be killed.
"""

LOOK_AGAIN_SECONDS = 0.05


def main(descriptor: int, preloaded: str | None, *, with_project: bool = False) -> None:
    """Runs the zygote until the other side of the socket is gone."""
    become_subreaper()
    prepare_output()
    channel, machine = Channel(descriptor), environment()
    answer = prepare(channel, preloaded, with_project=with_project)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        resume_without_parent()  # from now on the zygote reads its socket, and ends its children before itself
        if answer is not None:
            channel.send(answer)
        if isinstance(answer, Ready):
            Zygote(channel, machine, forks=not answer.threads).serve()
    os._exit(os.EX_OK)  # no finalizers of imported modules need to run


def prepare(channel: Channel, preloaded: str | None, *, with_project: bool) -> Ready | Unready | None:
    """Imports the framework and returns the answer for the worker; None when the worker is gone."""
    if not with_project:
        return preload.load(preloaded)
    orders = channel.first()
    return preload.load(preloaded, orders[0]) if orders and isinstance(orders[0], Preload) else None


class ChildEnd(NamedTuple):
    """A child that has ended, and whose leftover processes may still run. `exited` is reported at `until` (monotonic
    clock) at the latest.
    """

    exited: Exited
    until: float


class Zygote:
    """Forks children on orders of the worker, and reports their exits. `machine` is the environment that the zygote was
    started with, for children with `start="exec"`. Without `forks`, all children are started so.
    """

    def __init__(self, channel: Channel, machine: dict[str, str], *, forks: bool = True) -> None:
        self._forks = forks
        self._channel = channel
        self._machine = machine
        self._pid = os.getpid()
        self._children: dict[int, str] = {}
        self._leases = Leases()
        self._endings: list[ChildEnd] = []
        self._untidy = False
        self._own = set(processes.children(self._pid))
        self._poll = select.poll()
        self._bell, self._ringer = socket.socketpair()
        self._huge_pages = HugePages()
        self._machine_places = places.of_the_machine() | places.of_this_python()

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
        self._poll.register(self._bell, select.POLLIN)
        self._poll.register(self._channel, select.POLLIN)

    def _turn(self) -> bool:
        wait = self._wait()
        milliseconds = 0 if self._huge_pages else None if wait is None else wait * 1000
        ready = [number for number, _ in self._poll.poll(milliseconds)]
        if self._huge_pages and not ready:  # while nobody waits for a fork
            self._huge_pages.step()
        if self._bell.fileno() in ready:
            self._bell.recv(4096)
        self._reap()
        self._report_exits()
        if self._channel.fileno() in ready:
            return self._handle()
        if wait == 0:  # a lease has ended, and no renewal is unread; after a longer wait there may be one
            self._end_lapsed()
        return True

    def _wait(self) -> float | None:
        wait = self._leases.wait()
        if not self._untidy:
            return wait
        return LOOK_AGAIN_SECONDS if wait is None else min(wait, LOOK_AGAIN_SECONDS)

    def _handle(self) -> bool:
        orders = self._channel.receive()
        for order in orders or ():
            self._execute(order)
        return orders is not None

    def _execute(self, order: Message) -> None:
        if isinstance(order, Fork):
            self._fork(order, self._channel.descriptors.popleft())
        elif isinstance(order, Kill):
            self._kill(order.child)
        elif isinstance(order, Signal):
            self._signal(order)
        elif isinstance(order, Lease) and self._pids(order.child):  # the child may have ended meanwhile
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
            if order.lease is not None:
                self._leases.keep(order.child, order.lease)
            self._channel.send(Forked(order.child, pid))
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _become_child(self, order: Fork, descriptors: list[int]) -> NoReturn:
        channel, output, errors, *door = descriptors
        os.setsid()
        become_subreaper()
        if order.user is not None or order.ports is not None:
            separate(order, channel, errors, door)
        resume_without_parent()
        confine(None if order.places is None else self._machine_places | order.places)
        if order.tasks is not None:
            bound_tasks(order.tasks)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for open_end in (self._channel, self._bell, self._ringer):
            open_end.close()
        os.nice(NICENESS)
        if order.start == "exec" or not self._forks:
            start_afresh(order.folder, [channel, output, errors], self._pid, self._machine)
        child.main(channel, output, errors, self._pid)

    def _pids(self, name: str) -> list[int]:
        return [pid for pid, child_name in self._children.items() if child_name == name]

    def _kill(self, name: str) -> None:
        pids = self._pids(name)
        processes.end(pids)
        if not pids and name not in (ending.exited.child for ending in self._endings):
            self._channel.send(NotForked(name, "there is no such process"))

    def _signal(self, order: Signal) -> None:
        for pid in self._pids(order.child):
            if order.below:
                processes.send_below([pid], order.number)
            processes.send(pid, order.number)

    def _end_lapsed(self) -> None:
        """Ends the children whose lease has ended. A child ends itself, unless its interpreter is blocked, its process
        is stopped or its socket is closed.
        """
        if lapsed := self._leases.take_lapsed():
            processes.end([pid for pid, name in self._children.items() if name in lapsed])

    def _reap(self) -> None:
        while (pid := self._ended()) is not None:
            name = self._children.pop(pid, None)
            if name is not None:
                processes.send_to_group(pid, signal.SIGKILL)  # before the reap no other process can have its id
            _, status = os.waitpid(pid, 0)
            self._own.discard(pid)
            if name is not None:
                self._untidy = True
                killed = self._leases.drop(name) and processes.was_killed(status)
                lapsed = killed or (os.WIFEXITED(status) and os.WEXITSTATUS(status) == LAPSED)
                self._endings.append(ChildEnd(Exited(name, pid, status, lapsed), time.monotonic() + LEFTOVER_SECONDS))

    def _ended(self) -> int | None:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return None
        return None if found is None else found.si_pid

    def _report_exits(self) -> None:
        """Reports the exits of children that have no leftover processes. A leftover process can't be attributed to one
        child, so exits are reported when no leftover is alive, or after LEFTOVER_SECONDS.
        """
        if not self._untidy:
            return
        self._untidy = self._end_leftovers()  # also after the report of the exit: leftovers are ended in any case
        now = time.monotonic()
        due = [ending for ending in self._endings if not self._untidy or ending.until < now]
        self._endings = [ending for ending in self._endings if ending not in due]
        for ending in due:
            self._channel.send(ending.exited)

    def _end_leftovers(self) -> bool:
        """Kills the leftover processes of ended children, which the zygote has adopted. Returns whether there were any.

        Living children adopt their own leftovers. Processes that the zygote had before its first child are not killed.
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


def separate(order: Fork, channel: int, errors: int, door: list[int]) -> None:
    """Puts this process into namespaces of its own, and sends the worker the sockets of its network. Ends it, with the
    reason in its output, where that is not possible: it must not run in those of the zygote.
    """
    try:
        listeners = namespaces.enter(door[0] if door else None, order.user, order.ports)
        if listeners:
            hand_over(channel, listeners)
    except OSError as error:
        os.write(errors, f"the process can't be separated from others: {error.strerror or error}\n".encode())
        os._exit(os.EX_SOFTWARE)
    for descriptor in door:
        os.close(descriptor)


def hand_over(channel: int, listeners: list[socket.socket]) -> None:
    """Sends the worker the sockets, of which this process keeps none."""
    worker = socket.socket(fileno=channel)
    try:
        socket.send_fds(worker, [encode(Listening())], [one.fileno() for one in listeners])
    finally:
        worker.detach()
        for one in listeners:
            one.close()


def start_afresh(folder: str, descriptors: list[int], zygote: int, machine: dict[str, str]) -> NoReturn:
    """Replaces this process by a fresh interpreter without the modules of the zygote. `folder` is that of its run: the
    interpreter and the packages that it loads first read no other home than the run's.
    """
    try:
        for descriptor in descriptors:
            os.set_inheritable(descriptor, True)
        os.chdir(f"{folder}/{WORK}")
        own = {**machine, "HOME": f"{folder}/{HOME}", "TMPDIR": f"{folder}/{TEMPORARY}"}
        arguments = ["-s", "-X", "utf8", str(PROGRAM), "child", *map(str, descriptors), str(zygote)]
        os.execve(sys.executable, [sys.executable, *arguments], own)  # noqa: S606 - no shell is wanted
    except OSError as error:
        os.write(descriptors[-1], f"{sys.executable} can't be started again: {error.strerror}\n".encode())
    finally:
        os._exit(os.EX_SOFTWARE)
