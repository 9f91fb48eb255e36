"""The child: a process for one inspection or one run.

A zygote starts it. It ends after its answer, or takes further runs of its crew (windlass_child.reuse).
"""

from __future__ import annotations

import atexit
import contextlib
import os
import random
import select
import signal
import sys
import threading
import time
import traceback
from functools import partial
from typing import NoReturn

from windlass_child import kinds
from windlass_child.masking.redaction import Redaction
from windlass_child.masking.server_paths import ServerPaths
from windlass_child.process import library_logs
from windlass_child.process.budget import check_result
from windlass_child.process.channel import Channel
from windlass_child.process.error_text import interpreter
from windlass_child.process.inbox import Inbox
from windlass_child.process.output import flush_output, take_output, write_stacks_when_asked
from windlass_child.process.process_env import apply, environment, refuse_input
from windlass_child.process.prompts import REFUSE
from windlass_child.process.report import Report, end_with_the_lease, end_with_the_worker, end_without_reader
from windlass_child.protocol.frames import BadMessage
from windlass_child.protocol.lease import wait_for
from windlass_child.protocol.messages import (
    DUMP_SIGNAL,
    Born,
    Inspect,
    Inspected,
    Loaded,
    Run,
    Warned,
)
from windlass_child.protocol.working_folder import fill, has_files
from windlass_child.reuse.runs import run_several

WIND_DOWN_SECONDS = 5.0
"""How long exit handlers of crew code, for example to flush traces, may take after the answer."""

LOOK_FOR_ZYGOTE_SECONDS = 1.0
"""The interval of checks for the zygote's end on systems without pidfd."""

MEMORY = "/proc/self/smaps_rollup"
MOST_THREADS = 5
MOMENT = 0.5
"""Seconds in which threads may end that work at the end of a run, before a warning names them."""
OWN_THREADS = "windlass-"
"""The start of the names of our own threads."""
IDLE = ("_worker", "concurrent.futures.thread")
"""The function, and its module, in which a thread of a pool waits for work."""


def main(descriptor: int, output: int, errors: int, zygote: int) -> NoReturn:
    """Runs the child. `zygote` is the process id of its zygote. The child ends when its zygote ends."""
    status = os.EX_SOFTWARE
    try:
        signal.signal(DUMP_SIGNAL, signal.SIG_IGN)  # until there is a file to write to
        take_output(output, errors)
        channel = Channel(descriptor)
        be_announced(channel, stacks_file())
        serve(channel, zygote)
        status = os.EX_OK
    except BaseException:  # noqa: BLE001 - this is the stack of the zygote, whose code must not run in a child
        traceback.print_exc()
    finally:
        flush_output()
        os._exit(status)


