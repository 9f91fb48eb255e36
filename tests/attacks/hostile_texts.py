"""Runs regular expressions on hostile texts of 200 KB, each within a bound of CPU time.

This file is a program. Its argument is the bound in seconds. It reads a list of [pattern, flags, methods, is_bytes] as
JSON from its standard input. It writes one line of JSON for each: a description of the first text that takes too long,
or null.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from re import _compiler as compiler  # type: ignore[attr-defined]
from re import _constants as op
from re import _parser as parser
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Iterator

LENGTH = 200_000
OFTEN = 450
"""About the square root of LENGTH: as many parts, each as long."""
FEW = 3
MOST_OF_AN_EXAMPLE = 64
CANDIDATES = [*map(chr, range(32, 127)), "\n", "\t", "\r", "\0", "\x1b", "é", "\u2028", "\x85"]
UNITS = [
    *(" ", "/", '"', "[", "|", "\n", "0", "a", "-", ".", ":"),
    *("a ", "a/", "0.", "://", '\\"', " \n", "a@b:"),
]
CHARACTERS = {op.LITERAL, op.NOT_LITERAL, op.IN, op.ANY}
REPEATS = {op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT}


class Hostile:
    """Derives texts from a pattern: such that lead into each of its repetitions, go through it, and do not match."""

    def __init__(self, pattern: str, flags: int) -> None:
        self._parsed = parser.parse(pattern, flags)
        self._flags = self._parsed.state.flags
        self._groups: dict[int, str] = {}
        self._repeats: list[tuple[str, list[str]]] = []
        """The text before a repetition, and the texts that it can repeat."""
        self._whole = self._sequence(self._parsed, "")

    def texts(self) -> Iterator[str]:
        for unit in [*UNITS, self._whole]:
            if unit:
                yield filled("", unit, "")
        for before, repeated in self._repeats:
            for unit in repeated:
                start = before or unit
                yield filled(before, unit, "\0")
                yield filled("", start + unit, "\0")
                yield filled("", start + unit * OFTEN + "\0", "")

    def _sequence(self, items: Any, before: str) -> str:
        """Returns a text that the items match, and notes the repetitions in them."""
        text = ""
        for name, value in items:
            text += self._item(name, value, before + text)
        return text

    def _item(self, name: Any, value: Any, before: str) -> str:  # noqa: PLR0911 - one for each kind
        if name in CHARACTERS:
            accepted = self._accepted(name, value)
            return accepted[0]
        if name in REPEATS:
            least, most, body = value
            once = self._sequence(body, before)
            if most > FEW:
                self._repeats.append((before, self._repeated(body, once)))
            times = int(least) if most > FEW else max(int(least), 1)
            return once * min(times, MOST_OF_AN_EXAMPLE)
        if name is op.SUBPATTERN:
            self._groups[value[0]] = self._sequence(value[3], before)
            return self._groups[value[0]]
        if name is op.BRANCH:
            examples = [self._sequence(one, before) for one in value[1]]
            return examples[0]
        if name is op.ATOMIC_GROUP:
            return self._sequence(value, before)
        if name is op.ASSERT:
            inside = self._sequence(value[1], before)
            return inside if value[0] < 0 and not before else ""  # what a look-behind wants is part of the text
        return self._groups.get(value, "") if name is op.GROUPREF else ""

    def _repeated(self, body: Any, once: str) -> list[str]:
        """Returns texts that a repetition can repeat: an example of its body, and characters that its parts accept."""
        found = [once]
        for name, value in characters_of(body):
            accepted = self._accepted(name, value)
            found += [*accepted[:2], "".join(accepted[:2])]
        return [unit for unit in dict.fromkeys(found) if unit]

    def _accepted(self, name: Any, value: Any) -> list[str]:
        """Returns characters that an item accepts."""
        if name is op.LITERAL:
            return [chr(value)]
        state = parser.State()
        state.str, state.flags = "", self._flags
        accepts = compiler.compile(parser.SubPattern(state, [(name, value)]), self._flags).fullmatch
        return [one for one in CANDIDATES if accepts(one)] or ["\0"]


def characters_of(items: Any) -> Iterator[tuple[Any, Any]]:
    for name, value in items:
        if name in CHARACTERS:
            yield name, value
        elif name in REPEATS:
            yield from characters_of(value[2])
        elif name is op.SUBPATTERN:
            yield from characters_of(value[3])
        elif name is op.ATOMIC_GROUP:
            yield from characters_of(value)
        elif name is op.BRANCH:
            for one in value[1]:
                yield from characters_of(one)


def filled(before: str, unit: str, end: str) -> str:
    return before + unit * ((LENGTH - len(before) - len(end)) // len(unit)) + end


def slow_text(pattern: str, flags: int, methods: list[str], *, is_bytes: bool, seconds: float) -> str | None:
    """Returns a description of the first text on which the pattern exceeds the bound."""
    expression = re.compile(pattern.encode("latin-1") if is_bytes else pattern, flags)
    texts = list(dict.fromkeys(Hostile(pattern, flags).texts()))
    cases = [(method, text) for text in texts for method in methods]
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        search_all(expression, cases, writing, seconds, is_bytes=is_bytes)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        done = len(stream.read())
    _, status = os.waitpid(pid, 0)
    if status == 0:
        return None
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGVTALRM:
        method, text = cases[done]
        return f"{method} takes more than {seconds:g} s of CPU time for {text[:30]!r}...{text[-10:]!r}"
    raise RuntimeError(f"the process for {pattern!r} ended with the status {status}")


def search_all(expression: Any, cases: list[tuple[str, str]], writing: int, seconds: float, *, is_bytes: bool) -> None:
    """Writes a byte after each case and ends the process.

    The signal of the timer ends it in a case that takes too long. No handler in Python would run during a search.
    """
    signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
    try:
        for method, text in cases:
            signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
            search(expression, method, text.encode() if is_bytes else text)
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            os.write(writing, b".")
        os._exit(0)
    finally:
        os._exit(1)


def search(expression: Any, method: str, text: Any) -> None:
    if method in {"sub", "subn"}:
        getattr(expression, method)(text[:0], text)
    elif method == "finditer":
        list(expression.finditer(text))
    else:
        getattr(expression, method)(text)


def main() -> None:
    for pattern, flags, methods, is_bytes in cast("list[Any]", json.load(sys.stdin)):
        print(json.dumps(slow_text(pattern, flags, methods, is_bytes=is_bytes, seconds=float(sys.argv[1]))), flush=True)


if __name__ == "__main__":
    main()
