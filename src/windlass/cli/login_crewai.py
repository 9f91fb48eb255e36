"""Logs the crewai command line in to a Windlass server, so that `crewai deploy` deploys there
(docs/how-to/crewai-cli.md).

It writes the two files in which that program keeps its server and its login, in the form that it has had since 0.80.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windlass.cli.login import validity
from windlass.cli.printing import json_option, notify, print_json
from windlass.cli.servers import chosen_server, control_of, profile_option
from windlass.errors import WindlassError

if TYPE_CHECKING:
    from windlass.secrets.secret import Secret

SETTINGS = Path(".config/crewai/settings.json")
CREDENTIALS = "crewai/credentials"
KEY, TOKENS = "secret.key", "tokens.enc"
KEY_LENGTH = 44
NEVER = datetime(2100, 1, 1, tzinfo=UTC)
"""The end of a login whose token does not expire. The program wants a date."""


@click.command("login-crewai")
@profile_option
@json_option
def login_crewai(*, profile: str | None, json_output: bool) -> None:
    """Let `crewai deploy` deploy to a server.

    Stores the address of the server and your personal token where the crewai command line keeps its own login, which
    this replaces. `crewai deploy create`, `push`, `list`, `status`, `logs` and `remove` then work with this server.
    The server is that of the other commands (windlass profiles).
    """
    server = chosen_server(profile)
    with control_of(server) as control:
        me = control.get("me")
    home = Path.home()
    ends = me["token"]["expires_at"]
    try:
        save_login(home, server.token, datetime.fromisoformat(ends) if ends else NEVER)
        save_address(home / SETTINGS, server.url)
    except OSError as error:
        raise WindlassError(
            f"The login of crewai can't be written: {error.filename}: {error.strerror}.", "Check the folder's rights."
        ) from None
    if json_output:
        print_json({"url": server.url, "user": me["user"], "settings": str(home / SETTINGS)})
    notify(f"`crewai deploy` uses {server.url} now, as {me['user']}. In a project: crewai deploy create")
    notify(validity(me["token"]))
    notify("For crewai's own service again: crewai enterprise configure https://app.crewai.com, then crewai login")


def save_login(home: Path, token: Secret, ends: datetime) -> None:
    """Raises OSError."""
    from cryptography.fernet import Fernet

    data = Path("Library/Application Support") if sys.platform == "darwin" else Path(".local/share")
    folder = home / data / CREDENTIALS
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    local = ends.astimezone().replace(tzinfo=None)  # as the program compares it
    login = json.dumps({"access_token": token.reveal(), "expiration": local.isoformat()})
    write_private(folder / TOKENS, Fernet(key_of(folder / KEY)).encrypt(login.encode()).decode("ascii"))


def key_of(file: Path) -> bytes:
    """Returns the key of the program's files, and makes it if there is none."""
    from cryptography.fernet import Fernet

    try:
        key = file.read_bytes()
    except FileNotFoundError:
        key = b""
    if len(key) != KEY_LENGTH:
        key = Fernet.generate_key()
        write_private(file, key.decode("ascii"))
    return key


def save_address(file: Path, url: str) -> None:
    """Sets the address in the program's settings, and keeps the others. Raises OSError, and WindlassError."""
    try:
        settings: Any = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        settings = {}
    except ValueError:
        settings = None
    if not isinstance(settings, dict):
        raise WindlassError(f"{file} is no JSON object.", "Remove it, or run: crewai config reset")
    # The program sends the id of the organization that it was logged in to before; this server has none.
    kept = {name: value for name, value in settings.items() if name not in {"org_name", "org_uuid"}}
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(file, json.dumps({**kept, "enterprise_base_url": url}, indent=4))


def write_private(file: Path, text: str) -> None:
    from windlass.files import write_whole

    write_whole(file, text, 0o600)
