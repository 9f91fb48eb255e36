"""One process for one inspection or one run: forked from a zygote, and ended with its answer."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import traceback
from typing import NoReturn

from windlass_crewside import frameworks
from windlass_crewside.channel import Channel
from windlass_crewside.faults import explain
from windlass_crewside.messages import BadMessage, Inspect, Inspected, Message, Run
from windlass_crewside.report import Report, end_with_the_worker
from windlass_crewside.surroundings import environment, flush_output, inhabit, take_output
from windlass_crewside.veil import Veil

WIND_DOWN_SECONDS = 5.0
"""How long exit handlers of crew code (flushing traces, say) may take after the answer."""


def live(descriptor: int, output: int, errors: int) -> NoReturn:
    status = os.EX_SOFTWARE
    try:
        take_output(output, errors)
        serve(Channel(descriptor))
        status = os.EX_OK
    except BaseException:  # noqa: BLE001 - nothing of the zygote's, whose stack this is, may run in a child
        traceback.print_exc()
    finally:
        flush_output()
        os._exit(status)


def serve(channel: Channel) -> None:
    order = first_message(channel)
    if not isinstance(order, Inspect | Run):
        return
    threading.Thread(target=watch, args=(channel,), name="windlass-watch", daemon=True).start()
    inhabit(order.surroundings)
    shed_the_zygote(order.project.root)
    carry_out(order, Report(channel, Veil(environment())))
    wind_down()


def first_message(channel: Channel) -> Message | None:
    while (messages := channel.receive()) is not None:
        if messages:
            return messages[0]
    return None


def watch(channel: Channel) -> None:
    """A worker that is gone must leave no run behind."""
    try:
        while channel.receive() is not None:
            pass
    except (OSError, BadMessage):
        pass
    end_with_the_worker()


def shed_the_zygote(root: str) -> None:
    """What is one for all that are forked from a zygote, and must be each one's own."""
    sys.argv = [root]
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()


def carry_out(order: Inspect | Run, report: Report) -> None:
    stage = "load"
    try:
        crew = frameworks.load(order.project)
        if isinstance(order, Inspect):
            report.send(Inspected(crew.manifest()))
        else:
            stage = "run"
            report.send(crew.run(order, report))
    except BaseException as error:  # noqa: BLE001 - around the crew's code: whatever it raises is its answer
        report.fail(explain(error, stage, order.project.root))


def wind_down() -> None:
    """Runs exit handlers as an ordinary end would, but waits for no thread, and not for ever."""
    guard = threading.Timer(WIND_DOWN_SECONDS, os._exit, args=(os.EX_OK,))
    guard.daemon = True
    guard.start()
    atexit._run_exitfuncs()  # noqa: SLF001 - os._exit, which ends a fork, would skip them
