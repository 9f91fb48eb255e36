"""Reads the environment. No other module does. Each setting is a variable, listed in docs/reference/settings.md."""

# See docs/decisions/packaging.md#a-secret-is-in-a-variable-or-in-a-file-not-in-both

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, Self

import platformdirs
from pydantic import Field, SecretStr, ValidationError, model_validator
from pydantic_settings import SettingsConfigDict

from windlass.errors import SettingsError
from windlass.kickoffs.files import FileLimits
from windlass.kickoffs.limits import Limits
from windlass.kickoffs.retention import Retention
from windlass.setting_types import (
    GB,
    MB,
    Address,
    Age,
    Count,
    Destinations,
    File,
    Issuer,
    LogLevel,
    Names,
    Networks,
    OpenedFiles,
    Patterns,
    Rate,
    Seconds,
    Size,
    UserNumbers,
)
from windlass.sign_in_settings import SignInSettings

OF_COMMANDS = ("WINDLASS_TOKEN", "WINDLASS_PROFILE", "WINDLASS_URL", "WINDLASS_API_TOKEN")
"""Variables that commands read and servers do not (docs/reference/cli.md)."""
SECRETS = (
    "WINDLASS_DATABASE_URL",
    "WINDLASS_DATABASE_DIRECT_URL",
    "WINDLASS_MASTER_KEY",
    "WINDLASS_SIGN_IN_CLIENT_SECRET",
    "OIDC_PRIVATE_KEY",
)
FILES = tuple(f"{name}_FILE" for name in SECRETS)
"""For each secret, the variable with the path of a file that holds it: the form of Docker's and Kubernetes' secrets."""
LARGEST_SECRET = 64 * 1024
ROOT_HOME = Path("/var/lib/windlass")


def default_home() -> Path:
    return ROOT_HOME if os.geteuid() == 0 and sys.platform == "linux" else platformdirs.user_data_path("windlass")


