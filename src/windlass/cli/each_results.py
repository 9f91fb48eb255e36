"""What came to the lines of `kickoff --each`: a record for each thing, of which the last one of a line counts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from uuid import uuid4

import click

from windlass.cli.each_file import open_file, text_of
from windlass.cli.printing import give

if TYPE_CHECKING:
    from collections.abc import Iterable

    from windlass.cli.each_file import Record, ResultFile
    from windlass.cli.each_lines import Line

PENDING = "PENDING"
FAILED = "FAILED"
REFUSED = "REFUSED"
"""The state of a line whose kickoff was not accepted: the next run of the command tries it again."""
ENDED = {"SUCCESS", FAILED}


@dataclass
class Results:
    """`file` is None where records go to standard output. `names` say in the file to which batch a record belongs."""

    batch: str
    file: ResultFile | None = None
    names: Record = field(default_factory=dict)
    records: dict[int, Record] = field(default_factory=dict)

    def taken_up(self, line: Line, *, retry_failed: bool) -> Line:
        """As often retried as it was; once more where it failed and that is wanted."""
        found = self.records.get(line.number, {})
        known = replace(line, retry=_retry(found))
        return known.again() if retry_failed and found.get("state") == FAILED else known

    def changed(self, lines: Iterable[Line]) -> list[str]:
        """Lines that are not what they were when their kickoffs began, in words."""
        known = {line.number: line for line in lines}
        begun = [record for _, record in sorted(self.records.items()) if record.get("kickoff_id") is not None]
        told = ((record["line"], _change(record, known.get(record["line"]), self.batch)) for record in begun)
        return [
            f"line {number}: its kickoff has begun, {change} --out to start anew" for number, change in told if change
        ]

    def begun(self, line: Line) -> str | None:
        """The id of its kickoff where it has one."""
        kickoff_id = self._of(line).get("kickoff_id")
        return None if kickoff_id is None else str(kickoff_id)

    def end(self, line: Line) -> str | None:
        """The state in which it ended, if it did."""
        state = self._of(line).get("state")
        return state if state in ENDED else None

    def pending(self) -> list[Record]:
        return [record for _, record in sorted(self.records.items()) if record.get("state") == PENDING]

    def write(self, line: Line, record: Record) -> None:
        told = {"line": line.number, **record, "retry": line.retry, "key": line.key(self.batch), **self.names}
        self.records[line.number] = told
        if self.file is not None:
            self.file.append(told)
        elif told["state"] in ENDED | {REFUSED}:
            give(text_of(told))

    def put_in_order(self) -> str:
        """One record for each line, in their order, and nothing else. Where that can't be, why, in words: the file is
        as good as it was.
        """
        if self.file is None:
            return ""
        try:
            self.file.rewrite({**record, **self.names} for _, record in sorted(self.records.items()))
        except OSError as error:
            return (
                f"{self.file.path} holds all results, but could not be put in order: {error.strerror}. "
                "The last record of a line counts."
            )
        return ""

    def close(self) -> None:
        if self.file is not None:
            self.file.close()

    def _of(self, line: Line) -> Record:
        """Of this retry of the line, empty where there is none."""
        found = self.records.get(line.number, {})
        return found if _retry(found) == line.retry else {}


def open_results(path: str | None, url: str, key: str | None) -> Results:
    """Those of the file that is there, or of a new one. Raises click.UsageError where they are of something else."""
    if path is None:
        return Results(key or str(uuid4()))
    file = open_file(path)
    names, records = file.read()
    for name, given in (("url", url), ("batch", key)):
        if names and given is not None and given != names[name]:
            raise click.UsageError(f"--out {path}: it belongs to the {name} {names[name]}. Give another name.")
    if not names:
        names = {"batch": key or str(uuid4()), "url": url}
        file.append(names, lasting=True)
    return Results(str(names["batch"]), file, names, {record["line"]: record for record in records})


def _retry(record: Record) -> int:
    return int(record.get("retry", 0))


def _change(record: Record, line: Line | None, batch: str) -> str:
    if line is None:
        return "and the line is there no more; put it back, or give another"
    if _retry(record) == line.retry and record.get("key") != line.key(batch):
        return "with other inputs or options; give another"
    return ""
