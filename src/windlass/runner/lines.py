from __future__ import annotations

LONGEST_LINE = 8 * 1024
"""Bytes of a line that are kept."""

CUT = " [... cut by Windlass: the line is longer than 8 KB]"


class Lines:
    """Cuts a stream of bytes into lines of text. Of a line over LONGEST_LINE the rest is dropped, and it says so."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._too_long = False

    def feed(self, data: bytes) -> list[str]:
        """The lines that `data` completes."""
        *ended, rest = data.split(b"\n")
        lines = []
        for part in ended:
            self._grow(part)
            lines.append(self._take())
        self._grow(rest)
        return lines

    def end(self) -> list[str]:
        """What was written without an end of line."""
        return [self._take()] if self._line else []

    def _grow(self, part: bytes) -> None:
        self._line += part[: LONGEST_LINE + 1]
        if len(self._line) > LONGEST_LINE:
            del self._line[LONGEST_LINE:]
            self._too_long = True

    def _take(self) -> str:
        mark = CUT if self._too_long else ""
        # a cut may have split a character
        text = self._line.decode("utf-8", "ignore" if self._too_long else "replace")
        self._line.clear()
        self._too_long = False
        return text.removesuffix("\r") + mark