def be_announced(channel: Channel, stacks: int | None) -> None:
    """Sends the worker the descriptors with which it can read the memory use of this process and the stacks of its
    threads. They stay open for the worker with any code in this process.
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
    with contextlib.suppress(OSError):  # the child can run without the file
        return write_stacks_when_asked()
    return None


def serve(channel: Channel, zygote: int) -> None:
    inbox = Inbox(channel)
    arguments = (channel, zygote, handle_of(zygote), inbox)
    threading.Thread(target=watch, args=arguments, name="windlass-watch", daemon=True).start()
    order = inbox.orders.get()
    if isinstance(order, Run) and order.reuse:
        run_several(order, channel, inbox, lambda one: prepared(one, channel, inbox), execute)
    elif order is not None:
        apply(order.process_environment, order.project.root)
        execute(order, prepared(order, channel, inbox))
    wind_down()


def prepared(order: Inspect | Run, channel: Channel, inbox: Inbox) -> Report:
    """Prepares this process for the order, once its environment is set."""
    folder = order.process_environment.working_folder
    fill(order.project.root, folder)
    reset_inherited_state(order.project.root)
    refuse_input()
    redaction = Redaction(environment(), order.process_environment.secrets)
    refuse = isinstance(order, Run) and order.secret_in_prompt == REFUSE
    paths = ServerPaths(order.project.root, interpreter(), order.process_environment.folder)
    report = Report(channel, redaction, inbox.stopping, inbox.journal, refuse_secrets=refuse, paths=paths)
    report.restore_journal()
    inbox.journal.has_files = partial(has_files, order.project.root, folder)
    if isinstance(order, Run):
        library_logs.keep_apart(report, order.project.root)
    return report


def watch(channel: Channel, zygote: int, handle: int | None, inbox: Inbox) -> None:
    """Receives the messages of the worker. Ends this process when the worker or the zygote is gone or the lease has
    ended, so that no run outlives them. `handle` is that of the zygote (`handle_of`).
    """
    try:
        listen(channel, zygote, handle, inbox)
    except BadMessage:
        end_with_the_worker()
    except OSError as error:
        end_without_reader(error)
    end_with_the_worker()


def listen(channel: Channel, zygote: int, handle: int | None, inbox: Inbox) -> None:
    """Receives messages until the worker or the zygote is gone. Ends this process when the lease has ended."""
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    if handle is not None:
        poll.register(handle, select.POLLIN)
    while os.getppid() == zygote:
        wait = milliseconds(wait_for(inbox.stopping.lease), LOOK_FOR_ZYGOTE_SECONDS if handle is None else None)
        ready = dict(poll.poll(wait))
        if handle is not None and ready.get(handle, 0) & select.POLLNVAL:  # the crew's code has closed it
            poll.unregister(handle)
            handle = None
        if channel.fileno() in ready:
            if (messages := channel.receive()) is None:
                return
            for message in messages:
                inbox.put(message)
        elif wait == 0:  # the lease has ended, and no renewal is unread; after a longer wait there may be one
            end_with_the_lease()


def milliseconds(*waits: float | None) -> float | None:
    """Returns the shortest of these waits (seconds) in milliseconds, for a poll. None waits without end."""
    return min((wait * 1000 for wait in waits if wait is not None), default=None)


def handle_of(process: int) -> int | None:
    """Returns a descriptor that becomes readable when the process ends, or None where there is no pidfd."""
    try:
        return os.pidfd_open(process)
    except (OSError, AttributeError):
        return None


def reset_inherited_state(root: str) -> None:
    """Resets the state that all children of a zygote share and that each must have of its own."""
    sys.argv = [root]
    random.seed()
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()


def execute(order: Inspect | Run, report: Report) -> bool:
    """Executes the order and sends the answer. Returns whether it succeeded."""
    stage = "load"
    try:
        report.stopping.check()
        crew = kinds.load(order.project)
        in_prompts = report.prompts.check(crew.prompts()) if report.prompts else []
        if isinstance(order, Inspect):
            warnings = [*crew.warnings(), *in_prompts]
            report.warn_all(warnings)
            report.send(Inspected({**crew.manifest(), "warnings": [in_manifest(one, report) for one in warnings]}))
        else:
            stage = "run"
            report.send(Loaded())
            report.warn_all(in_prompts)
            report.stopping.check()
            result = crew.run(order, report)
            check_result(result, order.budget.result_limit)
            warn_of_threads(report)
            report.send(result)
    except BaseException as error:  # noqa: BLE001 - the crew's code may raise anything; the error is the answer
        report.fail(error, stage, order.project.root)
        return False
    return True


def warn_of_threads(report: Report) -> None:
    """Warns of threads that would keep an ordinary Python process alive. The end of the run ends them.

    A thread whose work is awaited may still run the last lines of a library, for which MOMENT is enough.
    """
    until = time.monotonic() + MOMENT
    while (names := [one.name for one in threading.enumerate() if is_unfinished(one)]) and time.monotonic() < until:
        time.sleep(MOMENT / 50)
    if names:
        more = f" and {len(names) - MOST_THREADS} more" if len(names) > MOST_THREADS else ""
        report.warn(
            "threads_ended",
            f"the kickoff ended while threads of the crew's code worked: {', '.join(names[:MOST_THREADS])}{more}. "
            "Wait for them before the last task ends, for example by thread.join() or future.result()",
        )


def is_unfinished(thread: threading.Thread) -> bool:
    """Returns whether a thread of the crew's code works. An idle thread of a pool, which waits for work, does not."""
    if thread.daemon or thread is threading.main_thread() or thread.name.startswith(OWN_THREADS):
        return False
    frame = sys._current_frames().get(thread.ident or 0)  # noqa: SLF001 - the only way to see what a thread does
    return frame is not None and (frame.f_code.co_name, frame.f_globals.get("__name__")) != IDLE


def in_manifest(warning: Warned, report: Report) -> dict[str, str]:
    return {"code": warning.code, "message": report.shown(warning.message)}


def wind_down() -> None:
    """Runs exit handlers as an ordinary exit does, but waits for no thread, and for WIND_DOWN_SECONDS at most."""
    guard = threading.Timer(WIND_DOWN_SECONDS, os._exit, args=(os.EX_OK,))
    guard.daemon = True
    guard.start()
    atexit._run_exitfuncs()  # noqa: SLF001 - os._exit, which ends the child, would skip them
