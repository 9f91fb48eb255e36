"""Searches everything that a server stores, sends and shows for marked secrets."""

from __future__ import annotations

import base64
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import psycopg
from psycopg.sql import SQL, Identifier

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

COLUMNS = """
SELECT table_schema, table_name, column_name
  FROM information_schema.columns
  JOIN information_schema.tables USING (table_schema, table_name)
 WHERE table_type = 'BASE TABLE' AND table_schema NOT IN ('pg_catalog', 'information_schema')
"""
PARAMETER = re.compile(r"{(\w+)(?::path)?}")


def forms(secret: str) -> dict[str, bytes]:
    """Returns the forms in which a secret could be found, by their names."""
    raw = secret.encode()
    found = {"plain": raw, "hex": raw.hex().encode(), "URL": quote(secret, safe="").encode()}
    for skipped in range(3):  # the secret may begin at each of three places of a base64 group
        whole = base64.b64encode(b"\0" * skipped + raw)
        inner = whole[4 * (skipped > 0) : len(whole) // 4 * 4 - 4]
        found |= {
            f"base64 at {skipped}": inner,
            f"URL-safe base64 at {skipped}": inner.translate(bytes.maketrans(b"+/", b"-_")),
        }
    return {how: form for how, form in found.items() if how == "plain" or form != raw}


class Search:
    """Collects the places in which a secret is found. `secrets` maps a name to each secret."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self._forms = [
            (form, f"{name} ({how})") for name, secret in secrets.items() for how, form in forms(secret).items()
        ]
        self.found: list[str] = []
        self.searched = 0

    def bytes(self, place: str, content: bytes) -> None:
        self.searched += len(content)
        self.found += [f"{name} in {place}" for form, name in self._forms if form in content]

    def files(self, folder: Path, *, except_for: str = "") -> None:
        """Searches all regular files below the folder, without folders named `except_for`."""
        for parent, folders, names in os.walk(folder):
            folders[:] = [name for name in folders if name != except_for]
            for path in (Path(parent, name) for name in names):
                if path.is_file() and not path.is_symlink():
                    self.bytes(str(path), path.read_bytes())

    def database(self, url: str) -> None:
        """Searches the text of every column of every table."""
        with psycopg.connect(url) as connection:
            for schema, table, column in connection.execute(COLUMNS).fetchall():
                query = SQL("SELECT {}::text FROM {}").format(Identifier(column), Identifier(schema, table))
                for (value,) in connection.execute(query):
                    self.bytes(f"the column {table}.{column}", (value or "").encode())

    def processes(self, except_for: Iterable[int] = ()) -> None:
        """Searches what every process of the machine shows of its start."""
        for number in {int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()} - {*except_for}:
            for name in ("cmdline", "environ"):
                self.bytes(f"{name} of {number}", _shown(Path(f"/proc/{number}/{name}")))


def _shown(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it has ended, or is another user's
        return b""


def readable_paths(document: Mapping[str, object], parameters: Mapping[str, list[str]]) -> Iterator[str]:
    """Yields the path of each GET operation of an OpenAPI document, with all given values of its parameters."""
    paths = document["paths"]
    assert isinstance(paths, dict)
    for path, operations in paths.items():
        if "get" in operations:
            yield from _filled(path, parameters)


def _filled(path: str, parameters: Mapping[str, list[str]]) -> Iterator[str]:
    found = PARAMETER.search(path)
    if found is None:
        yield path
        return
    for value in parameters.get(found[1], []):
        yield from _filled(path.replace(found[0], value, 1), parameters)
