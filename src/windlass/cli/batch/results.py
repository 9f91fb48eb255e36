"""The results of `kickoff --each`: a record for each change of a line.

The last record of a line is the valid one.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click

from windlass.cli.printing import print_result
from windlass.errors import WindlassError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from io import FileIO

    from windlass.cli.batch.input_lines import InputLine


Record = dict[str, Any]
NAMES = ("batch", "url")
"""The members of a record that identify its batch."""
BEGINNING = b'{"batch": "'
"""The first bytes of a result file."""


class ResultFile:
    """A result file. It is locked until it is closed."""

    def __init__(self, file: FileIO, path: str) -> None:
        self.path = path
        self._file = file

    def read(self) -> tuple[Record, list[Record]]:
        """Returns the names of the batch, {} for a new file, and the records in the order of their writes.

        Cuts off an incomplete last line, which a killed command leaves behind. Raises click.UsageError when the file
        has other content.
        """
        self._file.seek(0)
        raw = self._file.read()
        whole = raw[: raw.rfind(b"\n") + 1]
        found = [_record(line) for line in whole.splitlines()]
        names = _names(found)
        if not names and (found or not BEGINNING.startswith(raw[: len(BEGINNING)])):
            raise click.UsageError(f"--out {self.path}: this is no result file of --each. Choose another file.")
        for number, record in enumerate(found, 1):
            if record != names and not _is_of(record, names):
                raise click.UsageError(
                    f"--out {self.path}: line {number} is no record of this batch. "
                    "Correct or remove that line, or choose another file."
                )
        if len(whole) < len(raw):
            self._file.truncate(len(whole))
        return names, [record for record in found if record != names]

    def append(self, record: Record, *, lasting: bool = False) -> None:
        """Writes the whole record or nothing, so that the next record starts a new line.

        With `lasting`, returns after the record is on the disk. Raises WindlassError when the file can't be written.
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
                f"{self.path} can't be written: {error.strerror}.", "Free some disk space, and run the command again."
            ) from None

    def rewrite(self, records: Iterable[Record]) -> None:
        """Replaces the content of the file. Raises OSError on a failure, and then leaves the file unchanged."""
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
    """Opens and locks the file. Raises click.UsageError when that fails."""
    try:
        place = Path(path)
        if place.exists() and not place.is_file():
            raise click.UsageError(
                f"--out {path}: this is no regular file. Choose a file, or leave --out out for standard output."
            )
        file = place.open("a+b", buffering=0)  # closing the file would write a buffer once more
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise click.UsageError(f"--out {path}: another command writes to this file. Wait until it has ended.") from None
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
    except UnicodeEncodeError:  # a model may write half of a surrogate pair
        return json.dumps(record)
    return text


def _line(record: Record) -> bytes:
    return f"{text_of(record)}\n".encode()


PENDING = "PENDING"
FAILED = "FAILED"
REFUSED = "REFUSED"
"""The state of a line whose kickoff was not accepted. The next run of the command tries it again."""
ENDED = {"SUCCESS", FAILED}


@dataclass
class Results:
    """The results of a batch.

    `file` is None when records go to standard output. `names` are the members that identify the batch in the file.
    """

    batch: str
    file: ResultFile | None = None
    names: Record = field(default_factory=dict)
    records: dict[int, Record] = field(default_factory=dict)

    def taken_up(self, line: InputLine, *, retry_failed: bool) -> InputLine:
        """Returns the line with its stored number of retries, plus one if it failed and `retry_failed` is set."""
        found = self.records.get(line.number, {})
        known = replace(line, retry=_retry(found))
        return known.again() if retry_failed and found.get("state") == FAILED else known

    def changed(self, lines: Iterable[InputLine]) -> list[str]:
        """Describes the lines that have changed since their kickoffs were started."""
        known = {line.number: line for line in lines}
        begun = [record for _, record in sorted(self.records.items()) if record.get("kickoff_id") is not None]
        found = ((record["line"], _change(record, known.get(record["line"]), self.batch)) for record in begun)
        return [
            f"line {number}: its kickoff has started, {change} --out to start from the beginning"
            for number, change in found
            if change
        ]

    def begun(self, line: InputLine) -> str | None:
        """Returns the id of the line's kickoff, None when it has none."""
        kickoff_id = self._of(line).get("kickoff_id")
        return None if kickoff_id is None else str(kickoff_id)

    def end(self, line: InputLine) -> str | None:
        """Returns the final state of the line, None when it has not ended."""
        state = self._of(line).get("state")
        return state if state in ENDED else None

    def pending(self) -> list[Record]:
        return [record for _, record in sorted(self.records.items()) if record.get("state") == PENDING]

    def write(self, line: InputLine, record: Record) -> None:
        full = {"line": line.number, **record, "retry": line.retry, "key": line.key(self.batch), **self.names}
        self.records[line.number] = full
        if self.file is not None:
            self.file.append(full)
        elif full["state"] in ENDED | {REFUSED}:
            print_result(text_of(full))

    def put_in_order(self) -> str:
        """Rewrites the file with one record per line, in the order of the lines.

        Returns a message if that fails, else "". The file stays usable after a failure.
        """
        if self.file is None:
            return ""
        try:
            self.file.rewrite({**record, **self.names} for _, record in sorted(self.records.items()))
        except OSError as error:
            return (
                f"{self.file.path} has all results, but could not be put in order: {error.strerror}. "
                "The last record of a line is the valid one."
            )
        return ""

    def close(self) -> None:
        if self.file is not None:
            self.file.close()

    def _of(self, line: InputLine) -> Record:
        """Returns the record of this retry of the line, {} when there is none."""
        found = self.records.get(line.number, {})
        return found if _retry(found) == line.retry else {}


def open_results(path: str | None, url: str, key: str | None) -> Results:
    """Opens the results of the file `path`, or of a new file, or of standard output when `path` is None.

    Raises click.UsageError when the file belongs to another crew or batch.
    """
    if path is None:
        return Results(key or str(uuid4()))
    file = open_file(path)
    names, records = file.read()
    for name, given in (("url", url), ("batch", key)):
        if names and given is not None and given != names[name]:
            raise click.UsageError(f"--out {path}: this file belongs to the {name} {names[name]}. Choose another file.")
    if not names:
        names = {"batch": key or str(uuid4()), "url": url}
        file.append(names, lasting=True)
    return Results(str(names["batch"]), file, names, {record["line"]: record for record in records})


def _retry(record: Record) -> int:
    return int(record.get("retry", 0))


def _change(record: Record, line: InputLine | None, batch: str) -> str:
    if line is None:
        return "but the line is missing from the input; restore it, or give another"
    if _retry(record) == line.retry and record.get("key") != line.key(batch):
        return "with other inputs or options; restore them, or give another"
    return ""
