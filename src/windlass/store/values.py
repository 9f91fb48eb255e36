"""Values as PostgreSQL can store them.

Columns of type text and jsonb and operators on json refuse NUL characters and lone surrogates, so these are replaced
there. Columns of type json keep both as escapes, as long as PostgreSQL does not interpret the value.

A parameter of a statement is copied several times, and libpq keeps a buffer of its size until the connection is closed.
COPY sends a value in pieces. Therefore a large value is copied to a temporary table first. An UPDATE in the same
transaction moves it to its column.
"""

# See docs/decisions/store.md#json-of-clients-and-crews-is-stored-as-json
# See docs/decisions/store.md#arrays-are-encoded-by-our-own-code
# See docs/decisions/store.md#large-values-are-copied-through-a-temporary-table

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.adapt import Dumper
from psycopg.pq import Format

from windlass.errors import Unstorable
from windlass.kickoffs.events import to_json
from windlass.store.database import queries
from windlass_child.protocol.validation import Encoded

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from windlass.store.database import Connection
    from windlass_child.protocol.fields import Text

SQL = queries("staging")

LARGE = 4 << 20
"""Bytes. Larger values are staged."""
PIECE = 256 * 1024

REFUSED = ("22", "23", "54")
"""The SQLSTATE classes of values that can never be stored: invalid data, a violated constraint, a limit of PostgreSQL.

An example of such a limit is JSON that is nested too deep.
"""
HEADER = b"PGCOPY\n\xff\r\n\x00" + struct.pack("!II", 0, 0)
ROW = struct.Struct("!hiiI")
END = struct.pack("!h", -1)

ARRAY = struct.Struct("!iiiii")
LENGTH = struct.Struct("!i")
NULL = LENGTH.pack(-1)


class Array:
    """The value of a parameter `%(name)b::type[]`, in PostgreSQL's binary form.

    psycopg can also convert a list, but it inspects each item several times to find the common type. This takes most of
    the time for many short values.
    """

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    @classmethod
    def of_texts(cls, texts: Iterable[str | None]) -> Array:
        return cls._of(25, [None if text is None else text.encode() for text in texts])

    @classmethod
    def of_numbers(cls, kind: str, numbers: Iterable[float | None]) -> Array:
        """`kind` is "int", "bigint", "float8" or "bool"."""
        oid, layout = NUMBERS[kind]
        return cls._of(oid, [None if number is None else layout.pack(number) for number in numbers])

    @classmethod
    def _of(cls, oid: int, items: Sequence[bytes | None]) -> Array:
        parts = [ARRAY.pack(1, None in items, oid, len(items), 1)]
        for item in items:
            parts += (NULL,) if item is None else (LENGTH.pack(len(item)), item)
        return cls(b"".join(parts))


NUMBERS = {name: (oid, struct.Struct(layout)) for name, oid, layout in (
    ("int", 23, "!i"), ("bigint", 20, "!q"), ("float8", 701, "!d"), ("bool", 16, "!?"),
)}  # fmt: skip
"""PostgreSQL's number and the binary form of each type."""


class ArrayDumper(Dumper):
    """Sends no type, so PostgreSQL uses the type of the cast in the statement."""

    format = Format.BINARY

    def dump(self, obj: Array) -> bytes:
        return obj.data


psycopg.adapters.register_dumper(Array, ArrayDumper)


def sanitized_text(text: str) -> str:
    if text.isascii() and "\x00" not in text:
        return text
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return whole.replace("\x00", "\N{REPLACEMENT CHARACTER}")


def sanitized_json(value: Any) -> Any:
    """Returns the JSON value with all its strings and member names sanitized."""
    if isinstance(value, str):
        return sanitized_text(value)
    if isinstance(value, dict):
        return {sanitized_text(name): sanitized_json(inner) for name, inner in value.items()}
    return [sanitized_json(inner) for inner in value] if isinstance(value, list | tuple) else value


def json_of(value: Text | None) -> str | None:
    """Returns the JSON of a text. An Encoded value is JSON already, as the child sent it."""
    if isinstance(value, Encoded):
        return str(value.data, "ascii")
    return None if value is None else to_json(value)


def is_large(value: Text | None) -> bool:
    return value is not None and len(value) > LARGE


def encoded(value: Text) -> bytes | bytearray:
    return value.data if isinstance(value, Encoded) else to_json(value).encode()


async def stage(connection: Connection, values: Mapping[int, bytes | bytearray]) -> None:
    """Creates the table `staged` (place, value), filled with the values, until the end of this transaction."""
    await connection.execute(SQL["stage"])
    async with connection.cursor().copy(SQL["copy_staged"]) as copy:
        await copy.write(HEADER)
        for place, value in values.items():
            await copy.write(ROW.pack(2, 4, place, len(value)))
            with memoryview(value) as whole:
                for at in range(0, len(value), PIECE):
                    await copy.write(bytes(whole[at : at + PIECE]))
        await copy.write(END)


def refused(error: psycopg.Error) -> bool:
    return isinstance(error, psycopg.DataError) or (error.sqlstate or "").startswith(REFUSED)


def unstorable(error: psycopg.Error) -> Unstorable:
    """Describes the refusal without the value, which may contain a secret."""
    return Unstorable(f"the database can't store it: {error.diag.message_primary or type(error).__name__}.")
