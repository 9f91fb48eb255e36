"""Writes and restores backups of the embedded database."""

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
def backup(file: Path, *, with_key: bool, force: bool, json_output: bool) -> None:
    """Write the embedded database to FILE.

    A server may run meanwhile. The backup contains the data that was committed when the backup began. It does not
    contain the master key. Keep the key too: without it, secrets, tokens and journals can't be read. Back up a
    PostgreSQL of your own (WINDLASS_DATABASE_URL) with pg_dump.
    """
    from windlass.administration.backups import backup
    from windlass.config import load
    from windlass_child.protocol.sizes import size_in_words

    settings, screen = load(), Screen()
    try:
        size = backup(
            settings,
            file.absolute(),
            with_key=with_key,
            force=force,
            notify=screen.line,
            written=lambda done: screen.live(f"written {size_in_words(done)}"),
        )
    finally:
        screen.clear()
    if json_output:
        print_json({"file": file.absolute(), "bytes": size, "has_master_key": with_key})
    notify(f"The backup is complete: {file}, {size_in_words(size)}.")
    if with_key:
        notify("It contains the master key, so this file is enough to read every secret. Protect it like the key.")
    else:
        where = "WINDLASS_MASTER_KEY" if settings.master_key else settings.home / "master.key"
        notify(f"It does not contain the master key. Keep the key too, in another place than the backup: {where}")


@click.command
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option(
    "--force", is_flag=True, help="Restore even if the home has a database. The existing database is moved aside."
)
@json_option
def restore(file: Path, *, force: bool, json_output: bool) -> None:
    """Restore the embedded database from FILE, a backup.

    No server may run on the home meanwhile. The whole file is checked first, and the home changes only when everything
    is restored. At the next start, kickoffs that were open at the time of the backup continue.
    """
    from windlass.administration.backups import restore
    from windlass.config import load
    from windlass_child.protocol.sizes import size_in_words

    settings, screen = load(), Screen()
    try:
        aside = restore(
            settings,
            file.absolute(),
            force=force,
            notify=screen.line,
            read=lambda done, whole: screen.live(
                f"restored {size_in_words(done)} of {size_in_words(whole)}", done, whole
            ),
        )
    finally:
        screen.clear()
    if json_output:
        print_json({"home": settings.home, "former_database": aside})
    if aside:
        notify(f"The former database is now in {aside}. Remove it when you don't need it.")
    notify(f"The database in {settings.home} is restored. Start the server: open kickoffs of the backup continue.")
