"""Implements `windlass kickoff --each`: a kickoff for each line of a file, with a limited number open at a time."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from windlass.cli import exit_codes
from windlass.cli.batch.input_lines import read_lines, refuse, without_inputs
from windlass.cli.batch.results import FAILED, PENDING, REFUSED, open_results
from windlass.cli.crew_session import cli_errors
from windlass.cli.printing import Screen
from windlass.client import Kickoff, NotFound, Refused
from windlass.errors import WindlassError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from windlass.cli.batch.input_lines import InputLine
    from windlass.cli.batch.results import Results
    from windlass.cli.crew_session import CrewClient
    from windlass.client import AsyncCrew, Status

TICK = 1.0
"""Seconds between two updates of the board while no kickoff ends."""
EVERY = 15.0
"""Seconds between two lines of the board where standard error is no terminal."""


@dataclass(frozen=True, slots=True)
class Job:
    """The arguments of a batch.

    `common` are the members of every kickoff, including its inputs. `out` is the name of the result file, None for
    standard output. `patience` is in seconds.
    """

    raw: bytes
    name: str
    common: Mapping[str, Any]
    key: str | None
    concurrency: int
    out: str | None
    patience: float
    retry_failed: bool = False


def run_each(client: CrewClient, job: Job) -> int:
    """Starts and follows all kickoffs of the batch. Returns the exit code.

    Raises click.UsageError before the first kickoff when a line is not valid.
    """
    lines = read_lines(job.raw, job.name, job.common)
    refuse(job.name, without_inputs(lines, client.inputs().get("inputs") or []))
    results = open_results(job.out, client.base_url, job.key)
    lines = [results.taken_up(line, retry_failed=job.retry_failed) for line in lines]
    refuse(job.name, results.changed(lines))
    board = Board()
    batch = Batch(lines, results, board, job.concurrency)
    try:
        asyncio.run(_run(client, batch, job.patience))
        untidy = results.put_in_order()
    except (KeyboardInterrupt, WindlassError):
        for text in how_to_go_on(results, client.command("status", "KICKOFF_ID", "--watch")):
            board.line(text)
        raise
    finally:
        board.clear()
        results.close()
    for text in filter(None, [untidy, *_summary(batch.counts, board.seconds, kept=results.file is not None)]):
        board.line(text)
    return exit_codes.FAILED if batch.counts.failed else 0


@dataclass(frozen=True, slots=True)
class Counts:
    total: int
    ended: int
    failed: int
    open: int

    def __str__(self) -> str:
        return f"{self.ended} of {self.total} done, {self.failed} failed, {self.open} open"


class Board:
    """Shows the progress: a bar that changes in place on a terminal, and a line every EVERY seconds elsewhere."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._screen = Screen()
        self.line, self.clear = self._screen.line, self._screen.clear
        self._clock = clock
        self._began = self._shown_at = clock()
        self._last_shown: Counts | None = None

    @property
    def seconds(self) -> float:
        return self._clock() - self._began

    def show(self, counts: Counts) -> None:
        if self._screen.console:
            self._screen.live(f"{counts}, {self.seconds:.0f} s", counts.ended, counts.total)
        elif counts != self._last_shown and self._clock() - self._shown_at >= EVERY:
            self._last_shown, self._shown_at = counts, self._clock()
            self.line(f"{counts}, {self.seconds:.0f} s")


def how_to_go_on(results: Results, follow: str) -> Iterator[str]:
    """Yields lines that explain how to continue an interrupted batch.

    `follow` is the command that shows a kickoff.
    """
    if results.file is not None:
        yield (
            "Started kickoffs continue on the server. Run the same command again to continue the batch: "
            f"{results.file.path} lists the open and the successful kickoffs, and none of them is started twice."
        )
        return
    pending = results.pending()
    yield f"Started kickoffs continue on the server{f'; `{follow}` shows one of them' if pending else ''}."
    yield from (f"  line {record['line']}: {record['kickoff_id']}" for record in pending)
    yield "With --out FILE the results are stored, and the same command continues an interrupted batch."


def _summary(counts: Counts, seconds: float, *, kept: bool) -> Iterator[str]:
    yield (
        f"{counts.ended} of {counts.total} done: {counts.ended - counts.failed} succeeded, {counts.failed} failed, "
        f"in {seconds:.0f} s."
    )
    if counts.failed and kept:
        yield "The same command with --retry-failed starts the failed lines again."


