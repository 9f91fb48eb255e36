"""A project's .env, some lines of which say nothing."""

from __future__ import annotations

import logging
import os
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from lifecycle.running import RESOLVER
from windlass.deployments import environment
from windlass.errors import ProjectError
from windlass.foreign_files import read_file

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.unit


SECRET = "hunter2hunter2"
BAD = f'FIRST_OF_ALL=1\n{SECRET} is no line\nexport SECOND_OF_ALL=2\nTHIRD_OF_ALL="{SECRET}\n'


def test_the_lines_that_can_be_read_count_and_the_others_are_found(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / ".env").write_text(BAD)
    with caplog.at_level(logging.DEBUG):
        given = environment.crew_environment(tmp_path)
        assert environment.unread_lines(tmp_path) == [2, 4]
    assert (given["FIRST_OF_ALL"], given["SECOND_OF_ALL"]) == ("1", "2")
    assert "THIRD_OF_ALL" not in given
    assert caplog.text == "", "the library would say it at each kickoff, without the file's name"


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("\ufeffFIRST_OF_ALL=1\n", "utf-8")
    assert environment.crew_environment(tmp_path)["FIRST_OF_ALL"] == "1"
    assert environment.unread_lines(tmp_path) == []


@pytest.mark.parametrize("text", [None, b"\xff", b"A=\0"])
def test_a_file_that_is_not_there_or_can_not_be_read_has_no_lines(tmp_path: Path, text: bytes | None) -> None:
    if text is not None:
        (tmp_path / ".env").write_bytes(text)
    assert environment.unread_lines(tmp_path) == []


async def test_each_change_counts_at_the_next_kickoff(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of changes within one step of the file system's clock."""
    environments, file, status = environment.CrewEnvironments((), RESOLVER), tmp_path / ".env", os.lstat
    step = 50_000_000

    def coarse(path: Path) -> SimpleNamespace:
        found = status(path)
        fields = {name: getattr(found, name) for name in dir(found) if name.startswith("st_")}
        for name in ("st_mtime", "st_ctime"):
            fields[f"{name}_ns"] -= fields[f"{name}_ns"] % step
            fields[name] = fields[f"{name}_ns"] / 1e9
        return SimpleNamespace(**fields)

    monkeypatch.setattr(environment, "os", SimpleNamespace(lstat=coarse))
    for number in range(50):
        file.write_text(f"OF_ALL={number:03}\n")
        assert (await environments.of_project(tmp_path))["OF_ALL"] == f"{number:03}"


async def test_a_file_is_read_again_only_when_it_may_have_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environments, file, read = environment.CrewEnvironments((), RESOLVER), tmp_path / ".env", read_file
    reads = 0

    def counted(folder: Path, name: str, limit: int) -> bytes | None:
        nonlocal reads
        reads += 1
        return read(folder, name, limit)

    async def found() -> tuple[str | None, int]:
        before, first, again = reads, await environments.of_project(tmp_path), await environments.of_project(tmp_path)
        assert first == again
        return first.get("OF_ALL"), reads - before

    monkeypatch.setattr(environment, "read_file", counted)
    monkeypatch.setattr(environment, "RECENT", -60.0)  # no file counts as changed just now
    assert await found() == (None, 1)
    file.write_text("OF_ALL=1\n")
    assert await found() == ("1", 1)
    times = file.stat()
    file.write_text("OF_ALL=2\n")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert await found() == ("2", 1)
    file.write_bytes(b"\xff")
    for _ in range(2):
        with pytest.raises(ProjectError, match="can't be read"):
            await environments.of_project(tmp_path)
    file.rename(tmp_path / "other")
    assert await found() == (None, 1)
    file.symlink_to("other")
    for _ in range(2):
        with pytest.raises(ProjectError, match="is a symbolic link"):
            await environments.of_project(tmp_path)
