from __future__ import annotations

from pathlib import Path

import click

from windlass.cli.printing import Screen, json_option, notify, print_json


@click.command
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option(
    "--with-key",
    is_flag=True,
    help="Put the master key into the backup. With it, the backup can be used to read every secret.",
)
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@json_option
def command(file: Path, *, with_key: bool, force: bool, json_output: bool) -> None:
    """Write the embedded database to FILE.

    A server may run meanwhile. The backup contains the data that was committed when the backup began. It does not
    contain the master key. Keep the key too: without it, secrets, tokens and journals can't be read. Back up a
    PostgreSQL of your own (WINDLASS_DATABASE_URL) with pg_dump.
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
            notify=screen.line,
            written=lambda done: screen.live(f"written {in_words(done)}"),
        )
    finally:
        screen.clear()
    if json_output:
        print_json({"file": file.absolute(), "bytes": size, "has_master_key": with_key})
    notify(f"The backup is complete: {file}, {in_words(size)}.")
    if with_key:
        notify("It contains the master key, so this file is enough to read every secret. Protect it like the key.")
    else:
        where = "WINDLASS_MASTER_KEY" if settings.master_key else settings.home / "master.key"
        notify(f"It does not contain the master key. Keep the key too, in another place than the backup: {where}")


def in_words(size: int) -> str:
    """Returns a number of bytes with its unit, such as `1.5 MB`."""
    for unit, factor in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} bytes"
