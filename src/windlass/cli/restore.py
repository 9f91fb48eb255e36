from __future__ import annotations

from pathlib import Path

import click

from windlass.cli.printing import Screen, say


@click.command
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Do it though the home has a database; that one is put aside.")
def command(file: Path, force: bool) -> None:
    """Make the embedded database from FILE, a backup.

    No server may run on the home meanwhile. The file is checked as a whole first, and the home changes only when all of
    it is restored. At the next start, kickoffs that were open when the backup was made go on.
    """
    from windlass.cli.backup import in_words
    from windlass.config import load
    from windlass.wiring.backups import restore

    settings, screen = load(), Screen()
    try:
        aside = restore(
            settings,
            file.absolute(),
            force=force,
            say=screen.line,
            read=lambda done, whole: screen.live(f"restored {in_words(done)} of {in_words(whole)}"),
        )
    finally:
        screen.clear()
    if aside:
        say(f"The database that was there is now {aside}. Remove it when you don't need it.")
    say(f"The database in {settings.home} is restored. Start the server; what was open in the backup goes on.")
