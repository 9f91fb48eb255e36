from __future__ import annotations

import click

from windlass.cli.serving import say, serving_settings


@click.command
@click.option(
    "--slots", metavar="N", type=click.IntRange(1, 1000), help="Kickoffs at once, in place of WINDLASS_SLOTS."
)
def command(slots: int | None) -> int:
    """Run kickoffs, as one of many processes.

    Needs WINDLASS_DATABASE_URL, and the WINDLASS_MASTER_KEY that all processes on it share; the projects of the crews
    must be at the same paths on each machine. On SIGTERM it claims nothing more, lets what runs go on for
    WINDLASS_DRAIN_GRACE seconds, and gives the rest back to other workers, which go on after the last finished task. A
    second SIGTERM, or Ctrl-C, does not wait.
    """
    settings = serving_settings({"slots": slots})
    from windlass.wiring.separate import work

    return work(settings, say=say)
