"""Places the rows of a timeline on one time axis. Times between two attempts take no room on it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from windlass.dashboard.templating import duration
from windlass.dashboard.timeline import Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MOST_ROWS, AT_EACH_END = 400, 150
"""Beyond MOST_ROWS rows, the steps of tasks that are done are folded. Of rows that are still too many, a page has the
first and the last AT_EACH_END, until a person asks for all.
"""
MOST_ROWS_OF_ALL = 5000
SHORTEST_LEAD = 2.0
"""The percent of the axis before the first step from which on the start of the process has a row."""
LONGEST_LEAD = 0.1
"""The room of the start of a process, as a share of its steps. The axis leaves out the beginning of a longer start."""
GAP = 0.025
"""The room between two attempts, as a share of the axis."""
MOST_TICKS = 6
STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 43200, 86400, 604800)
HIDDEN = {"flow", "crew"}
"""Rows that would only repeat the whole axis."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row as the page shows it. `x` and `width` are in percent of the axis. `key` names it in URLs, and may be "".

    `seconds` is its duration, until now if it runs. `is_cut` is whether the axis leaves out its beginning.
    """

    key: str
    span: Span
    depth: int
    state: str
    x: float
    width: float
    seconds: float
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """The rows of one attempt. `later` are the seconds since the attempt before it ended, None for the first."""

    attempt: int
    rows: list[Row]
    later: float | None


@dataclass(frozen=True, slots=True)
class Fold:
    """Stands in place of `count` rows. `key` is the row to which all of them belong, "" for several."""

    count: int
    key: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    """`ticks` are positions in percent with their labels, `edges` the positions at which further attempts begin."""

    sections: list[tuple[Section, list[Row | Fold]]]
    ticks: list[tuple[float, str]]
    edges: list[float]
    total: int
    selected: Row | None

    @property
    def folded(self) -> int:
        return sum(one.count for _, rows in self.sections for one in rows if isinstance(one, Fold))


@dataclass
class Axis:
    """The time axis of attempts: (number, start, end) in Unix time.

    `left_out` are seconds before the start of an attempt.
    """

    attempts: list[tuple[int, float, float]]
    left_out: dict[int, float]
    _offsets: dict[int, tuple[float, float, float]] = field(init=False)

    def __post_init__(self) -> None:
        self.running = sum(end - start for _, start, end in self.attempts) or 1.0
        gap = self.running * GAP
        self.total = self.running + gap * (len(self.attempts) - 1)
        at, self._offsets = 0.0, {}
        for number, start, end in self.attempts:
            self._offsets[number] = (at, start, end)
            at += end - start + gap

    def x(self, attempt: int, time: float) -> float:
        """Returns the position of a time of the attempt, in percent."""
        offset, start, end = self._offsets.get(attempt, self._offsets[self.attempts[0][0]])
        return round((offset + min(max(time, start), end) - start) / self.total * 100, 3)

    def end(self, attempt: int) -> float:
        return self._offsets.get(attempt, self._offsets[self.attempts[0][0]])[2]

    def ticks(self) -> list[tuple[float, str]]:
        step = next((one for one in STEPS if self.running / one <= MOST_TICKS), STEPS[-1])
        found: list[tuple[float, str]] = []
        passed, number_of_tick = 0.0, 0
        for number, start, end in self.attempts:
            passed += self.left_out.get(number, 0.0)
            number_of_tick = max(number_of_tick, math.ceil(passed / step))
            while (tick := number_of_tick * step) <= passed + end - start and len(found) <= MOST_TICKS * 2:
                found.append((self.x(number, start + tick - passed), "0 s" if not tick else _label(tick)))
                number_of_tick += 1
            passed += end - start
        return [one for one in found if one[0] <= 97]  # noqa: PLR2004 - the label needs room

    @property
    def edges(self) -> list[float]:
        return [self.x(number, start) for number, start, _ in self.attempts[1:]]


def chart(
    roots: Sequence[Span],
    attempts: Sequence[tuple[int, float, float | None]],
    *,
    now: float,
    ended: bool,
    unended: str,
    selected: str = "",
    opened: str = "",
    all_rows: bool = False,
) -> Chart:
    """Returns the rows of all attempts. `unended` is the state of rows without an end in attempts that have ended."""
    flat = list(_flattened(roots))[:MOST_ROWS_OF_ALL]
    whole = _bounds(attempts, flat, now, ended=ended)
    left_out = _left_out(whole, flat)
    axis = Axis([(number, start + left_out.get(number, 0.0), end) for number, start, end in whole], left_out)
    last = axis.attempts[-1][0]
    sections = []
    before: float | None = None
    for number, start, end in whole:
        is_over = ended or number != last
        interrupted = unended if number == last else "lost"
        rows = [
            _row(span, depth, axis, unended=interrupted, is_over=is_over)
            for span, depth in flat
            if span.attempt == number
        ]
        if (lead := _lead(number, start, rows, axis)) is not None:
            rows.insert(0, lead)
        sections.append(Section(number, rows, None if before is None else max(0.0, start - before)))
        before = end
    chosen = next((row for one in sections for row in one.rows if selected and row.key == selected), None)
    total = sum(len(one.rows) for one in sections)
    is_long = total > MOST_ROWS and not all_rows
    shown: list[tuple[Section, list[Row | Fold]]] = [
        (one, _folded(one.rows, chosen, opened) if is_long else [*one.rows]) for one in sections
    ]
    return Chart(shown, axis.ticks(), axis.edges, total, chosen)


def _flattened(spans: Iterable[Span], depth: int = 0) -> Iterable[tuple[Span, int]]:
    stack = [(span, depth) for span in reversed(list(spans))]
    while stack:
        span, level = stack.pop()
        is_hidden = span.kind in HIDDEN and level == 0
        if not is_hidden:
            yield span, min(level, 5)
        stack.extend((child, level if is_hidden else level + 1) for child in reversed(span.children))


def _bounds(
    attempts: Sequence[tuple[int, float, float | None]], flat: Sequence[tuple[Span, int]], now: float, *, ended: bool
) -> list[tuple[int, float, float]]:
    found = []
    for place, (number, start, end) in enumerate(attempts):
        own = [span for span, _ in flat if span.attempt == number and span.restored is None]
        begun = min([start, *(span.start for span in own)])
        latest = max([begun, *(span.end or span.start for span in own)])
        is_running = end is None and not ended and place == len(attempts) - 1
        found.append((number, begun, max(latest, now if is_running else end or latest, begun + 0.001)))
    return found


def _left_out(whole: Sequence[tuple[int, float, float]], flat: Sequence[tuple[Span, int]]) -> dict[int, float]:
    """Returns the seconds of long starts that the axis leaves out, by attempt: steps would have no room beside them."""
    found = {}
    for number, start, end in whole:
        first = min((span.start for span, _ in flat if span.attempt == number and span.restored is None), default=start)
        if (more := first - start - LONGEST_LEAD * (end - first)) > LONGEST_LEAD * (end - first):
            found[number] = more
    return found


def _row(span: Span, depth: int, axis: Axis, *, unended: str, is_over: bool) -> Row:
    number = span.restored or span.attempt
    state = "restored" if span.restored is not None else unended if span.end is None and is_over else span.state
    end = axis.end(number) if span.end is None else span.end
    x = axis.x(number, span.start)
    key = "" if not span.seq else f"{span.seq}" if span.restored is None else f"{span.seq}.{span.attempt}"
    return Row(key, span, depth, state, x, round(max(axis.x(number, end) - x, 0.0), 3), max(0.0, end - span.start))


def _lead(attempt: int, start: float, rows: Sequence[Row], axis: Axis) -> Row | None:
    """Returns a row for the time before the first step, None if it is short."""
    first = min((row.span.start for row in rows if row.span.restored is None), default=start)
    width = axis.x(attempt, first) - axis.x(attempt, start)
    if width < SHORTEST_LEAD:
        return None
    span = Span(0, "start", "Start of the process", attempt, start, None, None, None, end=first, state="done")
    is_cut = attempt in axis.left_out
    return Row("", span, 0, "done", axis.x(attempt, start), round(width, 3), first - start, is_cut)


def _folded(rows: list[Row], chosen: Row | None, opened: str) -> list[Row | Fold]:
    """Folds the steps of what is done, except of the row `opened` and of that with the chosen row."""
    found: list[Row | Fold] = []
    at = 0
    while at < len(rows):
        head = rows[at]
        end = next((place for place in range(at + 1, len(rows)) if rows[place].depth <= head.depth), len(rows))
        steps = rows[at + 1 : end]
        is_open = head.state != "done" or opened == head.key or chosen in rows[at:end]
        found += [head, *(steps if is_open or not head.key or not steps else [Fold(len(steps), head.key)])]
        at = end
    return _without_middle(found, chosen)


def _without_middle(rows: list[Row | Fold], chosen: Row | None) -> list[Row | Fold]:
    if len(rows) <= MOST_ROWS:
        return rows
    middle = rows[AT_EACH_END:-AT_EACH_END]
    if chosen in middle:
        place = middle.index(chosen)
        parts: list[Row | Fold] = [Fold(_count(middle[:place])), middle[place], Fold(_count(middle[place + 1 :]))]
        kept = [one for one in parts if isinstance(one, Row) or one.count]
        return [*rows[:AT_EACH_END], *kept, *rows[-AT_EACH_END:]]
    return [*rows[:AT_EACH_END], Fold(_count(middle)), *rows[-AT_EACH_END:]]


def _count(rows: Sequence[Row | Fold]) -> int:
    return sum(one.count if isinstance(one, Fold) else 1 for one in rows)


def _label(seconds: float) -> str:
    text = duration(seconds)
    return text.replace(".0 s", " s").replace(" 0 s", "").replace(" 0 min", "")