async def _run(client: CrewClient, batch: Batch, patience: float) -> None:
    async with client.patient(patience) as crew:
        with cli_errors():
            await batch.run(crew)


class Batch:
    def __init__(self, lines: list[InputLine], results: Results, board: Board, concurrency: int) -> None:
        self._lines = lines
        self._results = results
        self._board = board
        self._concurrency = concurrency
        self._waiting = deque(line for line in lines if results.begun(line) is None)
        self._open: set[asyncio.Task[None]] = set()
        self._unknown: set[int] = set()
        ends = [end for line in lines if (end := results.end(line))]
        self._ended, self._failed = len(ends), ends.count(FAILED)

    @property
    def counts(self) -> Counts:
        return Counts(len(self._lines), self._ended, self._failed, len(self._open))

    async def run(self, crew: AsyncCrew) -> None:
        """Runs the batch. Raises the errors of the crew that concern no single line."""
        for line in self._lines:
            kickoff_id = self._results.begun(line)
            if kickoff_id is not None and not self._results.end(line):
                self._follow(crew, line, kickoff_id)
        try:
            while self._waiting or self._open:
                await self._start_some(crew)
                await self._see_what_ended()
        finally:
            for task in self._open:
                task.cancel()
            await asyncio.gather(*self._open, return_exceptions=True)

    async def _start_some(self, crew: AsyncCrew) -> None:
        room = min(self._concurrency - len(self._open), len(self._waiting))
        lines = [self._waiting.popleft() for _ in range(room)]
        if not lines:
            return
        found = await crew.kickoff_many([self._kickoff(line) for line in lines])
        for line, answer in zip(lines, found, strict=True):
            self._note(crew, line, answer)

    def _kickoff(self, line: InputLine) -> Kickoff:
        members = {name: value for name, value in line.members.items() if name not in {"inputs", "meta"}}
        return Kickoff(line.inputs, line.members.get("meta"), line.key(self._results.batch), members)

    def _note(self, crew: AsyncCrew, line: InputLine, answer: str | Refused) -> None:
        if isinstance(answer, str):
            self._write(line, answer, PENDING)
            self._follow(crew, line, answer)
        elif not answer.may_pass:
            self._write(line, None, REFUSED, error=answer.message)
        elif self._open:  # the queue is full: the end of an open kickoff makes room
            self._waiting.append(line)
        else:
            raise answer

    def _follow(self, crew: AsyncCrew, line: InputLine, kickoff_id: str) -> None:
        self._open.add(asyncio.create_task(self._end(crew, line, kickoff_id)))

    async def _end(self, crew: AsyncCrew, line: InputLine, kickoff_id: str) -> None:
        try:
            status = await crew.wait(kickoff_id)
        except NotFound as error:
            self._lost(line, kickoff_id, _in_one_line(error))
        else:
            self._write(line, kickoff_id, status.state, **_ending(status))

    def _lost(self, line: InputLine, kickoff_id: str, error: str) -> None:
        """Handles a kickoff that the server does not know: it was deleted, or belongs to another server or user.

        Starts the line again, but only once.
        """
        if line.number in self._unknown:
            self._write(line, kickoff_id, FAILED, error=error)
            return
        self._unknown.add(line.number)
        self._waiting.append(line.again())
        self._board.line(
            f"line {line.number} is started again: the server does not know its kickoff {kickoff_id}, "
            "which belongs to another server or user, or was deleted"
        )

    async def _see_what_ended(self) -> None:
        self._board.show(self.counts)
        if self._open:
            done, self._open = await asyncio.wait(self._open, timeout=TICK, return_when=asyncio.FIRST_COMPLETED)
            errors = [task.exception() for task in done]  # of all tasks: asyncio prints errors that are not retrieved
            for error in filter(None, errors):
                raise error

    def _write(self, line: InputLine, kickoff_id: str | None, state: str, **ending: Any) -> None:
        if self._results.file is None:
            self._board.clear()  # the record goes to the same terminal
        self._results.write(line, {"kickoff_id": kickoff_id, "state": state, **ending})
        if not ending:
            return
        self._ended += 1
        if "error" in ending:
            self._failed += 1
            self._board.line(f"line {line.number} failed: {ending['error']}")
        self._board.show(self.counts)


def _ending(status: Status) -> dict[str, Any]:
    if status.result is None:
        return {"reason": status.reason, "error": status.error or "the server gave no reason"}
    return {"result": asdict(status.result)}


def _in_one_line(error: Refused) -> str:
    return " ".join(error.message.split())
