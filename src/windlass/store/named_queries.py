from __future__ import annotations

import re
from functools import cache
from importlib import resources

from psycopg.sql import SQL

_HEADER = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


@cache
def queries(file: str) -> dict[str, SQL]:
    """Returns the statements of queries/<file>.sql by name, without their comment lines."""
    text = resources.files("windlass.store").joinpath("queries", f"{file}.sql").read_text("utf-8")
    _, *parts = _HEADER.split(text)
    return {name: SQL(_bare(body)) for name, body in zip(parts[::2], parts[1::2], strict=True)}


def _bare(body: str) -> str:
    return "\n".join(line for line in body.strip().splitlines() if not line.startswith("--"))
