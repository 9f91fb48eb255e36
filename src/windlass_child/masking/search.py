"""Finds any of many patterns in data, and masks them, also in a stream.

A look at every fourth to sixteenth byte shows whether a pattern can be there at all: each occurrence of a pattern
covers four bytes that begin at such a place. So the cost hardly depends on the number of patterns.
"""

# See docs/decisions/security.md#secret-values-are-searched-for-by-four-bytes

from __future__ import annotations

import sys
from bisect import bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

WORD = 4
STRIDES = (16, 8, 4)
"""Distances between the bytes that are looked at. A pattern must have WORD - 1 bytes more."""
SHORTEST = STRIDES[-1] + WORD - 1
"""The fewest bytes of a pattern."""
BLOCK = 1024
"""A longer pattern is searched for in blocks of so many bytes. So a stream holds back fewer bytes than that."""

CONTINUES = 0b10
"""The first two bits of each byte of a character in UTF-8, except its first byte."""

Span = tuple[int, int]


class Search:
    def __init__(self, patterns: Iterable[bytes]) -> None:
        self._sorted = sorted({block for pattern in patterns for block in blocks(pattern)})
        lengths = [len(pattern) for pattern in self._sorted]
        self._shortest, self._longest = min(lengths, default=0), max(lengths, default=0)
        self._stride = next((one for one in STRIDES if self._shortest >= one + WORD - 1), STRIDES[-1])
        self._by_word: dict[int, list[bytes]] = {}
        for pattern in self._sorted:
            for word in self._words_of(pattern):
                self._by_word.setdefault(word, []).append(pattern)
        self._words = frozenset(self._by_word)
        self._heads = {pattern[:WORD] for pattern in self._sorted}
        self._short_heads = {pattern[:length] for pattern in self._sorted for length in range(1, WORD)}

    def __bool__(self) -> bool:
        return bool(self._sorted)

    def found(self, data: bytes) -> list[bytes]:
        """Returns the patterns that are in the data."""
        if not self._sorted or len(data) < self._shortest:
            return []
        whole = len(data) // WORD * WORD
        seen = self._words.intersection(memoryview(data)[:whole].cast("I")[:: self._stride // WORD])
        if not seen:
            return []
        likely = {pattern for word in seen for pattern in self._by_word[word]}
        return [pattern for pattern in likely if pattern in data]

    def spans(self, data: bytes) -> list[Span]:
        """Returns where patterns are in the data, in order. Spans that touch are joined."""
        return joined([span for one in self.found(data) for span in spans_of(one, data)])

    def masked(self, data: bytes, mask: bytes) -> bytes:
        spans = self.spans(data)
        if not spans:
            return data
        parts, last = [], 0
        for start, end in spans:
            parts += [data[last:start], mask]
            last = end
        return b"".join([*parts, data[last:]])

    def begun(self, data: bytes) -> int:
        """Returns how many bytes at the end of the data may be the beginning of a pattern."""
        tail = data[-(self._longest - 1) :] if self._longest else b""
        for at in range(len(tail)):
            head = tail[at : at + WORD]
            if head not in (self._heads if len(head) == WORD else self._short_heads):
                continue
            rest = tail[at:]
            after = bisect_right(self._sorted, rest)  # patterns that begin with `rest` follow it in the order
            if after < len(self._sorted) and self._sorted[after].startswith(rest):
                return len(rest)
        return 0

    def _words_of(self, pattern: bytes) -> list[int]:
        """Returns the words by which the pattern is found: those that begin at a row of `stride` places in it.

        Of three rows, takes the first one without words of other patterns, or else the one with the fewest.
        """
        last = len(pattern) - self._stride - WORD + 1
        found: list[tuple[int, list[int]]] = []
        for first in sorted({0, last // 2, last}, reverse=True):
            row = list(words(pattern, first, self._stride))
            found.append((sum(len(self._by_word.get(word, ())) for word in row), row))
            if not found[-1][0]:
                break
        return min(found)[1]


class MaskedStream:
    """Masks the patterns in a stream. Holds back bytes that may be the beginning of a pattern."""

    def __init__(self, search: Search, mask: bytes) -> None:
        self._search = search
        self._mask = mask
        self._held = b""
        self._covered: int | None = None
        """If the last that was given out is a mask: how many of the bytes that are held back it stands for, too."""

    def feed(self, data: bytes) -> bytes:
        if not self._search:
            return data
        data = self._held + data
        return self._given(data, len(data) - self._search.begun(data))

    def end(self) -> bytes:
        """Returns the bytes that were held back, at the end of the stream."""
        data = self._held
        return self._given(data, len(data))

    def _given(self, data: bytes, until: int) -> bytes:
        """Returns the masked data up to `until`, and holds back the rest."""
        if not until:
            self._held = data
            return b""
        begun = [] if self._covered is None else [(0, self._covered)]
        parts, last, covered = [], 0, None
        for start, end in joined([*begun, *self._search.spans(data)]):
            if start >= until:
                break
            parts.append(data[last:start])
            if start or not begun:
                parts.append(self._mask)
            last = min(end, until)
            covered = end - until if end >= until else None
        parts.append(data[last:until])
        self._held, self._covered = data[until:], covered
        return b"".join(parts)


def blocks(pattern: bytes) -> Iterator[bytes]:
    """Yields the pattern, or the blocks of a long one. The last block begins within the one before."""
    if len(pattern) < SHORTEST:
        raise ValueError(f"a pattern of {len(pattern)} bytes can't be searched for")
    last = max(len(pattern) - BLOCK, 0)
    for start in [*range(0, last, BLOCK), last]:
        first = start
        while pattern[first] >> 6 == CONTINUES:  # a block begins with a whole character
            first -= 1
        yield pattern[first : start + BLOCK]


def words(pattern: bytes, first: int, count: int) -> Iterator[int]:
    for at in range(first, first + count):
        yield int.from_bytes(pattern[at : at + WORD], sys.byteorder)


def spans_of(pattern: bytes, data: bytes) -> Iterator[Span]:
    """Yields where the pattern is in the data. Occurrences that overlap are one span: there may be one at each byte."""
    at = data.find(pattern)
    while at >= 0:
        start, end = at, at + len(pattern)
        while 0 <= (at := data.find(pattern, at + 1)) < end:
            end = at + len(pattern)
        yield start, end


def joined(spans: Collection[Span]) -> list[Span]:
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found
