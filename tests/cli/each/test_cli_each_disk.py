"""`windlass kickoff --each --out` where the file can't be written, or not be replaced."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from cli.batch_crew import BatchCrew, each, records, results, write, write_as_before
from cli.the_command import Ended, line
from patience import DEADLINE

if TYPE_CHECKING:
    from pathlib import Path

    from cli.the_command import Command

LIMITED = """
import os, resource, sys
most = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
os.execv(sys.executable, sys.argv[2:])
"""
UNTIDY = "has all results, but could not be put in order: "


def with_files_of_at_most(size: int, windlass: Command, crew: BatchCrew, inputs: Path, out: Path) -> Ended:
    command = line("kickoff", crew.url, "--each", str(inputs), "--out", str(out))
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(size), *command],
        check=False,
        capture_output=True,
        text=True,
        env=windlass.environment,
        timeout=DEADLINE,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def test_a_disk_that_is_full_is_told_and_the_batch_goes_on_when_there_is_room(
    windlass: Command, crew: BatchCrew, inputs: Path, out: Path
) -> None:
    write(inputs, *(letter * 3000 for letter in "abcd"))
    ended = with_files_of_at_most(8000, windlass, crew, inputs, out)
    assert ended.code == 1
    assert ended.err.endswith(
        f"error: {out} can't be written: File too large.\nFree some disk space, and run the command again.\n"
    )
    assert "Run the same command again to continue" in ended.err
    assert "Traceback" not in ended.err
    assert records(out.read_text("utf-8"))
    assert each(windlass, crew, inputs, "--out", out).code == 0
    assert [record["state"] for record in results(out)] == ["SUCCESS"] * 4
    assert crew.begun == 4


def test_a_file_that_cannot_be_put_in_order_is_kept_as_it_is(
    windlass: Command, crew: BatchCrew, inputs: Path, out: Path
) -> None:
    in_the_way = out.with_name(f"{out.name}.new")
    in_the_way.mkdir()
    ended = each(windlass, crew, inputs, "--out", out)
    assert ended.code == 0
    assert f"{out} {UNTIDY}Is a directory. The last record of a line is the valid one.\n" in ended.err
    assert "3 of 3 done: 3 succeeded, 0 failed, in " in ended.err
    assert {record["line"]: record["state"] for record in results(out)[1:]} == dict.fromkeys((1, 2, 3), "SUCCESS")
    in_the_way.rmdir()
    assert each(windlass, crew, inputs, "--out", out).code == 0
    assert [record["line"] for record in results(out)] == [1, 2, 3]
    assert crew.begun == 3


def test_nothing_is_left_of_a_file_that_found_no_room(
    windlass: Command, crew: BatchCrew, inputs: Path, out: Path
) -> None:
    assert each(windlass, crew, inputs, "--out", out).code == 0
    write_as_before(out)  # in order, each record is longer
    before = out.read_bytes()
    ended = with_files_of_at_most(len(before), windlass, crew, inputs, out)
    assert ended.code == 0
    assert f"{UNTIDY}File too large." in ended.err
    assert out.read_bytes() == before
    assert not out.with_name(f"{out.name}.new").exists()


def test_a_file_that_is_mounted_is_kept_as_it_is(
    windlass: Command, crew: BatchCrew, inputs: Path, out: Path, tmp_path: Path
) -> None:
    mounted = tmp_path / "mounted"
    mounted.touch()
    out.touch()
    if subprocess.run(["mount", "--bind", str(mounted), str(out)], check=False, capture_output=True).returncode:
        pytest.skip("no mounts may be made here")
    try:
        ended = each(windlass, crew, inputs, "--out", out)
        assert (ended.code, each(windlass, crew, inputs, "--out", out).code) == (0, 0)
    finally:
        subprocess.run(["umount", str(out)], check=True)
    assert f"{UNTIDY}Device or resource busy." in ended.err
    assert not out.with_name(f"{out.name}.new").exists()
    assert crew.begun == 3
