"""Files of a kickoff through the clients for Python, from a real server."""

from __future__ import annotations

import asyncio
import errno
import pathlib
from typing import TYPE_CHECKING

import pytest

from api.test_files_of_a_kickoff import FILES, with_files
from windlass import client
from windlass.client import AsyncCrew, CrewError, NotFound
from windlass.client.downloads import Download, checked

if TYPE_CHECKING:
    from pathlib import Path

    from api.serving import Crew

pytestmark = pytest.mark.asyncio(loop_scope="session")


def files_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.is_file()]


async def test_files_are_listed_and_downloaded(served: Crew, tmp_path: Path) -> None:
    kickoff = await with_files(served, FILES)
    async with AsyncCrew(served.base_url, served.token) as crew:
        listed = await crew.files(kickoff)
        assert [(file.path, file.size) for file in listed] == [(path, len(FILES[path])) for path in sorted(FILES)]
        assert (await crew.status(kickoff)).files == listed
        found = await crew.download(kickoff, tmp_path)
        assert {path.relative_to(tmp_path).as_posix(): path.read_bytes() for path in found} == FILES
        with pytest.raises(CrewError, match="exists"):
            await crew.download(kickoff, tmp_path, ["large.bin"])
        (chosen,) = await crew.download(kickoff, tmp_path, ["large.bin"], force=True)
        assert chosen == tmp_path / "large.bin"
        with pytest.raises(CrewError, match="no file 'nothing'"):
            await crew.download(kickoff, tmp_path, ["nothing"])
        with pytest.raises(NotFound):
            await crew.files("unknown")


@pytest.mark.parametrize("path", ["C:/x", "a/con", "NUL.txt", "a/b:stream", "name.", "name ", "what?.md", "COM1"])
async def test_names_that_mean_something_else_on_windows_are_refused_there(path: str) -> None:
    assert checked(path, windows=False) == path
    with pytest.raises(CrewError, match="on Windows"):
        checked(path, windows=True)


async def test_a_file_that_exists_is_refused_before_the_first_file_is_written(served: Crew, tmp_path: Path) -> None:
    kickoff = await with_files(served, FILES)
    (tmp_path / "page.html").write_text("mine")

    def download() -> None:
        with client.Crew(served.base_url, served.token) as crew:
            crew.download(kickoff, tmp_path)

    with pytest.raises(CrewError, match="exists"):
        await asyncio.to_thread(download)
    async with AsyncCrew(served.base_url, served.token) as crew:
        with pytest.raises(CrewError, match="exists"):
            await crew.download(kickoff, tmp_path)
    assert files_in(tmp_path) == ["page.html"]


async def test_a_download_has_the_rights_of_new_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not change the umask, which other threads of the program use too."""
    (tmp_path / "usual").touch()
    monkeypatch.delattr("os.umask")
    with Download(tmp_path, "file", force=False) as download:
        download.write(b"x")
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "usual").stat().st_mode


async def test_a_download_that_can_not_be_completed_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pathlib.Path, "replace", refuse)
    with pytest.raises(OSError, match="No space"), Download(tmp_path, "file", force=False):
        pass
    assert files_in(tmp_path) == []
