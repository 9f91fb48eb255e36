from __future__ import annotations

import click

from windlass.cli.serving import notify, serving_settings


@click.command
@click.option(
    "--slots", metavar="N", type=click.IntRange(1, 1000), help="Kickoffs at once, in place of WINDLASS_SLOTS."
)
def worker(slots: int | None) -> int:
    """Run kickoffs, as one of many processes.

    Needs WINDLASS_DATABASE_URL, and the WINDLASS_MASTER_KEY that all processes of this database share. The projects of
    the crews must have the same paths on each machine. On SIGTERM the worker claims no more kickoffs, and its runs have
    WINDLASS_DRAIN_GRACE seconds to finish. It releases the others to other workers, which continue after the last
    finished task. After a second SIGTERM, or Ctrl-C, it does not wait.
    """
    settings = serving_settings({"slots": slots})
    from windlass.wiring.process import work

    return work(settings, notify=notify)
