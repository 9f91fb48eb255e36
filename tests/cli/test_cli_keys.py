from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.secrets.key_file import keys_of_file

if TYPE_CHECKING:
    from pathlib import Path

    from cli.the_command import Command


def test_the_commands_explain_what_comes_next(windlass: Command, database_url: str, tmp_path: Path) -> None:
    windlass.environment["WINDLASS_DATABASE_URL"] = database_url
    refused = windlass("admin", "keys", "rotate")
    assert (refused.code, "windlass admin keys prepare" in refused.err) == (1, True), refused.err
    (old,) = [key.id for key in keys_of_file(tmp_path / "windlass" / "master.key")]
    prepared = windlass("admin", "keys", "prepare")
    (_, new) = [key.id for key in keys_of_file(tmp_path / "windlass" / "master.key")]
    assert f"windlass admin keys rotate --to {new}" in prepared.err
    rows = [line.split() for line in windlass("admin", "keys", "status").out.splitlines()]
    assert rows[0] == ["KEY", "USE", "VALUES", "WHERE"]
    assert rows[1] == [old, "encrypts", "1", "settings.token_pepper", "1"]
    assert rows[2] == [new, "decrypts", "0", "-"]
    other = windlass("admin", "keys", "status", WINDLASS_HOME=str(tmp_path / "another"))
    assert [old, "missing", "1"] in [line.split()[:3] for line in other.out.splitlines()]
    assert f"does not have the key {old}" in other.err
    elsewhere = windlass("admin", "keys", "status", WINDLASS_URL="https://crews.example.com")
    assert (elsewhere.code, "the server's own machine" in elsewhere.err) == (1, True)
