from __future__ import annotations

import errno
from concurrent.futures import ThreadPoolExecutor
from shutil import rmtree
from typing import TYPE_CHECKING

from projects_for_tests.ends import folders, is_spare
from windlass.accounts import Account
from windlass.runner.scratch import SPARES, Scratch

if TYPE_CHECKING:
    from pathlib import Path


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
        below = (
            scratch.folder_for_crews("k", None).relative_to(tmp_path) / "tmp" / "pymp-12345678" / "listener-12345678"
        )
    assert 40 + len(f"/{below}") <= 107


def test_a_spare_folder_is_used_once_and_only_if_it_is_still_there(tmp_path: Path) -> None:
    with Scratch(tmp_path / "runs") as scratch:
        for _ in range(SPARES + 1):
            scratch.make_spare(None)
        spare = set((tmp_path / "runs").glob("r-*/k*"))
        assert len(spare) == SPARES
        assert all(map(is_spare, spare))
        removed = max(spare)
        rmtree(removed)
        used = {scratch.run_folder(None) for _ in range(SPARES + 1)}
        assert len(used) == SPARES + 1
        assert all(folder.is_dir() for folder in used)
        assert used >= spare - {removed}


def test_no_spare_folder_is_made_when_none_can_be_made(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path / "runs")
    scratch.close()
    scratch.make_spare(None)
    assert folders(tmp_path / "runs") == []


def test_a_spare_folder_that_can_be_made_only_in_part_is_removed(tmp_path: Path) -> None:
    class NobodysAccount(Account):
        def give(self, path: Path) -> None:
            raise OSError(errno.ENOSPC, "no space")

    with Scratch(tmp_path / "runs") as scratch:
        scratch.make_spare(NobodysAccount(65534, 65534, "nobody", is_ours=False))
        assert list((tmp_path / "runs").glob("r-*/k*")) == []
