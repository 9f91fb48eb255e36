"""The file that keeps the records of `kickoff --each`, as JSON lines.

Until its first batch has ended, its first line names the batch. Every record names it as well, so that in the end there
is one record a line of the inputs, and nothing else.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windlass.errors import WindlassError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from io import FileIO

Record = dict[str, Any]
NAMES = ("batch", "url")
"""Members that say to which batch a record belongs."""
BEGINNING = b'{"batch": "'
"""Of a new file."""


class ResultFile:
    """It is locked until it is closed."""

    def __init__(self, file: FileIO, path: str) -> None:
        self.path = path
        self._file = file

    def read(self) -> tuple[Record, list[Record]]:
        """The names of its batch, none where the file is new, and its records in the order in which they came.

        What a command that was killed left half written at the end is cut off. Raises click.UsageError where the file
        holds anything else.
        """
        self._file.seek(0)
        raw = self._file.read()
        whole = raw[: raw.rfind(b"\n") + 1]
        found = [_record(line) for line in whole.splitlines()]
        names = _names(found)
        if not names and (found or not BEGINNING.startswith(raw[: len(BEGINNING)])):
            raise click.UsageError(f"--out {self.path}: this is no result file of --each. Give another name.")
        for number, record in enumerate(found, 1):
            if record != names and not _is_of(record, names):
                raise click.UsageError(
                    f"--out {self.path}: line {number} is no record of this batch. "
                    "Mend that line or take it out, or give another name."
                )
        if len(whole) < len(raw):
            self._file.truncate(len(whole))
        return names, [record for record in found if record != names]

    def append(self, record: Record, *, lasting: bool = False) -> None:
        """Whole or not at all: what comes next must begin a line. What is `lasting` is on the disk then.

        Raises WindlassError.
        """
        end = os.fstat(self._file.fileno()).st_size
        left = _line(record)
        try:
            while left:
                left = left[self._file.write(left) :]
            if lasting:
                os.fsync(self._file.fileno())
        except OSError as error:
            with suppress(OSError):
                self._file.truncate(end)
            raise WindlassError(
                f"{self.path} can't be written: {error.strerror}.", "Make room, and run it again."
            ) from None

    def rewrite(self, records: Iterable[Record]) -> None:
        """Raises OSError: it is as it was then."""
        path = Path(self.path).resolve()
        new = path.with_name(f"{path.name}.new")
        try:
            with new.open("wb") as file:
                file.writelines(map(_line, records))
                file.flush()
                os.fsync(file.fileno())
            shutil.copymode(path, new)
            new.replace(path)
        except OSError:
            with suppress(OSError):
                new.unlink()
            raise

    def close(self) -> None:
        self._file.close()


def open_file(path: str) -> ResultFile:
    """Raises click.UsageError."""
    try:
        place = Path(path)
        if place.exists() and not place.is_file():
            raise click.UsageError(
                f"--out {path}: this is no file that can be continued; without --out the results go to standard output."
            )
        file = place.open("a+b", buffering=0)  # a buffer would be written once more when the file is closed
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise click.UsageError(f"--out {path}: another command is writing it. Wait for that one.") from None
    except OSError as error:
        raise click.UsageError(f"--out {path}: {error.strerror}.") from None
    return ResultFile(file, path)


def _record(line: bytes) -> Record:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _names(records: Iterable[Record]) -> Record:
    named = next((record for record in records if record.keys() >= set(NAMES)), None)
    return {} if named is None else {name: named[name] for name in NAMES}


def _is_of(record: Record, names: Record) -> bool:
    is_ours = all(record.get(name, value) == value for name, value in names.items())
    return is_ours and isinstance(record.get("line"), int) and isinstance(record.get("retry", 0), int)


def text_of(record: Record) -> str:
    text = json.dumps(record, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which a model may write
        return json.dumps(record)
    return text


def _line(record: Record) -> bytes:
    return f"{text_of(record)}\n".encode()
