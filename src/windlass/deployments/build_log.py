"""The log of a build: lines of the build itself, of uv and of the project, masked and within bounds."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from windlass.aio import cancelled
from windlass.lifecycle.background_tasks import until_the_database_answers
from windlass.store.builds import NewLine
from windlass_child.masking.redaction import Redaction

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Mapping

    from windlass.store.builds import BuildStore, BuildTurn, Level

MOST_LINES, MOST_BYTES = 10_000, 1 << 20
"""The lines of uv and of the project that are kept, and their size."""
LONGEST_LINE = 4000
LONGEST_ERROR = 20_000
BETWEEN_WRITES = 0.1
"""Seconds in which lines are collected for one statement."""
FULL = (
    f"the log is full: only {MOST_LINES:,} lines and {MOST_BYTES >> 20} MB of the packages and of the project are kept"
)


class BuildLog:
    """Collects the lines of a build, which `writing` stores."""

    def __init__(self, store: BuildStore, turn: BuildTurn) -> None:
        self._store = store
        self._turn = turn
        self._redaction = Redaction({})
        self.readable: Callable[[str], str] = str
        """Makes texts of the build readable for the people who deploy."""
        self._written = turn.lines
        self._lines: list[NewLine] = []
        self._lines_left, self._bytes_left = MOST_LINES - turn.lines, MOST_BYTES
        self._changed, self._flushing = asyncio.Event(), asyncio.Lock()
        self._loop = asyncio.get_running_loop()

    def mask(self, variables: Mapping[str, str], secrets: Collection[str], of_server: Mapping[str, str]) -> None:
        """From now on, masks the values of these variables, and secrets of the server's environment. Values of the
        variables that `secrets` names are masked in encoded forms, too.
        """
        # under such a name each value is masked that is not too short
        own = {f"SECRET_{name}": value for name, value in variables.items()}
        self._redaction = Redaction({**of_server, **own}, [f"SECRET_{name}" for name in secrets])

    def masked(self, text: str) -> str:
        return self._redaction.text(self.readable(text))[:LONGEST_ERROR]

    def add(self, message: str, level: Level = "info") -> None:
        """Adds a line of the build itself, which is kept in any case."""
        for line in self.masked(message).splitlines():
            self._lines.append(NewLine(time.time(), level, line[:LONGEST_LINE]))
        self._changed.set()

    def output(self, line: str) -> None:
        """Adds a line of uv or of the project, as long as there is room."""
        if self._lines_left <= 0:
            return
        text = self.masked(line)[:LONGEST_LINE]
        self._lines_left -= 1
        self._bytes_left -= len(text.encode("utf-8", "replace"))
        if self._bytes_left < 0:
            self._lines_left = 0
        else:
            self._lines.append(NewLine(time.time(), "info", text))
            self._changed.set()
        if self._lines_left == 0:
            self.add(FULL, "warning")

    def output_of_thread(self, line: str) -> None:
        self._loop.call_soon_threadsafe(self.output, line)

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """Stores the lines during the block, and the last ones at its end."""
        task = asyncio.create_task(self._write())
        try:
            yield
            await cancelled(task)
            await self.flush()
        finally:
            await cancelled(task)

    async def flush(self) -> None:
        """Stores the lines that were added until now."""
        async with self._flushing:
            while lines := self._lines[:MOST_LINES]:
                await until_the_database_answers(lambda: self._store.add_lines(self._turn, self._written, lines))
                self._written += len(lines)
                del self._lines[: len(lines)]

    async def _write(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self.flush()
            await asyncio.sleep(BETWEEN_WRITES)
