"""Files of a kickoff through the clients for Python, from a real server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from api.test_files_of_a_kickoff import FILES, with_files
from windlass.client import AsyncCrew, CrewError, NotFound
from windlass.client.downloads import checked

if TYPE_CHECKING:
    from pathlib import Path

    from api.serving import Crew

pytestmark = pytest.mark.asyncio(loop_scope="session")


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
