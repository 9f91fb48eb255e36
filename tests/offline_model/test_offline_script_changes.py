"""A script is what its file is, while it is used."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from windlass.offline_model.answers import ChatRequest
from windlass.offline_model.script import Script, UnansweredError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.unit


TEA = ChatRequest.model_validate({"model": "any", "messages": [{"role": "user", "content": "tea"}]})
RULE = "[[rules]]\ncontains = 'tea'\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "answers.toml"
    file.write_text(f"{RULE}text = 'Green.'\n")
    return file


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def script(file: Path, told: list[str]) -> Script:
    return Script.read(file, notify=told.append)


def said(script: Script) -> str | None:
    answer = script.reply(TEA).answer
    return answer.text if answer else None


def test_a_script_that_was_changed_answers_by_its_new_rules(script: Script, file: Path, told: list[str]) -> None:
    assert (said(script), told) == ("Green.", [])
    file.write_text(f"{RULE}text = 'Black, not green.'\n")
    assert [said(script), said(script)] == ["Black, not green."] * 2
    assert told == [f"the script {file} has changed: its new rules apply from now on"]


def test_a_file_that_another_takes_the_place_of_has_changed(script: Script, file: Path) -> None:
    before = file.stat()
    new = file.with_name("new.toml")
    new.write_text(f"{RULE}text = 'Black.'\n")
    os.utime(new, ns=(before.st_atime_ns, before.st_mtime_ns))
    new.replace(file)
    assert file.stat().st_size == before.st_size
    assert said(script) == "Black."


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (f"{RULE}texts = 'Black.'\n", "rule 1 has the key 'texts', which is unknown"),
        ("[[rules", "is not TOML: "),
        (None, "can't be read: No such file or directory"),
    ],
)
def test_what_is_wrong_with_a_new_script_is_told_once_and_the_old_rules_hold_on(
    script: Script, file: Path, told: list[str], broken: str | None, why: str
) -> None:
    if broken is None:
        file.unlink()
    else:
        file.write_text(broken)
    assert [said(script) for _ in range(3)] == ["Green."] * 3
    (warning,) = told
    assert warning.startswith(
        f"warning: the earlier rules of the script apply until its error is corrected: The script {file} "
    )
    assert why in warning
    file.write_text(f"{RULE}text = 'Mended.'\n")
    assert said(script) == "Mended."


def test_times_count_anew_with_a_new_script_and_go_on_with_a_broken_one(script: Script, file: Path) -> None:
    once = f"{RULE}times = 1\ntext = 'Once.'\n"
    file.write_text(once)
    assert [said(script), said(script)] == ["Once.", None]
    file.write_text("[[rules")
    assert said(script) is None
    file.write_text(f"{once}# anew\n")
    assert [said(script), said(script)] == ["Once.", None]


def test_a_new_script_is_as_strict_as_it_says_or_as_was_asked_for(file: Path, told: list[str]) -> None:
    as_it_says, always = (Script.read(file, strict=strict, notify=told.append) for strict in (False, True))
    for strict, held in (("true", {as_it_says, always}), ("false", {always})):
        file.write_text(f"strict = {strict}\n[[rules]]\ncontains = 'milk'\ntext = 'White.'\n")
        for script in (as_it_says, always):
            if script in held:
                with pytest.raises(UnansweredError):
                    said(script)
            else:
                assert said(script) is None


def test_what_can_be_read_only_once_is_read_once(tmp_path: Path, told: list[str]) -> None:
    ours, theirs = os.pipe()
    os.write(theirs, f"{RULE}text = 'Green.'\n".encode())
    os.close(theirs)
    pipe = tmp_path / "pipe"
    pipe.symlink_to(f"/dev/fd/{ours}")
    script = Script.read(pipe, notify=told.append)
    assert (said(script), told) == ("Green.", [])
    os.close(ours)


def test_without_anybody_to_tell_it_is_told_on_standard_error(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = Script.read(file)
    file.write_text("[[rules")
    assert said(script) == "Green."
    assert capsys.readouterr().err.startswith("warning: the earlier rules of the script apply")
