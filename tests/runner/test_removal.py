from __future__ import annotations

import asyncio
import os
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from projects_for_tests.driver import until
from windlass.removal import remove, removed

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.unit


async def test_a_caller_that_is_cancelled_leaves_the_removal_to_its_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised: list[object] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    (tmp_path / "work").mkdir()
    began, may_end = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def remove_later(folder: Path) -> None:
        threads.append(threading.current_thread())
        began.set()
        assert may_end.wait(60)
        folder.rmdir()

    monkeypatch.setattr("windlass.removal.remove_here", remove_later)
    removing = asyncio.create_task(removed(tmp_path / "work"))
    await asyncio.to_thread(began.wait, 60)
    removing.cancel()
    await asyncio.wait([removing])
    may_end.set()
    [thread] = threads
    await asyncio.to_thread(until, lambda: not thread.is_alive())
    assert not raised
    assert not await asyncio.to_thread((tmp_path / "work").exists)


def test_a_folder_goes_with_all_that_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "work" / "inside").mkdir(parents=True)
    (tmp_path / "work" / "inside" / "file").write_text("text")
    remove(tmp_path / "work")
    assert list(tmp_path.iterdir()) == []


def test_folders_that_are_nested_more_deeply_than_python_can_follow_go_too(tmp_path: Path) -> None:
    here = os.getcwd()  # noqa: PTH109 - given back below
    work = tmp_path / "work"
    work.mkdir()
    os.chdir(work)
    try:
        for _ in range(max(1500, sys.getrecursionlimit() + 500)):
            os.mkdir("d")  # noqa: PTH102 - a path would be too long
            os.chdir("d")
    finally:
        os.chdir(here)
    remove(work)
    assert not work.exists()


@pytest.mark.parametrize("mode", [0o000, 0o555])
def test_folders_that_can_not_be_written_to_go_too(tmp_path: Path, mode: int) -> None:
    locked = tmp_path / "work" / "locked"
    locked.mkdir(parents=True)
    (locked / "file").write_text("text")
    locked.chmod(mode)
    remove(tmp_path / "work")
    assert not (tmp_path / "work").exists()


def test_what_a_link_leads_to_stays(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("text")
    work = tmp_path / "work"
    work.mkdir()
    (work / "link").symlink_to(kept)
    remove(work)
    assert (kept / "file").exists()


def test_a_folder_that_is_gone_is_no_trouble(tmp_path: Path) -> None:
    remove(tmp_path / "gone")
