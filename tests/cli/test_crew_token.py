from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cli.fake_crew import TOKEN

if TYPE_CHECKING:
    from pathlib import Path

    from cli.fake_crew import FakeCrew
    from cli.the_command import Command


def test_the_token_comes_from_the_variable_or_the_option(windlass: Command, crew: FakeCrew) -> None:
    assert windlass("inputs", crew.url, WINDLASS_TOKEN=TOKEN).code == 0
    assert windlass("inputs", crew.url, "--token", TOKEN, WINDLASS_TOKEN="wlo_other").code == 0


def test_the_token_comes_from_a_file_before_all_else(windlass: Command, crew: FakeCrew, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    assert windlass("inputs", crew.url, "--token-file", str(tmp_path / "token"), WINDLASS_TOKEN="wlo_other").code == 0
    assert windlass("inputs", crew.url, "--token-file", "-", typed=TOKEN).code == 0


def test_without_a_token_a_local_user_is_told_the_command_that_gives_one(windlass: Command, crew: FakeCrew) -> None:
    ended = windlass("inputs", crew.url)
    assert ended.code == 2
    assert "export WINDLASS_TOKEN=$(windlass tokens show --kind organization)" in ended.err
    assert crew.seen == []


def test_without_a_token_a_user_from_elsewhere_is_told_whom_to_ask(windlass: Command) -> None:
    ended = windlass("inputs", "https://crews.example.com/crews/tea")
    assert ended.code == 2
    assert "The server's operator creates one" in ended.err


@pytest.mark.parametrize("text", ["two words", "umlaut-ü", "line\nbreak"])
def test_what_can_be_no_token_is_refused_and_not_shown(windlass: Command, crew: FakeCrew, text: str) -> None:
    ended = windlass("inputs", crew.url, WINDLASS_TOKEN=text)
    assert ended.code == 2
    assert text not in ended.err
    assert crew.seen == []


@pytest.mark.parametrize(
    "url",
    ["127.0.0.1:8000", "ftp://127.0.0.1", "http://", "http://[::1", "http://x:99999", "http://x?a=1", "http://u:pw@x"],
)
def test_what_is_no_address_of_a_crew_is_a_usage_error(windlass: Command, url: str) -> None:
    ended = windlass("inputs", url, WINDLASS_TOKEN=TOKEN)
    assert ended.code == 2
    assert "Invalid value for 'URL'" in ended.err
    assert "pw" not in ended.err


def test_a_token_sent_unencrypted_over_a_network_is_warned_of(windlass: Command) -> None:
    ended = windlass("inputs", "http://192.0.2.1:9", WINDLASS_TOKEN=TOKEN, http_proxy="http://127.0.0.1:9")
    assert ended.code == 4
    assert "sends the token over the network unencrypted" in ended.err


def test_a_proxy_gets_nothing_that_is_meant_for_this_machine(windlass: Command, crew: FakeCrew) -> None:
    ended = windlass("inputs", crew.url, WINDLASS_TOKEN=TOKEN, http_proxy="http://127.0.0.1:9")
    assert ended.code == 0
    assert "warning" not in ended.err
