"""A project's .env, some lines of which say nothing."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from windlass.deployments import environment

if TYPE_CHECKING:
    from pathlib import Path

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
