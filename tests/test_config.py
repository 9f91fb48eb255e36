from __future__ import annotations

import os
import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import pytest
from pydantic import ValidationError

from windlass import config
from windlass.config import Settings, load, unknown_variables
from windlass.deployments.environment import PASSED, crew_environment
from windlass.errors import ProjectError, SettingsError
from windlass.offline_model.app import PROVIDER_KEYS

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):  # noqa: TID251 - what the tests of a machine find there is not theirs
        if name.startswith(("WINDLASS_", "OIDC_")):
            monkeypatch.delenv(name)


def variables() -> dict[str, str]:
    return dict(os.environ)  # noqa: TID251 - the tests look at what `load` leaves there


def test_without_a_variable_every_setting_has_its_default() -> None:
    settings = load()
    assert (settings.host, settings.port, settings.database_url, settings.master_key) == ("127.0.0.1", 8000, None, None)
    assert settings.home == config.default_home()
    assert settings.slots >= 4
    assert settings.renewal == settings.lease / 4


def test_variables_set_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in {
        "HOME": str(tmp_path),
        "PORT": "0",
        "SLOTS": "7",
        "PUBLIC_URL": "https://crews.example.com/base/",
        "TRUSTED_PROXIES": " 10.0.0.1, ,10.0.0.2 ",
        "LOG_LEVEL": "debug",
    }.items():
        monkeypatch.setenv(f"WINDLASS_{name}", value)
    settings = load()
    assert (settings.home, settings.port, settings.slots) == (tmp_path, 0, 7)
    assert settings.public_url == "https://crews.example.com/base"
    assert settings.trusted_proxies == ["10.0.0.1", "10.0.0.2"]
    assert settings.log_level == "DEBUG"


def test_a_variable_that_is_empty_is_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDLASS_PORT", "")
    monkeypatch.setenv("WINDLASS_DATABASE_URL", "")
    assert (load().port, load().database_url) == (8000, None)


def test_a_master_key_that_is_empty_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDLASS_MASTER_KEY", "")
    with pytest.raises(SettingsError, match="is set and empty"):
        load()


@pytest.mark.parametrize("name", config.SECRETS)
def test_a_file_holds_a_secret_in_place_of_its_variable(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "secret"
    if name == "WINDLASS_SIGN_IN_CLIENT_SECRET":
        monkeypatch.setenv("WINDLASS_SIGN_IN_ISSUER", "https://login.example.com")
        monkeypatch.setenv("WINDLASS_SIGN_IN_CLIENT_ID", "windlass")
    monkeypatch.setenv(f"{name}_FILE", str(file))
    for content, fault in (
        (None, f"{name}_FILE: {file} can't be read: No such file or directory"),
        (b" \n", f"{name}_FILE: {file} is empty"),
        (b"\xff", f"{name}_FILE: {file} is no text in UTF-8"),
        (b"x" * 65_537, f"{name}_FILE: {file} has more than 64 KB"),
    ):
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(SettingsError, match=re.escape(fault)):
            load()
    file.write_text("hidden one\n")
    assert unknown_variables() == []
    assert f"{name}_FILE" not in config.environment()
    (setting,) = (one for one in Settings.model_fields if config.variable_of(one) == name)
    assert getattr(load(), setting).get_secret_value() == "hidden one"
    monkeypatch.setenv(name, "hidden too")
    with pytest.raises(SettingsError, match=f"{name} and {name}_FILE are both set. Unset one") as raised:
        load()
    assert "hidden" not in str(raised.value)


def test_secrets_are_read_once_and_taken_out_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDLASS_MASTER_KEY", "hidden one")
    monkeypatch.setenv("WINDLASS_DATABASE_URL", "hidden too")
    monkeypatch.setenv("OIDC_PRIVATE_KEY", "hidden as well")
    assert "OIDC_PRIVATE_KEY" not in config.environment(), "a crew never gets it, however early it starts"
    settings = load()
    assert not set(config.SECRETS) & variables().keys()
    assert settings.master_key is not None
    assert settings.master_key.get_secret_value() == "hidden one"
    assert "hidden" not in f"{settings!r} {settings}"


def test_a_home_may_be_relative_or_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("WINDLASS_HOME", "here")
    assert load().home == tmp_path / "here"
    monkeypatch.setenv("WINDLASS_HOME", "~/there")
    assert load().home == tmp_path / "there"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HOME", "~nobody-of-this-name/x"),
        ("PORT", "http"),
        ("PORT", "65536"),
        ("PORT", "-1"),
        ("SLOTS", "0"),
        ("LEASE", "0"),
        ("LEASE", "nan"),
        ("LEASE", "inf"),
        ("REQUEST_TIMEOUT", "inf"),
        ("MAX_LOSSES", "-1"),
        ("MAX_BODY", "1000000000"),
        ("LOG_LEVEL", "loud"),
        ("LOG_FORMAT", "xml"),
        ("PUBLIC_URL", "crews.example.com"),
        ("PUBLIC_URL", "https://crews.example.com/?x=1"),
    ],
)
def test_a_value_that_cannot_be_used_is_told_by_its_variable(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"WINDLASS_{name}", value)
    with pytest.raises(SettingsError, match=rf"^WINDLASS_{name}: .*docs/reference/settings.md") as caught:
        load()
    assert caught.value.__suppress_context__


