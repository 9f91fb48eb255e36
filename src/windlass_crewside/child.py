"""One process for one inspection or one run: started by a zygote, and ended with its answer."""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import signal
import sys
import threading
import traceback
from typing import TYPE_CHECKING, NoReturn

from windlass_crewside import frameworks, nobody
from windlass_crewside.budget import check_result
from windlass_crewside.channel import Channel
from windlass_crewside.faults import explain
from windlass_crewside.frames import BadMessage
from windlass_crewside.journal import Journal
from windlass_crewside.lease import wait_for
from windlass_crewside.messages import (
    DUMP_SIGNAL,
    Abort,
    Born,
    Inspect,
    Inspected,
    Lease,
    Message,
    Remember,
    Run,
    Written,
)
from windlass_crewside.report import Report, end_unheard, end_with_the_worker
from windlass_crewside.stopping import Stopping
from windlass_crewside.surroundings import environment, flush_output, inhabit, take_output, write_stacks_when_asked
from windlass_crewside.veil import Veil

if TYPE_CHECKING:
    from collections.abc import Iterable

WIND_DOWN_SECONDS = 5.0
"""How long exit handlers of crew code (flushing traces, say) may take after the answer."""

LOOK_FOR_ZYGOTE_SECONDS = 1.0
"""Where the system can't tell of the end of a process that is not one's child."""

MEMORY = "/proc/self/smaps_rollup"


def live(descriptor: int, output: int, errors: int, zygote: int) -> NoReturn:
    """`zygote` is the process id of the one that started this process, and whose end is to be its end too."""
    status = os.EX_SOFTWARE
    try:
        signal.signal(DUMP_SIGNAL, signal.SIG_IGN)  # until there is a file to write to
        take_output(output, errors)
        channel = Channel(descriptor)
        be_announced(channel, stacks_file())
        serve(channel, zygote)
        status = os.EX_OK
    except BaseException:  # noqa: BLE001 - nothing of the zygote's, whose stack this is, may run in a child
        traceback.print_exc()
    finally:
        flush_output()
        os._exit(status)


def be_announced(channel: Channel, stacks: int | None) -> None:
    """Gives the worker ways to see what memory this process uses and where its threads stand, which stay open to it
    whatever is run here.
    """
    memory = memory_file()
    given = [file for file in (memory, stacks) if file is not None]
    try:
        channel.send(Born(memory is not None, stacks is not None), given)
    finally:
        if memory is not None:
            os.close(memory)


def memory_file() -> int | None:
    with contextlib.suppress(OSError):
        return os.open(MEMORY, os.O_RDONLY)
    return None


def stacks_file() -> int | None:
    with contextlib.suppress(OSError):  # it can run without one
        return write_stacks_when_asked()
    return None


def serve(channel: Channel, zygote: int) -> None:
    stopping, journal = Stopping(), Journal(channel)
    if (order := order_from(channel, stopping, journal)) is None:
        return
    told = (channel, zygote, stopping, journal)
    threading.Thread(target=watch, args=told, name="windlass-watch", daemon=True).start()
    inhabit(order.surroundings)
    shed_the_zygote(order.project.root)
    nobody.answers_input()
    carry_out(order, Report(channel, Veil(environment()), stopping, journal))
    wind_down()


def order_from(channel: Channel, stopping: Stopping, journal: Journal) -> Inspect | Run | None:
    """Waits for it, and heeds what comes before it and with it."""
    while (messages := channel.receive()) is not None:
        obey(messages, stopping, journal)
        for message in messages:
            if isinstance(message, Inspect | Run):
                return message
    return None


def watch(channel: Channel, zygote: int, stopping: Stopping, journal: Journal) -> None:
    """Hears what the worker asks. A worker or zygote that is gone, or a lease that ended, must leave no run behind."""
    try:
        listen(channel, zygote, stopping, journal)
    except BadMessage:
        end_with_the_worker()
    except OSError as error:
        end_unheard(error)
    end_with_the_worker()


def listen(channel: Channel, zygote: int, stopping: Stopping, journal: Journal) -> None:
    """Until the worker or the zygote is gone, or the lease has ended."""
    handle = handle_of(zygote)
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    if handle is not None:
        poll.register(handle, select.POLLIN)
    while os.getppid() == zygote:
        wait = milliseconds(wait_for(stopping.lease), LOOK_FOR_ZYGOTE_SECONDS if handle is None else None)
        ready = dict(poll.poll(wait))
        if handle is not None and ready.get(handle, 0) & select.POLLNVAL:  # the crew's code has closed it
            poll.unregister(handle)
            handle = None
        if channel.fileno() in ready:
            if (messages := channel.receive()) is None:
                return
            obey(messages, stopping, journal)
        elif wait == 0:  # the lease has ended, and no renewal waits to be read: a longer wait may be cut short unlooked
            return


def milliseconds(*waits: float | None) -> float | None:
    """Of the shortest of these seconds, for a poll."""
    return min((wait * 1000 for wait in waits if wait is not None), default=None)


def handle_of(process: int) -> int | None:
    """A descriptor that can be read from when the process has ended."""
    try:
        return os.pidfd_open(process)
    except (OSError, AttributeError):
        return None


def obey(messages: Iterable[Message], stopping: Stopping, journal: Journal) -> None:
    for message in messages:
        if isinstance(message, Abort):
            stopping.ask(message.message)
        elif isinstance(message, Lease):
            stopping.lease = message.until
        elif isinstance(message, Remember):
            journal.remember(message)
        elif isinstance(message, Written):
            journal.written(message.number)


def shed_the_zygote(root: str) -> None:
    """What is one for all that are forked from a zygote, and must be each one's own."""
    sys.argv = [root]
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()


def carry_out(order: Inspect | Run, report: Report) -> None:
    stage = "load"
    try:
        report.stopping.check()
        crew = frameworks.load(order.project)
        if isinstance(order, Inspect):
            for warning in crew.warnings():
                report.warn(warning.code, warning.message, warning.task)
            report.send(Inspected(crew.manifest()))
        else:
            stage = "run"
            report.stopping.check()
            result = crew.run(order, report)
            check_result(result, order.budget.result_limit)
            report.send(result)
    except BaseException as error:  # noqa: BLE001 - around the crew's code: whatever it raises is its answer
        report.fail(explain(error, stage, order.project.root))


def wind_down() -> None:
    """Runs exit handlers as an ordinary end would, but waits for no thread, and not for ever."""
    guard = threading.Timer(WIND_DOWN_SECONDS, os._exit, args=(os.EX_OK,))
    guard.daemon = True
    guard.start()
    atexit._run_exitfuncs()  # noqa: SLF001 - os._exit, which ends a fork, would skip them
