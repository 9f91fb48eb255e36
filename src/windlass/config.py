"""The only module that reads the environment. Every setting is a WINDLASS_* variable; docs/settings.md lists them."""

from __future__ import annotations

import io
import os
import re
import sys
from pathlib import Path
from typing import Annotated, Literal, Self

import platformdirs
from dotenv import dotenv_values
from dotenv.parser import parse_stream
from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from windlass.errors import ProjectError, SettingsError
from windlass.kickoffs.limits import BadLimit, Limits
from windlass.kickoffs.retention import Retention, age

SECRETS = ("WINDLASS_DATABASE_URL", "WINDLASS_MASTER_KEY")
ROOT_HOME = Path("/var/lib/windlass")


def default_home() -> Path:
    return ROOT_HOME if os.geteuid() == 0 and sys.platform == "linux" else platformdirs.user_data_path("windlass")


def _absolute(path: Path) -> Path:
    try:
        return path.expanduser().absolute()
    except RuntimeError as error:  # "~stranger", which pydantic would not take for a wrong value
        raise ValueError(str(error)) from None


def _address(url: str | None) -> str | None:
    if url and not re.fullmatch(r"https?://[^/?#\s]+(/[^?#\s]*)?", url):
        raise ValueError("must be an address such as https://crews.example.com")
    return url.rstrip("/") if url else url


def _listed(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _upper(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


def _size(value: object) -> object:
    """Text such as "512 MB" as bytes."""
    try:
        return Limits.parse({"memory_limit": value}).memory_limit if isinstance(value, str) else value
    except BadLimit:
        raise ValueError('must be a number of bytes, or text such as "512 MB"') from None


MB, GB = 1 << 20, 1 << 30
Size = Annotated[int, BeforeValidator(_size), Field(gt=0)]
Age = Annotated[float, BeforeValidator(age)]


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="WINDLASS_", frozen=True, env_ignore_empty=True, extra="ignore")

    home: Annotated[Path, AfterValidator(_absolute)] = Field(
        default_factory=default_home,
        description="Folder of everything that Windlass keeps: the embedded database, the master key, work folders.",
    )
    host: str = Field("127.0.0.1", description="Address that the server listens on.")
    port: int = Field(8000, ge=0, le=65535, description="Port that the server listens on; 0 takes a free one.")
    database_url: SecretStr | None = Field(
        None,
        description="A PostgreSQL 14 or newer, in place of the embedded one. Removed from the environment once read.",
    )
    master_key: SecretStr | None = Field(
        None,
        description="Keys in place of the file `master.key` in the home, separated by commas: the first one encrypts, "
        "all decrypt. Removed from the environment once read.",
    )
    public_url: Annotated[str | None, AfterValidator(_address)] = Field(
        None, description="Address that base URLs are written with, when clients reach the server by another one."
    )
    crew_domain: str | None = Field(
        None, description="With `crews.example.com`, a crew is also served at `<slug>.crews.example.com`."
    )
    trusted_proxies: Annotated[list[str], NoDecode, BeforeValidator(_listed)] = Field(
        default_factory=list, description="Addresses, separated by commas, whose X-Forwarded-* headers are believed."
    )
    slots: int = Field(
        default_factory=lambda: max(4, 2 * (os.cpu_count() or 1)),
        ge=1,
        le=1000,
        description="How many kickoffs one worker runs at once.",
    )
    max_body: int = Field(
        1024 * 1024, ge=1024, le=64 * 1024 * 1024, description="Largest request body, in bytes; 64 MiB at most."
    )
    request_timeout: float = Field(
        20.0, gt=0, le=3600, description="Seconds that a client has to send its whole request, headers and body."
    )
    lease: float = Field(
        10.0, ge=1, le=3600, description="Seconds after which the kickoffs of a silent worker are run elsewhere."
    )
    lease_renewal: float | None = Field(
        None,
        gt=0,
        description="Seconds between renewals of these leases; a quarter of them when not given, so that three may "
        "fail. It must be less than half.",
    )
    drain_grace: float = Field(
        20.0,
        ge=0,
        le=86_400,
        description="Seconds that runs may go on after their worker was told to stop (SIGTERM), before they are given "
        "back.",
    )
    max_losses: int = Field(
        3,
        ge=0,
        le=1000,
        description="How often a kickoff is run again after its worker or process was lost, before it fails as "
        "`lost`; a finished task counts it anew.",
    )
    timeout: float = Field(
        3600.0, gt=0, description="Seconds that a run may take, for crews that set no `timeout` (docs/limits.md)."
    )
    memory_limit: Size = Field(
        2 * GB, description="Memory of one run, all its processes together, for crews that set no `memory_limit`."
    )
    process_limit: int = Field(256, ge=1, description="Processes of one run, for crews that set no `process_limit`.")
    output_limit: Size = Field(
        10 * MB, description="What is kept of the lines that a run prints, for crews that set no `output_limit`."
    )
    result_limit: Size = Field(64 * MB, description="A run's result, for crews that set no `result_limit`.")
    stall_after: float = Field(
        300.0,
        gt=0,
        description="Seconds without a sign of life from a run after which it is noted where it stands, for crews that "
        "set no `stall_after`.",
    )
    stop_grace: float = Field(
        5.0, ge=0.1, le=600, description="Seconds that a run has to end by itself once it is stopped."
    )
    max_waiting: int = Field(
        10_000,
        ge=1,
        description="Kickoffs of one crew that may wait, for crews that set no `max_waiting`; more get 429.",
    )
    crew_user: str | None = Field(
        None,
        description="The system user that crews run as when the server is root (docs/security.md); `root` for root "
        "itself. Chosen when not given.",
    )
    zygote_idle: float = Field(
        600.0, gt=0, description="Seconds after which a process that crews are forked from is stopped when none was."
    )
    zygote_memory: Size = Field(
        4 * GB, description="Memory of all such processes together, above which idle ones make room for a new one."
    )
    retention_kickoffs: Age = Field(
        90.0,
        description="Days after its end that a kickoff is kept, for crews that do not say (docs/retention.md); 0 or "
        "`forever` keeps it.",
    )
    retention_events: Age = Field(
        30.0, description="Days after the end of a kickoff that its events are kept, likewise."
    )
    retention_journal: Age = Field(
        7.0, description="Days after the end of a kickoff that its journal is kept, likewise."
    )
    offline_script: Annotated[Path, AfterValidator(_absolute)] | None = Field(
        None, description="File of rules that the offline model of `windlass dev` answers by (docs/offline-model.md)."
    )
    log_format: Literal["text", "json"] = Field(
        "text", description="Form of the log lines on standard error: text or json."
    )
    log_level: Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR"], BeforeValidator(_upper)] = Field(
        "INFO", description="Least level that is logged: DEBUG, INFO, WARNING or ERROR."
    )

    @property
    def address_file(self) -> Path:
        """Holds the address of the server that runs on this home, for the commands beside it."""
        return self.home / "address"

    @property
    def limits(self) -> Limits:
        """Of runs whose deployment sets none."""
        return Limits(
            timeout=self.timeout,
            memory_limit=self.memory_limit,
            process_limit=self.process_limit,
            output_limit=self.output_limit,
            result_limit=self.result_limit,
            stall_after=self.stall_after,
        )

    @property
    def retention(self) -> Retention:
        """Of deployments whose project says nothing."""
        return Retention(self.retention_kickoffs, self.retention_events, self.retention_journal)

    @property
    def renewal(self) -> float:
        """Seconds between renewals of leases."""
        return self.lease / 4 if self.lease_renewal is None else self.lease_renewal

    @model_validator(mode="after")
    def _renewed_in_time(self) -> Self:
        if self.renewal >= self.lease / 2:
            raise ValueError(f"WINDLASS_LEASE_RENEWAL must be less than half of WINDLASS_LEASE ({self.lease:g} s)")
        return self


