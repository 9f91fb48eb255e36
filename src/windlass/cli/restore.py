from __future__ import annotations

from pathlib import Path

import click

from windlass.cli.printing import Screen, json_option, notify, print_json


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
    from windlass.config import load
    from windlass.wiring.backups import restore
    from windlass_child.process.budget import size_in_words

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
