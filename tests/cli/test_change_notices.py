"""When `windlass dev` looks at the files of its project again."""

from __future__ import annotations

import asyncio
import errno
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from patience import DEADLINE
from windlass.projects.digest import look
from windlass.wiring.change_notices import ChangeNotices

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


pytestmark = pytest.mark.unit


@asynccontextmanager
async def following(root: Path, *warnings: str) -> AsyncIterator[ChangeNotices]:
    """Notices of the folders of the project, after the first look."""
    told: list[str] = []
    notices = ChangeNotices(told.append, longest=10 * DEADLINE)
    await notices.follow(look(root)[1])
    try:
        await settled(notices)
        yield notices
    finally:
        await notices.end()
    assert told == list(warnings)


async def settled(notices: ChangeNotices) -> None:
    """Waits until no report is on its way: those of a new watch, or of changes that a test has made."""
    while await reported(notices, 0.5):
        pass


async def reported(notices: ChangeNotices, seconds: float = DEADLINE) -> bool:
    """Whether a change is reported; without a report the wait takes longer than the deadline."""
    try:
        async with asyncio.timeout(seconds):
            await notices.wait(0)
    except TimeoutError:
        return False
    return True


async def test_a_change_in_a_folder_ends_the_wait(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    async with following(tmp_path) as notices:
        (tmp_path / "package" / "work.py").write_text("x = 1\n")
        assert await reported(notices)
        await settled(notices)
        (tmp_path / "package" / "work.py").unlink()
        assert await reported(notices)


async def test_the_target_of_a_link_is_followed(tmp_path: Path) -> None:
    root, shared = tmp_path / "project", tmp_path / "shared"
    root.mkdir()
    shared.mkdir()
    (shared / "agents.yaml").write_text("a: 1\n")
    (root / "agents.yaml").symlink_to(shared / "agents.yaml")
    async with following(root) as notices:
        (shared / "agents.yaml").write_text("a: 2\n")
        assert await reported(notices)


async def test_a_folder_that_replaces_another_is_followed(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    async with following(tmp_path) as notices:
        package.rename(tmp_path / ".old")
        package.mkdir()
        assert await reported(notices)
        await notices.follow(look(tmp_path)[1])
        await settled(notices)
        (package / "work.py").write_text("x = 1\n")
        assert await reported(notices)


async def test_a_folder_that_is_gone_before_it_is_followed_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    found = look(tmp_path)[1]
    (tmp_path / "package").rmdir()
    told: list[str] = []
    notices = ChangeNotices(told.append)
    await notices.follow(found)
    assert await reported(notices)
    await notices.follow(look(tmp_path)[1])
    assert await reported(notices)
    await notices.end()
    assert told == []


async def test_files_whose_changes_nobody_reports_are_looked_at_all_the_same() -> None:
    notices = ChangeNotices(lambda _: None, longest=0.05)
    assert await reported(notices)
    assert await reported(notices)


class Refusing:
    """A watch that the kernel refuses."""

    def __aiter__(self) -> Refusing:
        return self

    async def __anext__(self) -> None:
        raise OSError(errno.ENOSPC, "OS file watch limit reached.")


async def test_a_limit_of_the_kernel_is_reported_once_and_files_are_looked_at_in_intervals(tmp_path: Path) -> None:
    told: list[str] = []
    notices = ChangeNotices(told.append, lambda *_, **__: Refusing())
    for folders in ({str(tmp_path): 1}, {str(tmp_path): 2}):
        await notices.follow(folders)
        assert await reported(notices)
        assert await reported(notices)  # without a report
    await notices.end()
    (warning,) = told
    assert "OS file watch limit reached." in warning
    assert "fs.inotify.max_user_watches" in warning


def test_the_folders_of_a_project_are_those_whose_files_count(tmp_path: Path) -> None:
    for name in ("src/tea", ".venv/lib", "node_modules/x", "data/big", "empty"):
        (tmp_path / name).mkdir(parents=True)
    found = {folder.removeprefix(str(tmp_path.resolve())) for folder in look(tmp_path, ["data/*"])[1]}
    assert found == {"", "/src", "/src/tea", "/data", "/empty"}