class Settings(SignInSettings):
    model_config = SettingsConfigDict(env_prefix="WINDLASS_", frozen=True, env_ignore_empty=True, extra="ignore")

    home: File = Field(
        default_factory=default_home,
        description="Folder of the server's own data: the embedded database, the master key, work folders.",
    )

    # where clients reach the server
    host: str = Field("127.0.0.1", description="Address that the server listens on.")
    port: int = Field(8000, ge=0, le=65535, description="Port that the server listens on; 0 selects a free port.")
    database_url: SecretStr | None = Field(
        None,
        description="URL of a PostgreSQL server, version 14 or newer, in place of the embedded one. Removed from the "
        "environment once read.",
    )
    database_direct_url: SecretStr | None = Field(
        None,
        description="URL of the same database without the pooler, if `WINDLASS_DATABASE_URL` leads to a PgBouncer with "
        "`pool_mode = transaction` (docs/how-to/postgresql.md). Removed from the environment once read.",
    )
    migrate_at_start: bool = Field(
        True,
        description="Whether a server migrates the tables in `WINDLASS_DATABASE_URL` at its start. If not, it waits "
        "until `windlass migrate` has done so (docs/how-to/upgrade.md). The embedded database is always migrated.",
    )
    master_key: SecretStr | None = Field(
        None,
        description="Keys in place of the file `master.key` in the home, separated by commas: the first one encrypts, "
        "all decrypt. Removed from the environment once read.",
    )
    public_url: Address = Field(
        None,
        description="Address for base URLs, when clients reach the server by another address than `WINDLASS_HOST`.",
    )
    crew_domain: str | None = Field(
        None, description="With `crews.example.com`, a crew is also served at `<slug>.crews.example.com`."
    )
    oidc_issuer: Issuer = Field(
        None,
        validation_alias="OIDC_ISSUER",
        description="Address of the server's OIDC issuer, as cloud providers reach it (docs/concepts/identity.md); "
        "`WINDLASS_PUBLIC_URL` when not given.",
    )
    oidc_private_key: SecretStr | None = Field(
        None,
        validation_alias="OIDC_PRIVATE_KEY",
        description="RSA keys of the issuer in place of those in the database, as PEM: the first one signs, all are "
        "published. Removed from the environment once read.",
    )
    trusted_proxies: Names = Field(
        default_factory=list, description="Addresses, separated by commas, whose X-Forwarded-* headers are believed."
    )
    allowed_hosts: Names = Field(
        default_factory=list,
        description="Further host names of the server that requests may use, separated by commas "
        "(docs/reference/api.md); "
        "`*.example.com` is every name below, `*` every name.",
    )

    # bounds of requests, answers and connections
    max_body: int = Field(
        1024 * 1024, ge=1024, le=64 * 1024 * 1024, description="Largest request body, in bytes; 64 MiB at most."
    )
    large_answers: Size = Field(
        GB,
        description="Disk space in the home for large answers while clients read them; when it is full, the next such "
        "request gets 503.",
    )
    request_timeout: float = Field(
        20.0, gt=0, le=3600, description="Seconds that a client has to send its whole request, headers and body."
    )
    send_timeout: float = Field(
        30.0,
        gt=0,
        le=3600,
        description="Seconds in which a client must read each piece of an answer, 256 KB at most; then its connection "
        "is closed.",
    )
    max_connections: Count = Field(
        1000,
        description="Largest number of client connections; at most half of the files that the process may have open.",
    )
    max_connections_per_address: Count = Field(
        250,
        description="Largest number of connections from one address; for IPv6, from one /64 network. This machine and "
        "trusted proxies are not counted.",
    )

    # rate limits
    failed_auth_limit: int = Field(
        60,
        ge=0,
        description="Requests with a wrong token and failed sign-ins that one address may have in a minute, counted "
        "like connections; 0 is no limit.",
    )
    request_limit: Rate = Field(
        0.0, description="Requests that one organization token may send in a second; 0 is no limit."
    )
    user_request_limit: Rate = Field(
        100.0, description="Requests that one user token or personal token may send in a second; 0 is no limit."
    )

    metrics: bool = Field(
        True,
        description="Whether `/metrics` answers (docs/reference/metrics.md). It needs a personal token, except "
        "on a loopback "
        "address without `WINDLASS_PUBLIC_URL`.",
    )

    # the worker: its slots, leases and losses
    slots: int = Field(
        default_factory=lambda: max(4, 2 * (os.cpu_count() or 1)),
        ge=1,
        le=1000,
        description="How many kickoffs one worker runs at once.",
    )
    lease: float = Field(
        10.0,
        ge=1,
        le=3600,
        description="Seconds without a sign of life from a worker after which other workers run its kickoffs.",
    )
    lease_renewal: Seconds | None = Field(
        None,
        description="Seconds between renewals of a lease; a quarter of `WINDLASS_LEASE` when not given, so that three "
        "renewals may fail. It must be less than half of `WINDLASS_LEASE`.",
    )
    drain_grace: float = Field(
        20.0,
        ge=0,
        le=86_400,
        description="Seconds that runs may go on after their worker received SIGTERM, before they are released. "
        "Requests that are being answered may go on for as long.",
    )
    stop_delay: float = Field(
        0.0,
        ge=0,
        le=3600,
        description="Seconds after SIGTERM in which an API process goes on accepting connections while `/ready` "
        "answers 503, so that load balancers stop using it (docs/how-to/upgrade.md).",
    )
    max_losses: int = Field(
        3,
        ge=0,
        le=1000,
        description="How often a kickoff is run again after its worker or process was lost, before it fails as `lost`; "
        "a finished task resets the count. An attempt whose process never started is no loss; ten of them in a row "
        "fail the kickoff as `lost`, with 0 the first one.",
    )

    # limits of one run
    timeout: Seconds = Field(
        3600.0, description="Seconds that a run may take, for crews that set no `timeout` (docs/reference/limits.md)."
    )
    memory_limit: Size = Field(
        2 * GB, description="Memory of one run with all its processes, for crews that set no `memory_limit`."
    )
    process_limit: Count = Field(256, description="Processes of one run, for crews that set no `process_limit`.")
    output_limit: Size = Field(
        10 * MB, description="Size of the printed lines of a run that are kept, for crews that set no `output_limit`."
    )
    result_limit: Size = Field(64 * MB, description="Size of a run's result, for crews that set no `result_limit`.")
    disk_limit: Size = Field(
        2 * GB, description="Disk space of the files in a run's folder, for crews that set no `disk_limit`."
    )
    file_limit: Count = Field(
        100_000, description="Files and folders in a run's folder, for crews that set no `file_limit`."
    )
    event_limit: Count = Field(
        100_000, description="Events of one kickoff that are stored, for crews that set no `event_limit`."
    )
    stored_limit: Size = Field(
        512 * MB,
        description="Size of the data of one kickoff in the database: events, task outputs, journal; for crews that "
        "set no `stored_limit`.",
    )
    stored_files: int = Field(
        1000,
        ge=0,
        le=10_000,
        description="Files of one kickoff that are stored (docs/concepts/files.md); 0 stores none.",
    )
    stored_file_size: Size = Field(20 * MB, description="Size of one file of a kickoff; larger ones are not stored.")
    stored_files_size: Size = Field(100 * MB, description="Size of all stored files of one kickoff together.")
    stall_after: Seconds = Field(
        300.0,
        description="Seconds without a sign of life from a run after which the stacks of its threads are recorded, "
        "for crews that set no `stall_after`.",
    )
    stop_grace: float = Field(
        5.0,
        ge=0.1,
        le=600,
        description="Seconds that a run has to end after a stop request, before its processes are killed.",
    )

    # the queue
    max_waiting: Count = Field(
        10_000,
        description="Kickoffs of one crew that may wait, for crews that set no `max_waiting`; further requests get "
        "429.",
    )
    visible_to: Literal["members", "everybody"] = Field(
        "members",
        description="Who sees a new deployment: its `members`, at first the user who made it, or `everybody` with a "
        "role. Owners of the server see all (docs/how-to/people.md).",
    )
    user_queue_share: float = Field(
        0.25,
        gt=0,
        le=1,
        description="Fraction of a crew's queue that one user's kickoffs may take, with user tokens; further requests "
        "get 429.",
    )
    user_max_priority: int = Field(
        0, ge=0, le=100, description="Highest `priority` of a kickoff that is sent with a user token."
    )
    user_max_days_ahead: float = Field(
        7.0,
        gt=0,
        le=366,
        description="How many days ahead the `runAt` of a kickoff may be that is sent with a user token.",
    )

    # crews and their processes
    crew_user: str | None = Field(
        None,
        description="The system user that crews run as when the server is root (docs/concepts/security.md); "
        "`root` is root "
        "itself. The server chooses one when not given.",
    )
    crew_users: UserNumbers = Field(
        "60000-64999",
        description="The numbers of the system users that deployed crews run as when the server is root, one for each "
        "deployment (docs/concepts/security.md): a range, the same on all servers, or `none` for one user.",
    )
    crew_env: Patterns = Field(
        default_factory=list,
        description="Variables of the server's environment that crews get in addition to those in "
        "docs/concepts/projects.md: names, and beginnings of names such as `AWS_*`, separated by commas.",
    )
    crew_files: OpenedFiles = Field(
        default_factory=list,
        description="Files of this machine that crews may use beside their own, if their deployment has no `files`: "
        "paths with `:ro` or `:rw`, separated by commas (docs/concepts/processes.md).",
    )
    egress: Destinations = Field(
        default_factory=lambda: ["open"],
        description="What crews may connect to, for crews that set no `egress` (docs/how-to/egress.md): `open`, "
        "`public`, `none`, `unrestricted`, or hosts, separated by commas. With `windlass dev` the default is "
        "`unrestricted`.",
    )
    project_owners: Names = Field(
        default_factory=list,
        description="System users whose projects the server runs, in addition to its own user and root: names or "
        "numbers, separated by commas (docs/concepts/security.md).",
    )
    git_allow_private: bool = Field(
        False,
        description="Whether projects may be fetched from git repositories in private networks, on this machine, and "
        "over plain HTTP (docs/concepts/sources.md).",
    )
    webhook_allow: Networks = Field(
        default_factory=list,
        description="Private networks that webhooks may be sent to, such as `10.1.0.0/16` or `127.0.0.1`, separated by "
        "commas; otherwise only public addresses (docs/how-to/webhooks.md).",
    )
    secret_endpoints: Names = Field(
        default_factory=list,
        description="Private endpoints of secret managers in place of the public ones, such as "
        "`aws.secretsmanager=https://vpce.example.com`, separated by commas (docs/how-to/secrets-aws.md).",
    )
    zygote_idle: Seconds = Field(
        600.0,
        description="Seconds without a fork after which a zygote, a process that crews are forked from, is stopped.",
    )
    zygote_memory: Size = Field(
        4 * GB, description="Memory of all zygotes together; above it, idle zygotes are stopped when a new one starts."
    )

    # retention
    retention_kickoffs: Age = Field(
        90.0,
        description="Days after its end that a kickoff is kept, for crews that set no retention "
        "(docs/reference/retention.md); 0 or `forever` keeps it.",
    )
    retention_events: Age = Field(
        30.0,
        description="Days after the end of a kickoff that its events are kept; otherwise as "
        "`WINDLASS_RETENTION_KICKOFFS`.",
    )
    retention_journal: Age = Field(
        7.0,
        description="Days after the end of a kickoff that its journal is kept; otherwise as "
        "`WINDLASS_RETENTION_KICKOFFS`.",
    )

    retention_deliveries: Age = Field(
        30.0,
        description="Days after the end of a kickoff that the attempts to deliver its webhooks are kept; otherwise as "
        "`WINDLASS_RETENTION_KICKOFFS`.",
    )

    audit_retention: Age = Field(
        0.0,
        description="Days that entries of the audit log are kept (docs/how-to/people.md); 0 or `forever` keeps them.",
    )

    # the offline model and the log
    offline_script: File | None = Field(
        None,
        description="File with the rules by which the offline model of `windlass dev` answers "
        "(docs/how-to/offline-model.md).",
    )
    log_format: Literal["text", "json"] = Field(
        "text", description="Format of the log lines on standard error: text or json."
    )
    log_level: LogLevel = Field("INFO", description="Lowest level that is logged: DEBUG, INFO, WARNING or ERROR.")

    @property
    def address_file(self) -> Path:
        """The file with the address of the server that runs on this home. Commands on the same machine read it."""
        return self.home / "address"

    @property
    def issuer(self) -> str | None:
        """The address of the OIDC issuer. None: it is the one that the server listens on, if that is a loopback one."""
        return self.oidc_issuer or self.public_url

    @property
    def limits(self) -> Limits:
        """The limits of runs whose deployment sets none."""
        return Limits(**{name: getattr(self, name) for name in asdict(Limits()) if name in type(self).model_fields})

    @property
    def files(self) -> FileLimits:
        """The limits of the files of a kickoff."""
        return FileLimits(self.stored_files, self.stored_file_size, self.stored_files_size)

    @property
    def retention(self) -> Retention:
        """The retention of deployments whose project sets none."""
        return Retention(
            self.retention_kickoffs, self.retention_events, self.retention_deliveries, self.retention_journal
        )

    @property
    def renewal(self) -> float:
        """Seconds between renewals of a lease."""
        return self.lease / 4 if self.lease_renewal is None else self.lease_renewal

    @model_validator(mode="after")
    def _renewed_in_time(self) -> Self:
        if self.renewal >= self.lease / 2:
            raise ValueError(f"WINDLASS_LEASE_RENEWAL must be less than half of WINDLASS_LEASE ({self.lease:g} s)")
        return self


