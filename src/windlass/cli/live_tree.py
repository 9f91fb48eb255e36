"""Shows `windlass dev` on a terminal: lines that stay, and below them a tree of the open runs that changes in place.

Names and texts of crews are shown as rich.text.Text after their control characters were escaped. They are never read as
markup.
"""

from __future__ import annotations

import io
import time
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live
from rich.rule import Rule
from rich.text import Text
from rich.tree import Tree

from windlass.cli.printing import STYLES, printable
from windlass.cli.run_tree import RunTree

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console, RenderableType

    from windlass.cli.run_tree import Activity, Line, Shown
    from windlass.store.claiming import Claimed

MOST_RUNS = 6
"""The number of open runs in the tree. One more line has the number of the others."""
MOST_ACTIVITIES = 4
"""The number of tasks, and of model calls, of each run in the tree."""
REFRESHES = 8
"""The number of times per second at which the tree is drawn again."""
COLOURS = ("cyan", "magenta", "blue", "green", "yellow")
"""The colours of the numbers of runs, in turn."""
LOOKS = {
    "run": "bold",
    "task": "bold",
    "completed": "green",
    "failed": "bold red",
    "warning": "yellow",
    "trace": "red",
    "model": "dim",
    "tool": "dim",
    "agent": "dim",
    "journal": "cyan",
}


class LiveTree(RunTree):
    """An Observer that shows the runs on a terminal. While no run is open, it draws nothing and needs no thread."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(self._line, clock, lambda: console.width)
        self._console = console
        self._live: Live | None = None
        self.log = _LogLines(self._put)
        """A stream for log lines, which another stream to the same terminal would mix into the tree."""

    def __call__(self, kickoff: Claimed, message: object) -> None:
        super().__call__(kickoff, message)
        with suppress(OSError):  # the terminal is gone; the server goes on
            if self.runs and self._live is None:
                self._live = Live(
                    console=self._console,
                    get_renderable=self.tree,
                    refresh_per_second=REFRESHES,
                    transient=True,
                    redirect_stdout=False,
                    redirect_stderr=False,
                )
                self._live.start()
            elif not self.runs:
                self.close()

    def close(self) -> None:
        """Removes the tree from the terminal. The lines stay."""
        live, self._live = self._live, None
        if live is not None:
            with suppress(OSError):
                live.stop()

    def notify(self, line: str) -> None:
        shown = Text(printable(line))
        word = line.partition(":")[0]
        shown.stylize(STYLES.get(word, ""), 0, len(word))
        self._put(shown)

    def tree(self) -> RenderableType:
        """Returns the tree of the open runs. A thread of rich calls it."""
        runs = self.runs
        shown: list[RenderableType] = [self._branch(run) for run in islice(runs, MOST_RUNS)]
        if len(runs) > MOST_RUNS:
            shown.append(_words((f"and {len(runs) - MOST_RUNS} more runs", "dim")))
        return Group(Rule(style="dim"), *shown)

    def _branch(self, run: Shown) -> Tree:
        label = _words((f"[{run.number}] ", _colour(run.number)))
        label.append(run.slug, "bold")
        label.append(f"  {self._clock() - run.began:.1f} s  {run.tokens:,} tokens", "dim")
        branch = Tree(label, guide_style=_colour(run.number))
        tasks, calls = list(run.tasks.values()), list(run.calls.values())
        added = [branch.add(_activity("task ", task, self._clock(), "bold")) for task in tasks[:MOST_ACTIVITIES]]
        above = added[0] if len(tasks) == 1 else branch  # of several tasks, the one that calls is not known
        for call in calls[:MOST_ACTIVITIES]:
            above.add(_activity("", call, time.time(), "dim"))
        return branch

    def _line(self, line: Line) -> None:
        guide = "|  " if self._console.options.ascii_only else "\u2502  "
        head = (f"[{line.number}] {guide * line.depth}", _colour(line.number))
        self._put(Text.assemble(head, (line.words, LOOKS.get(line.look, ""))))

    def _put(self, text: Text) -> None:
        with suppress(OSError):
            self._console.print(text, soft_wrap=True)


class _LogLines(io.StringIO):
    def __init__(self, put: Callable[[Text], None]) -> None:
        self._put = put

    def write(self, text: str) -> int:
        self._put(Text(printable(text.rstrip("\n")), style="dim"))
        return len(text)


def _activity(kind: str, activity: Activity, now: float, style: str) -> Text:
    return _words((f"{kind}{activity.name}", style), (f"  {max(0.0, now - activity.began):.1f} s", "dim"))


def _words(*parts: tuple[str, str]) -> Text:
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]
