from __future__ import annotations

from pathlib import Path

import click

from windlass.cli.printing import Screen, say


@click.command
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--with-key", is_flag=True, help="Put the master key into the backup: who has it can read every secret.")
@click.option("--force", is_flag=True, help="Replace FILE if it is there.")
def command(file: Path, with_key: bool, force: bool) -> None:
    """Write the embedded database to FILE.

    A server may go on serving: the backup is what was committed when it began. The master key is not in it; keep that
    too, for without it secrets, tokens and journals can't be read. A PostgreSQL of your own (WINDLASS_DATABASE_URL) is
    backed up with pg_dump.
    """
    from windlass.config import load
    from windlass.wiring.backups import backup

    settings, screen = load(), Screen()
    try:
        size = backup(
            settings,
            file.absolute(),
            with_key=with_key,
            force=force,
            say=screen.line,
            written=lambda done: screen.live(f"written {in_words(done)}"),
        )
    finally:
        screen.clear()
    say(f"The backup is whole: {file}, {in_words(size)}.")
    if with_key:
        say("It holds the master key: who has this file can read every secret. Keep it as you keep that key.")
    else:
        where = "WINDLASS_MASTER_KEY" if settings.master_key else settings.home / "master.key"
        say(f"The master key is not in it. Keep that too, apart from the backup: {where}")


def in_words(size: int) -> str:
    """Bytes as a person says them."""
    for unit, factor in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} bytes"
