"""The types of settings: how the text of a variable becomes a value."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_settings import NoDecode

from windlass.kickoffs.declared_settings import DAYS, SIZE
from windlass.kickoffs.egress import EGRESS
from windlass.kickoffs.opened_files import FILES


def _absolute(path: Path) -> Path:
    try:
        return path.expanduser().absolute()
    except RuntimeError as error:  # an unknown user, as in "~stranger"; pydantic expects a ValueError
        raise ValueError(str(error)) from None


def _address(url: str | None) -> str | None:
    if url and not re.fullmatch(r"https?://[^/?#\s]+(/[^?#\s]*)?", url):
        raise ValueError("must be an address such as https://crews.example.com")
    return url.rstrip("/") if url else url


def _issuer(url: str | None) -> str | None:
    if url and "@" in url:
        raise ValueError("must have no user and no password, because everybody can read it")
    return _address(url)


def _listed(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _patterns(names: list[str]) -> list[str]:
    for name in names:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*\*?", name):
            raise ValueError(f"{name!r} must be the name of a variable, or the beginning of names such as AWS_*")
        if name.startswith("WINDLASS_"):
            raise ValueError(f"{name} must not reach a crew")
    return names


def _networks(names: list[str]) -> list[str]:
    for name in names:
        try:
            ipaddress.ip_network(name)
        except ValueError:
            raise ValueError(f"{name!r} must be a network such as 10.1.0.0/16, or an address") from None
    return names


def _opened(listed: list[str]) -> list[str]:
    FILES.value(listed)
    return listed


FIRST_USER = 1000
"""The number of the first user of a person on most systems. Those before it are of the system's own services."""


def _user_numbers(text: str) -> str:
    found = re.fullmatch(r"(\d{1,9})-(\d{1,9})", text)
    if text != "none" and (found is None or not FIRST_USER <= int(found[1]) <= int(found[2])):
        raise ValueError(f"{text!r} must be a range of numbers from {FIRST_USER} on, such as 60000-64999, or none")
    return text


def _upper(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


def _size(value: object) -> object:
    """Converts text such as "512 MB" to bytes."""
    return SIZE.value(value) if isinstance(value, str) else value


MB, GB = 1 << 20, 1 << 30
Size = Annotated[int, BeforeValidator(_size), Field(gt=0)]
Age = Annotated[float, BeforeValidator(DAYS.value)]
Names = Annotated[list[str], NoDecode, BeforeValidator(_listed)]
File = Annotated[Path, AfterValidator(_absolute)]
Count = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(ge=0)]
Seconds = Annotated[float, Field(gt=0)]
Patterns = Annotated[Names, AfterValidator(_patterns)]
UserNumbers = Annotated[str, AfterValidator(_user_numbers)]
Networks = Annotated[Names, AfterValidator(_networks)]
Destinations = Annotated[Names, AfterValidator(EGRESS.value)]
OpenedFiles = Annotated[Names, AfterValidator(_opened)]
Address = Annotated[str | None, AfterValidator(_address)]
Issuer = Annotated[str | None, AfterValidator(_issuer)]
LogLevel = Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR"], BeforeValidator(_upper)]
