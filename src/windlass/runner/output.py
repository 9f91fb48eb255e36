from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal

from windlass.kickoffs.limits import size_in_words
from windlass.runner.lines import Lines
from windlass.runner.orders import Output
from windlass.runner.watch import WHERE
from windlass_crewside.messages import Warned

if TYPE_CHECKING:
    from windlass.runner.orders import Report
    from windlass.runner.readable import Readable


class Kept:
    """What a run prints, up to its output_limit (bytes, both streams together). The rest is read, and dropped: to make
    it wait would stop the run.
    """

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._room = limit
        self._dropped = 0

    async def read(self, stream: Literal["stdout", "stderr"], pipe: Readable, report: Report) -> None:
        lines = Lines()
        while data := await pipe.read():
            for line in lines.feed(self._take(data)):
                await report(Output(stream, line, time.time()))
        for line in lines.end():
            await report(Output(stream, line, time.time()))

    async def tell_what_was_dropped(self, report: Report) -> None:
        if self._dropped and self._limit is not None:
            printed = size_in_words(self._limit + self._dropped)
            await report(
                Warned(
                    "output_cut",
                    f"The run printed {printed}; what came after its output_limit of {size_in_words(self._limit)} "
                    f"was dropped. Print less, or raise output_limit {WHERE}.",
                )
            )

    def _take(self, data: bytes) -> bytes:
        if self._room is None:
            return data
        kept = data[: self._room]
        self._room -= len(kept)
        self._dropped += len(data) - len(kept)
        return kept
