"""The result file of `kickoff --each`: a line that names the batch, then a record for each thing that came to a line.

The last record of a line counts. When all have ended, the file is written anew with one for each, in their order.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from uuid import uuid4

import click

from windlass.cli.printing import give
from windlass.errors import WindlassError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from windlass.cli.each_lines import Line

Record = dict[str, Any]
REFUSED = "REFUSED"
"""The state of a line whose kickoff was not accepted: the next run of the command tries it again."""
ENDED = {"SUCCESS", "FAILED"}
BEGINNING = b'{"batch": "'
"""Of every result file."""


@dataclass
class Results:
    """`file` is None where records go to standard output."""

    batch: str
    file: BinaryIO | None = None
    header: Record = field(default_factory=dict)
    records: dict[int, Record] = field(default_factory=dict)

    def begun(self, line: Line) -> str | None:
        """The id of its kickoff where it has one."""
        kickoff_id = self.records.get(line.number, {}).get("kickoff_id")
        return None if kickoff_id is None else str(kickoff_id)

    def has_ended(self, line: Line) -> bool:
        return self.records.get(line.number, {}).get("state") in ENDED

    def changed(self, lines: Iterable[Line]) -> list[str]:
        """Lines that are not what they were when their kickoffs began, in words."""
        keys = {line.number: line.key(self.batch) for line in lines}
        return [
            f"line {number}: its kickoff has begun, with other inputs or options; give another --out to start anew"
            for number, record in sorted(self.records.items())
            if record.get("kickoff_id") is not None and record.get("key") != keys.get(number)
        ]

    def write(self, record: Record) -> None:
        self.records[record["line"]] = record
        if self.file is not None:
            _append(self.file, record)
        elif record["state"] in ENDED | {REFUSED}:
            give(_line(record).decode().removesuffix("\n"))

    def close(self, *, whole: bool) -> None:
        """`whole`: all lines have come to their end."""
        if self.file is None:
            return
        if whole:
            _rewrite(
                Path(self.file.name).resolve(), [self.header, *(record for _, record in sorted(self.records.items()))]
            )
        self.file.close()


def open_results(path: str | None, url: str, key: str | None) -> Results:
    """Those of the file that is there, or of a new one. Raises click.UsageError where they are of something else."""
    if path is None:
        return Results(key or str(uuid4()))
    file = _opened(path)
    header, *records = _records(file, path) or [{}]
    for name, given in (("url", url), ("batch", key)):
        if header and given is not None and given != header[name]:
            raise click.UsageError(f"--out {path}: it belongs to the {name} {header[name]}. Give another name.")
    if not header:
        header = {"batch": key or str(uuid4()), "url": url}
        _append(file, header)
        os.fsync(file.fileno())
    return Results(str(header["batch"]), file, header, {record["line"]: record for record in records})


def _opened(path: str) -> BinaryIO:
    try:
        file = Path(path).open("a+b")  # noqa: SIM115 - it is closed with the results
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise click.UsageError(f"--out {path}: another command is writing it. Wait for that one.") from None
    except OSError as error:
        raise click.UsageError(f"--out {path}: {error.strerror}.") from None
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        raise click.UsageError(f"--out {path}: this is no file; without --out the results go to standard output.")
    return file


def _records(file: BinaryIO, path: str) -> list[Record]:
    """The header and what follows. What a command that was killed left half written at the end is cut off."""
    file.seek(0)
    raw = file.read()
    whole = raw[: raw.rfind(b"\n") + 1]
    found = [_record(line) for line in whole.splitlines()]
    header, records = found[:1], found[1:]
    is_ours = {"batch", "url"} <= header[0].keys() if header else BEGINNING.startswith(raw[: len(BEGINNING)])
    if not is_ours or not all(isinstance(record.get("line"), int) for record in records):
        raise click.UsageError(f"--out {path}: this is no result file of --each. Give another name.")
    if len(whole) < len(raw):
        file.truncate(len(whole))
    return found


def _record(line: bytes) -> Record:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _append(file: BinaryIO, record: Record) -> None:
    try:
        file.write(_line(record))
        file.flush()
    except OSError as error:
        raise WindlassError(
            f"{file.name} can't be written: {error.strerror}.", "Make room, and run it again."
        ) from None


def _rewrite(path: Path, records: Iterable[Record]) -> None:
    new = path.with_name(f"{path.name}.new")
    with new.open("wb") as file:
        file.writelines(map(_line, records))
        file.flush()
        os.fsync(file.fileno())
    shutil.copymode(path, new)
    new.replace(path)


def _line(record: Record) -> bytes:
    try:
        return f"{json.dumps(record, ensure_ascii=False)}\n".encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which a model may write
        return f"{json.dumps(record)}\n".encode()