def load() -> Settings:
    """Reads the settings from the environment once, and removes the secret variables from it.

    So no child process and no error page can show them. Raises SettingsError.
    """
    if os.environ.get("WINDLASS_MASTER_KEY") == "":
        raise SettingsError(
            "WINDLASS_MASTER_KEY is set and empty.", "Give it a key, or unset it to use the file in the home."
        )
    files = _secrets_of_files()
    try:
        settings = Settings(**files)
    except ValidationError as error:
        raise SettingsError(_in_words(error), "docs/reference/settings.md lists the settings.") from None
    for name in SECRETS:
        os.environ.pop(name, None)
    return settings


def _secrets_of_files() -> dict[str, Any]:
    """Returns the secrets that FILES name, as arguments of Settings. Raises SettingsError."""
    found = {}
    for setting, field in Settings.model_fields.items():
        name = variable_of(setting)
        if name in SECRETS and (file := os.environ.get(f"{name}_FILE")):
            if os.environ.get(name):
                raise SettingsError(f"{name} and {name}_FILE are both set.", "Unset one of them.")
            found[str(field.validation_alias or setting)] = _secret_of_file(f"{name}_FILE", Path(file))
    return found


def _secret_of_file(name: str, file: Path) -> SecretStr:
    try:
        with file.open("rb") as opened:
            content = opened.read(LARGEST_SECRET + 1)
        text = content.decode().strip()
    except OSError as error:
        raise SettingsError(
            f"{name}: {file} can't be read: {error.strerror}.",
            f"Check the path, and that the user with the number {os.geteuid()} may read the file.",
        ) from None
    except UnicodeDecodeError:
        raise SettingsError(f"{name}: {file} is no text in UTF-8.", "Write the secret into it as text.") from None
    if len(content) > LARGEST_SECRET:
        raise SettingsError(
            f"{name}: {file} has more than {LARGEST_SECRET // 1024} KB.", "Name the file with the secret alone."
        )
    if not text:
        raise SettingsError(f"{name}: {file} is empty.", "Write the secret into it.")
    return SecretStr(text)


