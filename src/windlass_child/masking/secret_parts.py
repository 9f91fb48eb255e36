"""Finds the secrets in the values of a crew's variables, by their form and by the names of the variables."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

SHORTEST = 8
"""The fewest characters of a masked value. A shorter one is likely to be a word that occurs in harmless text."""
SHORTEST_PASSWORD = 4
"""The fewest characters of a masked password in a URL. One of fewer than SHORTEST is masked only as a whole word."""
SHORTEST_LINE = 16
"""The fewest characters of a masked line of a value that has several lines, such as a private key."""
MACHINE = {"HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SSL_CERT_DIR", "SSL_CERT_FILE", "TZ", "USER"}
"""Variables of the machine. With those that begin with LC_, every crew has them, and none is masked."""

SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASS|PWD|CREDENTIAL|AUTH(?!OR)|DSN", re.IGNORECASE)
"""In a variable with such a name an ordinary value is masked too. A value that is not ordinary is masked in every
variable.
"""

WORD, NUMBER, MIXED = (re.compile(form) for form in (r"[^\W\d_]{1,15}", r"\d{1,8}", r"\w{1,6}"))
SEPARATORS = re.compile(r"[-_.,:;/@+ ]+")
MOST_MIXED = 2
COMMON = {"admin", "guest", "local", "localhost", "pass", "password", "postgres", "root", "secret", "test", "user"}


def is_of_the_machine(name: str) -> bool:
    return name in MACHINE or name.startswith("LC_")


def secrets_in(name: str, value: str) -> Iterator[str]:
    """Yields the secrets of one variable."""
    value = value.strip()
    if "://" in value and not re.search(r"\s", value):
        yield from secrets_in_url(value)
    elif len(value) >= SHORTEST and (SECRET_NAME.search(name) or not is_ordinary(value)) and not is_path(value):
        yield value
        for part in parts_of(value):
            if len(part) >= SHORTEST_LINE and not is_ordinary(part):
                yield part


def secrets_in_url(url: str) -> Iterator[str]:
    """Yields the URL itself, its password or token, and the parts of its path and query that are not ordinary."""
    try:
        found = urlsplit(url)
        user, password = found.username or "", found.password or ""
    except ValueError:
        yield url
        return
    pieces = [*found.path.split("/"), *re.split(r"[&=;]", found.query)]
    hidden = [piece for piece in pieces if len(piece) >= SHORTEST and not is_ordinary(piece)]
    if user and not password and len(user) >= SHORTEST:
        hidden.append(user)
    if len(password) >= SHORTEST_PASSWORD and password.lower() not in COMMON:
        hidden.append(password)
    if hidden or password:
        yield url
    for one in hidden:
        yield one
        yield unquote(one)


def parts_of(value: str) -> Iterator[str]:
    """Yields the lines of a value. For a JSON object, such as a service account's key, yields the texts in it too."""
    if "\n" in value:
        yield from (line.strip() for line in value.splitlines())
    if value.startswith("{"):
        try:
            found = json.loads(value)
        except (ValueError, RecursionError):
            return
        for text in found.values():
            if isinstance(text, str):
                yield text
                yield from (line.strip() for line in text.splitlines())


def is_ordinary(value: str) -> bool:
    """Returns whether the value consists of words, numbers and few short mixtures, like names of models, regions and
    modes.
    """
    mixed = 0
    for part in SEPARATORS.split(value):
        if part and not WORD.fullmatch(part) and not NUMBER.fullmatch(part):
            mixed += 1
            if mixed > MOST_MIXED or not MIXED.fullmatch(part):
                return False
    return True


def is_path(value: str) -> bool:
    """Returns whether the value is a path below an existing folder, or several such paths separated by colons."""
    return all(path.startswith("~/") or exists("/".join(path.split("/")[:2])) for path in value.split(":") if path)


def exists(path: str) -> bool:
    try:
        return path.startswith("/") and len(path) > 1 and Path(path).exists()
    except (OSError, ValueError):
        return False
