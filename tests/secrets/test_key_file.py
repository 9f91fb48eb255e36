from __future__ import annotations

import base64
import logging
import os
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.secrets.key_file import MasterKeyError, load_key_ring
from windlass.secrets.key_ring import MasterKey
from windlass.secrets.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OLD, NEW = b"\xfb\xff" * 16, b"n" * 32
OLD_TEXT, NEW_TEXT = (base64.urlsafe_b64encode(raw).decode().rstrip("=") for raw in (OLD, NEW))
ROUNDS = 40
STARTER = """
import sys
from pathlib import Path
from windlass.secrets.key_file import load_key_ring
print("ready", flush=True)
sys.stdin.readline()
for number in range(int(sys.argv[2])):
    print(load_key_ring(Path(sys.argv[1]) / str(number) / "master.key", None).current_id)
"""


@pytest.fixture
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "master.key"


def write(path: Path, text: str, rights: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(rights)
    return path


def refusal(path: Path, value: Secret | None = None) -> MasterKeyError:
    with pytest.raises(MasterKeyError) as refused:
        load_key_ring(path, value)
    return refused.value


def rights(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_first_start_makes_a_key_that_only_its_owner_can_read(tmp_path: Path, usual_umask: None) -> None:
    path = tmp_path / "a home with spaces" / "master.key"
    load_key_ring(path, None)
    assert rights(path) == 0o600
    assert rights(path.parent) == 0o700
    assert list(path.parent.iterdir()) == [path]


def test_the_second_start_finds_the_same_key(path: Path) -> None:
    sealed = load_key_ring(path, None).seal("x", "a.b:1")
    assert load_key_ring(path, None).open(sealed, "a.b:1") == "x"


def test_every_server_makes_a_key_of_its_own(tmp_path: Path) -> None:
    assert load_key_ring(tmp_path / "a", None).current_id != load_key_ring(tmp_path / "b", None).current_id


def test_making_the_key_is_logged_without_the_key(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "windlass")
    load_key_ring(path, None)
    load_key_ring(path, None)
    assert [record.msg for record in caplog.records] == ["master_key.created"]
    assert path.read_text().split()[-1] not in str(vars(caplog.records[0]))


def test_the_rights_of_a_folder_that_was_there_are_left_alone(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    load_key_ring(tmp_path / "master.key", None)
    assert rights(tmp_path) == 0o755


def test_processes_that_start_at_the_same_instant_end_with_one_key(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STARTER, str(tmp_path), str(ROUNDS)]
    starters = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    for starter in starters:
        assert starter.stdout
        assert starter.stdout.readline() == "ready\n"
    for starter in starters:
        assert starter.stdin
        starter.stdin.write("\n")
        starter.stdin.flush()
    seen = [starter.communicate(timeout=60)[0].split() for starter in starters]
    kept = [load_key_ring(tmp_path / str(number) / "master.key", None).current_id for number in range(ROUNDS)]
    assert seen == [kept] * 3
    assert not list(tmp_path.glob("*/.*"))


def test_the_first_line_is_the_current_key_and_all_lines_open(path: Path) -> None:
    sealed = load_key_ring(write(path, OLD_TEXT), None).seal("x", "a.b:1")
    ring = load_key_ring(write(path, f"# made in May\n\n  {NEW_TEXT}\r\n{OLD_TEXT}\n"), None)
    assert ring.current_id == MasterKey(NEW).id
    assert ring.open(sealed, "a.b:1") == "x"


@given(st.binary(min_size=32, max_size=32))
def test_a_key_may_be_written_in_any_sort_of_base64(raw: bytes) -> None:
    for encoded in (base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode()):
        for text in (encoded, encoded.rstrip("=")):
            assert load_key_ring(None, Secret(text)).current_id == MasterKey(raw).id  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o644, 0o777, 0o610])
def test_a_file_that_others_can_reach_is_refused_with_the_command_that_mends_it(tmp_path: Path, mode: int) -> None:
    path = write(tmp_path / "it's here", OLD_TEXT, mode)
    refused = refusal(path)
    assert f"{mode:04o}" in refused.message
    subprocess.run(["sh", "-c", refused.hint.removeprefix("Run: ")], check=True)
    assert load_key_ring(path, None).current_id == MasterKey(OLD).id


def test_a_file_that_only_its_owner_can_read_may_be_read_only(path: Path) -> None:
    assert load_key_ring(write(path, OLD_TEXT, 0o400), None).current_id == MasterKey(OLD).id


@pytest.mark.parametrize(
    "wrong",
    [
        OLD_TEXT[:-1],
        OLD_TEXT + "AB",
        OLD_TEXT + "==",
        OLD_TEXT[:-1] + "!",
        f"{OLD_TEXT} {NEW_TEXT}",
        OLD.hex(),
        "é" * 43,
    ],
)
def test_a_malformed_key_is_named_by_its_line_and_never_shown(path: Path, wrong: str) -> None:
    refused = refusal(write(path, f"# head\n{NEW_TEXT}\n{wrong}\n"))
    assert f"{path}, line 3" in refused.message
    assert "openssl rand" in refused.hint
    assert wrong[:12] not in str(refused)


def test_bytes_that_are_no_text_are_named_by_their_line(path: Path) -> None:
    path.touch(0o600)
    path.write_bytes(OLD_TEXT.encode() + b"\n\xff\xfe\0")
    assert "line 2" in refusal(path).message


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing but a comment\n"])
def test_a_file_without_a_key_is_refused_and_left_as_it_is(path: Path, text: str) -> None:
    refused = refusal(write(path, text))
    assert "holds no master key" in refused.message
    assert "backup" in refused.hint
    assert path.read_text() == text


def test_a_value_from_the_environment_comes_before_the_file_which_is_then_not_made(path: Path) -> None:
    ring = load_key_ring(path, Secret(f"{NEW_TEXT}, {OLD_TEXT},"))
    assert ring.current_id == MasterKey(NEW).id
    assert ring.open(load_key_ring(path, Secret(OLD_TEXT)).seal("x", "a.b:1"), "a.b:1") == "x"
    assert not path.exists()


def test_a_malformed_value_is_named_by_its_place_and_never_shown(path: Path) -> None:
    refused = refusal(path, Secret(f"{NEW_TEXT},{OLD_TEXT[:-2]}"))
    assert "WINDLASS_MASTER_KEY, value 2" in refused.message
    assert OLD_TEXT[:12] not in str(refused)


def test_an_empty_value_makes_no_new_key(path: Path) -> None:
    assert "WINDLASS_MASTER_KEY holds no master key" in refusal(path, Secret("")).message
    assert not path.exists()


def test_a_place_where_no_file_can_be_is_said_in_words(tmp_path: Path) -> None:
    write(tmp_path / "file", "")
    refused = refusal(tmp_path / "file" / "master.key")
    assert "Not a directory" in refused.message
    assert "WINDLASS_MASTER_KEY" in refused.hint


def test_a_link_to_nothing_is_said_in_words_and_nothing_is_left_behind(path: Path) -> None:
    path.symlink_to("gone")
    assert "No such file" in refusal(path).message
    assert list(path.parent.iterdir()) == [path]
