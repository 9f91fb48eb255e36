"""The servers that this user has logged in to, each under a name, with their tokens. They are in a file that only the
user can read.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from windlass.errors import WindlassError
from windlass.files import write_whole

if TYPE_CHECKING:
    from pathlib import Path

    from windlass.secrets.secret import Secret

LOCAL = "local"
"""The profile of the server that runs on this WINDLASS_HOME. It is in no file."""


@dataclass(frozen=True, slots=True)
class Profile:
    url: str
    token: str = field(repr=False)
    user: str = ""


@dataclass(frozen=True, slots=True)
class Server:
    """The server of a command.

    `options` are those that a command needs to choose it again. `served` are the crews that `windlass dev` serves on
    this machine, none for other servers.
    """

    url: str
    token: Secret
    profile: str | None = None
    options: tuple[str, ...] = ()
    served: tuple[str, ...] = ()

    @property
    def login_again(self) -> str:
        """Returns what to do when the server refuses the token."""
        if self.profile is None:
            return "Check WINDLASS_API_TOKEN: a personal token that is valid and not revoked."
        return f"Log in again: windlass login {self.url} --name {self.profile}"


@dataclass(slots=True)
class Profiles:
    """The profiles by name. `current` is the one that commands use, LOCAL for this machine's server."""

    current: str = LOCAL
    profiles: dict[str, Profile] = field(default_factory=dict)

    @classmethod
    def load(cls) -> Profiles:
        """Raises WindlassError for a file that can't be read."""
        file = _file()
        try:
            content = json.loads(file.read_text("utf-8"))
            found = {name: Profile(**members) for name, members in content["profiles"].items()}
            return cls(str(content["current"]), found)
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise _unreadable(file, error) from None

    def save(self) -> None:
        """Raises WindlassError when the file can't be written."""
        file = _file()
        text = json.dumps({"current": self.current, "profiles": {n: asdict(one) for n, one in self.profiles.items()}})
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(file, f"{text}\n", 0o600)
        except OSError as error:
            raise WindlassError(
                f"{file} can't be written: {error.strerror}.", "Set WINDLASS_URL and WINDLASS_API_TOKEN instead."
            ) from None

    def get(self, name: str) -> Profile | None:
        """Returns the profile, None for LOCAL. Raises WindlassError for an unknown one."""
        if name == LOCAL:
            return None
        if name not in self.profiles:
            known = ", ".join([LOCAL, *self.profiles])
            raise WindlassError(f"There is no profile {name!r}.", f"There are: {known}. `windlass login URL` adds one.")
        return self.profiles[name]


def _file() -> Path:
    from windlass.config import profiles_file

    return profiles_file()


def _unreadable(file: Path, error: Exception) -> WindlassError:
    why = error.strerror if isinstance(error, OSError) else "it is not a file of profiles"
    return WindlassError(f"{file} can't be read: {why}.", "Remove it and log in again: windlass login URL")
