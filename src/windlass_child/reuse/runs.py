"""Executes the runs of a process, one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass_child.process.error_text import text_of
from windlass_child.process.output import flush_output
from windlass_child.process.process_env import apply
from windlass_child.protocol.messages import Begun, Idle, Run
from windlass_child.reuse import baseline

if TYPE_CHECKING:
    from collections.abc import Callable

    from windlass_child.process.channel import Channel
    from windlass_child.process.inbox import Inbox
    from windlass_child.process.report import Report
    from windlass_child.protocol.messages import Inspect


def run_several(
    order: Inspect | Run | None,
    channel: Channel,
    inbox: Inbox,
    prepare: Callable[[Run], Report],
    execute: Callable[[Run, Report], bool],
) -> None:
    """Executes orders until there is no further one, or until a run did not succeed or has left something."""
    before = None
    while isinstance(order, Run):
        channel.send(Begun())
        apply(order.process_environment, order.project.root)
        if before is None:
            before = baseline.begin(order)
        else:
            before.put_variables()
        report = prepare(order)
        if not before.context().run(execute, order, report):  # nothing keeps the context, which may hold the crew
            return
        try:
            report.close()
            flush_output()
            before.restore()
        except Exception as error:  # noqa: BLE001 - objects of crew code may raise anything
            reason = text_of(error) if isinstance(error, baseline.NotReusable) else f"of {type(error).__name__}"
            report.warn("not_reused", f"The next kickoff gets another process, because {reason}.")
            return
        inbox.stopping.lease = None
        channel.send(Idle())
        order = inbox.orders.get()