def environment() -> dict[str, str]:
    """Returns the server's environment without the variables of Windlass. Crews get a part of it."""
    hidden = {*SECRETS, *FILES}
    return {
        name: value for name, value in os.environ.items() if not name.startswith("WINDLASS_") and name not in hidden
    }


def server_of_commands() -> tuple[str | None, str | None, SecretStr | None]:
    """Returns the values of WINDLASS_PROFILE, WINDLASS_URL and WINDLASS_API_TOKEN, None for one that is not set."""
    profile, url, token = (os.environ.get(name, "").strip() for name in OF_COMMANDS[1:])
    return profile or None, url or None, SecretStr(token) if token else None


def profiles_file() -> Path:
    """Returns the file with the servers that this user has logged in to, and their tokens."""
    return platformdirs.user_config_path("windlass") / "profiles.json"


def notify_socket() -> str | None:
    """Returns the address at which systemd waits for the state of a service, None without one. No child inherits it."""
    return os.environ.pop("NOTIFY_SOCKET", None)


def variable_of(setting: str) -> str:
    """Returns the name of the variable that the setting is read from."""
    return str(Settings.model_fields[setting].validation_alias or f"WINDLASS_{setting.upper()}")


def unknown_variables() -> list[str]:
    """Returns the WINDLASS_* variables that are no setting. Most are typing errors."""
    known = {variable_of(name) for name in Settings.model_fields} | {*OF_COMMANDS, *FILES}
    return sorted(name for name in os.environ if name.startswith("WINDLASS_") and name not in known)


def _in_words(error: ValidationError) -> str:
    return "; ".join(_one_in_words(found["loc"], found["msg"]) for found in error.errors(include_input=False))


def _one_in_words(place: tuple[int | str, ...], what: str) -> str:
    if not place:  # an error of several settings, whose message names them
        return what.removeprefix("Value error, ")
    name = str(place[0])
    return f"{variable_of(name) if name in Settings.model_fields else name}: {what[0].lower()}{what[1:]}"
