"""Lists the files that the run of a kickoff wrote, and downloads them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from windlass.cli.crew_options import Access, KickoffAt, client_at, kickoff_options
from windlass.cli.printing import Screen, notify, print_json, print_result, print_table
from windlass_child.protocol.sizes import size_in_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windlass.cli.crew_session import CrewClient
    from windlass.client import File


@click.command
@kickoff_options
@click.option(
    "--get",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Download the files into the folder DIR, which is made if it does not exist.",
)
@click.option("--force", is_flag=True, help="With --get: overwrite files that exist.")
def files(kickoff: KickoffAt, access: Access, folder: Path | None, *, force: bool, json_output: bool) -> None:
    """List the files that a run wrote, or download them.

    Prints one line per file: its path, size, media type and SHA-256. With --get, prints the path of each downloaded
    file. A download checks the SHA-256, and no file is written outside of DIR. Without URL, the kickoff is looked up on
    the chosen server.
    """
    from windlass.client import File

    with client_at(kickoff, access) as crew:
        answer = crew.files(kickoff.id)
        found = [File.of(file) for file in answer.get("files") or []]
        saved = [] if folder is None else _get(crew, kickoff.id, found, folder, force=force, show=not json_output)
        command = crew.command("files", kickoff.id, "--get", "DIR")
    if json_output:
        print_json(answer if folder is None else {**answer, "saved": saved})
    elif not found:
        notify("The run wrote no files that are kept.")
    elif folder is None:
        rows = [[file.path, size_in_words(file.size), file.media_type, file.sha256] for file in found]
        print_table(["path", "size", "type", "sha256"], rows)
        notify(f"Download them with: {command}")


def _get(
    crew: CrewClient, kickoff_id: str, files: Sequence[File], folder: Path, *, force: bool, show: bool
) -> list[str]:
    from windlass.client.downloads import Download

    screen, total, done = Screen(), sum(file.size for file in files), 0
    saved = []
    downloads = [Download(folder, file.path, force=force) for file in files]  # all are checked before the first
    try:
        for file, download in zip(files, downloads, strict=True):
            with download:

                def write(piece: bytes, download: Download = download) -> None:
                    nonlocal done
                    download.write(piece)
                    done += len(piece)
                    screen.live(f"{size_in_words(done)} of {size_in_words(total)}", done, total)

                crew.content(kickoff_id, file, write)
            saved.append(str(download.path))
    finally:
        screen.clear()
    for path in saved if show else ():
        print_result(path)
    return saved
