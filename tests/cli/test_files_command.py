"""`windlass files`: what a run wrote is listed and downloaded, and nothing is written anywhere else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from cli.fake_crew import KICKOFF, TOKEN, completed, file

if TYPE_CHECKING:
    from pathlib import Path

    from cli.fake_crew import FakeCrew
    from cli.the_command import Command

LARGE = bytes(range(256)) * 5000  # more than one piece
CONTENTS = {"out/report.md": b"# Tides", "data.bin": LARGE, "empty": b""}


@pytest.fixture
def windlass(windlass: Command) -> Command:
    windlass.environment["WINDLASS_TOKEN"] = TOKEN
    return windlass


@pytest.fixture
def wrote(crew: FakeCrew) -> FakeCrew:
    """A crew whose run wrote files."""
    crew.contents = dict(CONTENTS)
    crew.files = [file(path, content) for path, content in CONTENTS.items()]
    return crew


def test_files_are_listed(windlass: Command, wrote: FakeCrew) -> None:
    ended = windlass("files", wrote.url, KICKOFF)
    assert ended.code == 0
    assert [line.split()[0] for line in ended.out.splitlines()] == ["path", *CONTENTS]
    assert wrote.files[0]["sha256"] in ended.out
    assert f"windlass files {wrote.url} {KICKOFF} --get DIR" in ended.err


def test_files_are_listed_as_json(windlass: Command, wrote: FakeCrew) -> None:
    ended = windlass("files", wrote.url, KICKOFF, "--json")
    assert (ended.code, json.loads(ended.out)["files"]) == (0, wrote.files)


def test_a_run_without_files(windlass: Command, crew: FakeCrew) -> None:
    ended = windlass("files", crew.url, KICKOFF)
    assert (ended.code, ended.out) == (0, "")
    assert "no files" in ended.err


def test_files_are_downloaded(windlass: Command, wrote: FakeCrew, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    ended = windlass("files", wrote.url, KICKOFF, "--get", str(folder))
    assert (ended.code, ended.out.splitlines()) == (0, [str(folder / path) for path in CONTENTS])
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert found == CONTENTS


def test_files_that_exist_are_overwritten_only_with_force(windlass: Command, wrote: FakeCrew, tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_text("mine")
    get = ("files", wrote.url, KICKOFF, "--get", str(tmp_path))
    ended = windlass(*get)
    assert ended.code == 1
    assert "data.bin exists" in ended.err
    assert (tmp_path / "data.bin").read_text() == "mine"
    assert not (tmp_path / "out" / "report.md").exists()
    assert json.loads(windlass(*get, "--force", "--json").out)["saved"] == [str(tmp_path / path) for path in CONTENTS]
    assert (tmp_path / "data.bin").read_bytes() == LARGE


@pytest.mark.parametrize(
    "path", ["../outside", "/etc/outside", "a/../../outside", "a//b", "./a", "", "..", "a\\..\\b", "a\nb", "a\x1bb"]
)
def test_a_path_that_could_lead_out_of_the_folder_is_refused(
    windlass: Command, crew: FakeCrew, tmp_path: Path, path: str
) -> None:
    crew.files, crew.contents = [file("fine", b"x"), file(path, b"x")], {"fine": b"x", path: b"x"}
    (tmp_path / "in").mkdir()
    ended = windlass("files", crew.url, KICKOFF, "--get", str(tmp_path / "in"))
    assert ended.code == 1
    assert "could lead out of the folder" in ended.err
    assert "\x1b" not in ended.err
    assert not list((tmp_path / "in").iterdir())
    assert not (tmp_path / "outside").exists()


def test_a_link_in_the_folder_is_not_followed_out_of_it(windlass: Command, crew: FakeCrew, tmp_path: Path) -> None:
    crew.files, crew.contents = [file("out/a", b"x")], {"out/a": b"x"}
    for name in ("in", "elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "in" / "out").symlink_to(tmp_path / "elsewhere")
    ended = windlass("files", crew.url, KICKOFF, "--get", str(tmp_path / "in"), "--force")
    assert (ended.code, list((tmp_path / "elsewhere").iterdir())) == (1, [])
    assert "through a link" in ended.err


def test_a_link_in_place_of_a_file_is_replaced_and_not_followed(
    windlass: Command, crew: FakeCrew, tmp_path: Path
) -> None:
    crew.files, crew.contents = [file("a", b"x")], {"a": b"x"}
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").symlink_to(tmp_path / "mine")
    assert windlass("files", crew.url, KICKOFF, "--get", str(tmp_path / "in")).code == 1
    assert windlass("files", crew.url, KICKOFF, "--get", str(tmp_path / "in"), "--force").code == 0
    assert (tmp_path / "mine").read_text() == "mine"
    assert (tmp_path / "in" / "a").read_bytes() == b"x"


def test_a_content_with_another_digest_is_not_kept(windlass: Command, crew: FakeCrew, tmp_path: Path) -> None:
    crew.files, crew.contents = [file("a", b"listed")], {"a": b"others"}
    ended = windlass("files", crew.url, KICKOFF, "--get", str(tmp_path / "in"))
    assert ended.code == 3
    assert "not the one that the list of files describes" in ended.err
    assert not list((tmp_path / "in").iterdir())


def test_the_end_of_a_kickoff_mentions_its_files(windlass: Command, crew: FakeCrew) -> None:
    crew.statuses = [completed(files=[file("a", b"x")], file_count=1)]
    for ended in (
        windlass("status", crew.url, KICKOFF),
        windlass("kickoff", crew.url, "-i", "topic=tea", "--watch"),
    ):
        assert f"1 file: windlass files {crew.url} {KICKOFF}" in ended.err
    crew.statuses = [completed()]
    assert "windlass files" not in windlass("status", crew.url, KICKOFF).err