def load() -> Settings:
    """Reads the environment once and takes the secret variables out of it, so that no child or error page can show
    them.
    """
    if os.environ.get("WINDLASS_MASTER_KEY") == "":
        raise SettingsError(
            "WINDLASS_MASTER_KEY is set and empty.", "Give it a key, or unset it to use the file in the home."
        )
    try:
        settings = Settings()
    except ValidationError as error:
        raise SettingsError(_in_words(error), "docs/settings.md lists the settings.") from None
    for name in SECRETS:
        os.environ.pop(name, None)
    return settings


def crew_environment(project: Path | None = None) -> dict[str, str]:
    """What `windlass dev` hands to the crew: the user's own environment over the project's .env, without what is
    Windlass's.
    """
    declared = _declared(project / ".env") if project else {}
    given = {name: value for name, value in declared.items() if value is not None} | os.environ
    return {name: value for name, value in given.items() if not name.startswith("WINDLASS_")}


def unread_lines(project: Path) -> list[int]:
    """Where in the project's .env a line begins that says of no variable what it is, and is passed over."""
    try:
        text = _text_of(project / ".env")
    except ProjectError:  # which whoever reads the variables is told
        return []
    return [found.original.line for found in parse_stream(io.StringIO(text)) if found.error]


def _declared(file: Path) -> dict[str, str | None]:
    """Without the lines that can't be read: the library would log each, and not the file's name."""
    lines = parse_stream(io.StringIO(_text_of(file)))
    return dotenv_values(stream=io.StringIO("".join(one.original.string for one in lines if not one.error)))


def _text_of(file: Path) -> str:
    """Nothing for a file that is not there."""
    try:
        text = file.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ProjectError(f"{file} can't be read: {error}.", "It must be UTF-8 text.") from None
    for number, line in enumerate(text.splitlines(), 1):
        if "\0" in line:
            raise ProjectError(f"{file}:{number} holds a NUL character, which no variable can.", "Remove it.")
    return text


def unknown_variables() -> list[str]:
    """WINDLASS_* variables that no setting has: typing errors, mostly."""
    known = {f"WINDLASS_{name.upper()}" for name in Settings.model_fields} | {"WINDLASS_TOKEN"}
    return sorted(name for name in os.environ if name.startswith("WINDLASS_") and name not in known)


def _in_words(error: ValidationError) -> str:
    return "; ".join(_one_in_words(found["loc"], found["msg"]) for found in error.errors(include_input=False))


def _one_in_words(place: tuple[int | str, ...], what: str) -> str:
    if not place:  # of several together, which it names
        return what.removeprefix("Value error, ")
    return f"WINDLASS_{str(place[0]).upper()}: {what[0].lower()}{what[1:]}"