def test_all_wrong_values_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDLASS_PORT", "http")
    monkeypatch.setenv("WINDLASS_SLOTS", "none")
    with pytest.raises(SettingsError, match=r"WINDLASS_PORT.*; WINDLASS_SLOTS"):
        load()


def test_the_words_of_an_error_keep_the_case_of_what_may_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDLASS_LOG_LEVEL", "loud")
    with pytest.raises(SettingsError, match="input should be 'DEBUG', 'INFO', 'WARNING' or 'ERROR'"):
        load()


@pytest.mark.parametrize("url", ["crews.example.com", "https://", "https://crews.example.com/?x=1", "ftp://x"])
def test_an_issuer_that_is_no_address_is_refused_by_the_name_of_its_variable(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OIDC_ISSUER", url)
    with pytest.raises(SettingsError, match=r"^OIDC_ISSUER: .*must be an address"):
        load()


def test_an_issuer_has_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OIDC_ISSUER", "https://ann:hunter2@crews.example.com")
    with pytest.raises(SettingsError, match="must have no user and no password") as caught:
        load()
    assert "hunter2" not in str(caught.value)


def test_the_issuer_is_the_one_that_is_given_or_the_public_address(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load().issuer is None
    monkeypatch.setenv("WINDLASS_PUBLIC_URL", "https://crews.example.com/")
    assert load().issuer == "https://crews.example.com"
    monkeypatch.setenv("OIDC_ISSUER", "https://id.example.com/windlass/")
    assert load().issuer == "https://id.example.com/windlass"
    monkeypatch.setenv("WINDLASS_OIDC_ISSUER", "https://other.example.com")
    assert unknown_variables() == ["WINDLASS_OIDC_ISSUER"]


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError):
        load().port = 1  # type: ignore[misc]


def test_a_variable_that_no_setting_has_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WINDLASS_PROT", "WINDLASS_PORT", "WINDLASS_TOKEN", "OTHER"):
        monkeypatch.setenv(name, "1")
    assert unknown_variables() == ["WINDLASS_PROT"]


def test_a_crew_gets_what_model_providers_need_and_what_is_named_and_nothing_of_windlass_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("OPENAI_API_KEY", "WINDLASS_MASTER_KEY", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "CITY", "CITY_OF"):
        monkeypatch.setenv(name, "users")
    assert crew_environment()["OPENAI_API_KEY"] == "users"
    assert not {"WINDLASS_MASTER_KEY", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "CITY"} & crew_environment().keys()
    named = crew_environment(None, ["CITY", "AWS_*"])
    assert (named["CITY"], named["AWS_SECRET_ACCESS_KEY"]) == ("users", "users")
    assert "CITY_OF" not in named


@pytest.mark.parametrize("names", ["*", "*_KEY", "WINDLASS_MASTER_KEY", "A-B"])
def test_variables_to_be_passed_are_named_by_their_beginning_at_least(
    names: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WINDLASS_CREW_ENV", f"CITY,{names}")
    with pytest.raises(SettingsError, match="WINDLASS_CREW_ENV"):
        load()


def test_keys_of_model_providers_are_passed_but_for_those_that_open_more() -> None:
    kept = {name for name in PROVIDER_KEYS if not any(fnmatchcase(name, pattern) for pattern in PASSED)}
    assert kept == {"AWS_ACCESS_KEY_ID", "SNOWFLAKE_PAT", "SNOWFLAKE_TOKEN"}


def test_a_projects_own_variables_lie_under_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("BOTH=project\nOWN=project\nEMPTY=\nBARE\nWINDLASS_PORT=1\n")
    monkeypatch.setenv("BOTH", "user")
    environment = crew_environment(tmp_path, ["BOTH"])
    assert (environment["BOTH"], environment["OWN"], environment["EMPTY"]) == ("user", "project", "")
    assert not {"BARE", "WINDLASS_PORT"} & environment.keys()


def test_a_project_without_variables_of_its_own_or_that_is_gone_gets_the_users(tmp_path: Path) -> None:
    assert crew_environment(tmp_path) == crew_environment(tmp_path / "gone") == crew_environment()


@pytest.mark.parametrize("content", [b"KEY=\xff\n", b"A=1\nKEY=a\0b\n"])
def test_variables_that_cannot_be_read_are_told_by_their_file(content: bytes, tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(content)
    with pytest.raises(ProjectError, match=str(tmp_path / ".env")):
        crew_environment(tmp_path)


def test_every_setting_says_what_it_means() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []


def test_leases_can_be_renewed_more_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDLASS_LEASE", "2")
    monkeypatch.setenv("WINDLASS_LEASE_RENEWAL", "0.25")
    assert config.load().renewal == 0.25


def test_a_renewal_that_may_come_too_late_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDLASS_LEASE_RENEWAL", "5")
    with pytest.raises(
        SettingsError, match=r"^WINDLASS_LEASE_RENEWAL must be less than half of WINDLASS_LEASE \(10 s\)"
    ):
        config.load()
