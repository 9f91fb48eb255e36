"""Parses JSON with comments and trailing commas, with the line of each value."""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

NOTHING = re.compile(r"(?:[ \t\r\n]|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?", re.ASCII)
WORDS = {
    "true": True, "false": False, "null": None,
    "NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf"),
}  # fmt: skip
DEEPEST = 200


class JsoncError(ValueError):
    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(f"{message} (column {column})")
        self.line = line


@dataclass(frozen=True, slots=True)
class Node:
    """A value and its line. The value is a dict or a list of nodes, or a scalar."""

    value: Any
    line: int

    @property
    def members(self) -> dict[str, Node]:
        return self.value if isinstance(self.value, dict) else {}

    @property
    def items(self) -> list[Node]:
        return self.value if isinstance(self.value, list) else []

    @property
    def text(self) -> str | None:
        return self.value if isinstance(self.value, str) else None

    def texts(self) -> Iterator[str]:
        """Yields all strings in the value, without the names of members."""
        for node in [*self.members.values(), *self.items]:
            yield from node.texts()
        if isinstance(self.value, str):
            yield self.value


def parse(text: str) -> Node:
    """Returns the root node. Raises JsoncError with the line and the column."""
    reader = _Reader(text)
    if text.startswith("\ufeff"):
        raise reader.fault("it begins with a byte order mark, which JSON has not: save it as UTF-8 without")
    node = reader.value(0)
    reader.skip()
    if reader.at < len(text):
        raise reader.fault("there is more behind the end")
    return node


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self._ends = [found.start() for found in re.finditer("\n", text)]

    def fault(self, message: str, at: int | None = None) -> JsoncError:
        at = self.at if at is None else at
        return JsoncError(message, self._line(at), at - self.text.rfind("\n", 0, at))

    def _line(self, at: int) -> int:
        return bisect_left(self._ends, at) + 1

    def skip(self) -> None:
        found = NOTHING.match(self.text, self.at)
        self.at = found.end() if found else self.at
        if self.text.startswith("/*", self.at):
            raise self.fault("this comment has no end")

    def value(self, depth: int) -> Node:
        self.skip()
        line = self._line(self.at)
        if depth > DEEPEST:
            raise self.fault("this is too deep")
        match self.text[self.at : self.at + 1]:
            case "{":
                return Node(self._object(depth), line)
            case "[":
                return Node(self._list(depth), line)
            case '"':
                return Node(self._string(), line)
        return Node(self._scalar(), line)

    def _object(self, depth: int) -> dict[str, Node]:
        found: dict[str, Node] = {}
        for _ in self._elements("}"):
            if not self.text.startswith('"', self.at):
                raise self.fault("a name in double quotes must stand here")
            name = self._string()
            self.skip()
            if not self.text.startswith(":", self.at):
                raise self.fault("a colon must stand here")
            self.at += 1
            found[name] = self.value(depth + 1)
        return found

    def _list(self, depth: int) -> list[Node]:
        return [self.value(depth + 1) for _ in self._elements("]")]

    def _elements(self, end: str) -> Iterator[None]:
        """Yields once for each element, at its first character."""
        self.at += 1
        while True:
            self.skip()
            if self.text.startswith(end, self.at):
                self.at += 1
                return
            yield
            self.skip()
            if self.text.startswith(",", self.at):
                self.at += 1
            elif not self.text.startswith(end, self.at):
                raise self.fault(f"a comma or {end} must stand here")

    def _string(self) -> str:
        try:
            text, self.at = scanstring(self.text, self.at + 1)
        except JSONDecodeError as error:
            raise self.fault(error.msg[0].lower() + error.msg[1:], error.pos) from None
        return str(text)

    def _scalar(self) -> Any:
        for word, value in WORDS.items():
            if self.text.startswith(word, self.at):
                self.at += len(word)
                return value
        found = NUMBER.match(self.text, self.at)
        if found is None:
            raise self.fault("a value must stand here")
        try:
            number = float(found[0]) if re.search(r"[.eE]", found[0]) else int(found[0])
        except ValueError:
            raise self.fault("this number has too many digits") from None
        self.at = found.end()
        return number
