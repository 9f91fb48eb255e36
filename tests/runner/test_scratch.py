from __future__ import annotations

import errno
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from projects_for_tests.ends import folders
from windlass.accounts import Account
from windlass.runner.place import Place
from windlass.runner.scratch import Scratch
from windlass.runner.shared_memory import Share

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.unit


def test_workers_that_share_a_home_come_and_go_without_harm_to_one_another(tmp_path: Path) -> None:
    base = tmp_path / "runs"
    with Scratch(base) as staying:
        kept = staying.folder("some-kickoff")

        def come_and_go() -> None:
            for _ in range(50):
                with Scratch(base) as scratch:
                    folder = scratch.folder("k")
                    (folder / "file").write_text("x")
                    assert kept.is_dir()
                    assert folder.is_dir()

        with ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(come_and_go) for _ in range(4)]:
                done.result()
        assert len(folders(base)) == 1
    assert folders(base) == []


def test_below_a_home_of_forty_characters_there_is_room_for_a_socket_of_multiprocessing(tmp_path: Path) -> None:
    base = tmp_path / "runs"
    with Scratch(base) as scratch:
        place = Place(scratch.folder_for_crews("k", None, scratch.shared_folder("10")), Share(0))
        place.surround()  # as with `reuse`, where the path is longest
        below = place.folder.relative_to(tmp_path) / "tmp" / "pymp-12345678" / "listener-12345678"
    assert 40 + len(f"/{below}") <= 107


def test_a_folder_that_can_be_made_only_in_part_is_removed(tmp_path: Path) -> None:
    class NobodysAccount(Account):
        def give(self, path: Path) -> None:
            raise OSError(errno.ENOSPC, "no space")

    with Scratch(tmp_path / "runs") as scratch:
        with pytest.raises(OSError, match="no space"):
            scratch.folder_for_crews("k", NobodysAccount(65534, 65534, "nobody", is_ours=False))
        assert list((tmp_path / "runs").glob("r-*/k*")) == []
