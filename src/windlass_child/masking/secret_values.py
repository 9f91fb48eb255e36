"""Masks the values of a run's secret variables in all that leaves its process, in each form of `encodings`.

These are the variables that a person has marked as secret, and those from secret managers. docs/concepts/projects.md
describes the coverage.
"""

from __future__ import annotations

import json
import re
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from windlass_child.masking import encodings
from windlass_child.masking.encodings import escaped, from_utf8, utf8
from windlass_child.masking.search import MaskedStream, Search, blocks
from windlass_child.masking.secret_parts import (
    SECRET_NAME,
    SHORTEST,
    SHORTEST_LINE,
    is_ordinary,
    is_path,
    secrets_in_url,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

MASK = "[secret]"
MASK_BYTES = MASK.encode()
MOST_PARTS = 1000
"""The parts of values, such as members of JSON and lines, that are masked in addition to the values themselves."""
PIECE, BETWEEN_PIECES, MOST_PIECES = 24, 8, 2000
"""The bytes of a piece of a long token that is masked on its own, the distance of two pieces, and the most pieces.
Consoles break a token that is longer than a line.
"""
DEEPEST_MEMBER = 5
LINE = "line"


class Part(NamedTuple):
    """A text that is masked: the value of a variable, or a part of it. `label` is "" for the value itself."""

    name: str
    label: str


class Form(NamedTuple):
    part: Part
    form: str


class SecretValues:
    """The values of secret variables. `values` maps the names of the variables to them."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = {name: value.strip() for name, value in values.items()}
        self._any = any(len(value) >= SHORTEST for value in self._values.values())

    def __bool__(self) -> bool:
        return self._any

    @property
    def size(self) -> int:
        """The characters of all values."""
        return sum(map(len, self._values.values()))

    @cached_property
    def texts(self) -> dict[Part, str]:
        """The texts that are masked: the values, and their secret parts."""
        return dict(bounded(self._values))

    @cached_property
    def forms(self) -> dict[str, Form]:
        """Each form of each text. Of equal forms, that of the whole value counts."""
        found: dict[str, Form] = {}
        for part, text in self.texts.items():
            given = {"text": text} if part.label.startswith(LINE) else encodings.forms(text, SHORTEST)
            for form, written in given.items():
                found.setdefault(written, Form(part, form))
        return found

    @cached_property
    def _names(self) -> dict[bytes, str]:
        """The patterns of whole forms that are searched for, each with the variable that it is from."""
        return {
            block: found.part.name
            for written, found in self.forms.items()
            for text in {written, escaped(written)}
            for block in blocks(utf8(text))
        }

    @cached_property
    def _search(self) -> Search:
        return Search([*self._names, *islice(pieces_of(self.texts.values()), MOST_PIECES)])

    @cached_property
    def _numeric(self) -> bool:
        return any(text.isdigit() for text in self.texts.values())

    def stream(self) -> MaskedStream:
        return MaskedStream(self._search, MASK_BYTES)

    def are_in(self, text: str) -> bool:
        return bool(self) and bool(self._search.found(utf8(text)))

    def names_in(self, text: str) -> set[str]:
        """Returns the names of the variables whose values are in the text, as a whole."""
        found = self._search.found(utf8(text)) if self else ()
        return {self._names[one] for one in found if one in self._names}

    def masked(self, text: str) -> str:
        if not self:
            return text
        data = utf8(text)
        found = self._search.masked(data, MASK_BYTES)
        return text if found is data else from_utf8(found)

    def masked_json(self, value: Any) -> Any:
        """Returns JSON with masked strings. A number becomes a string if its digits are a secret."""
        return replaced(value, self.masked, self._masked_number if self._numeric else None)

    def masked_json_text(self, text: str) -> str:
        """Does the same for JSON text."""
        if not self.are_in(text):
            return text
        try:
            return json.dumps(self.masked_json(json.loads(text)), separators=(",", ":"))
        except (ValueError, RecursionError):
            return json.dumps(MASK)

    def without_numbers(self, value: Any) -> Any:
        """Returns JSON in which a number becomes MASK if its digits are a secret."""
        return replaced(value, str, self._masked_number) if self._numeric else value

    def _masked_number(self, value: float) -> Any:
        return MASK if self.are_in(str(value)) else value


def bounded(values: Mapping[str, str]) -> Iterator[tuple[Part, str]]:
    """Yields the values with SHORTEST characters or more, and then MOST_PARTS of their parts."""
    for name, value in values.items():
        if len(value) >= SHORTEST:
            yield Part(name, ""), value
    left = MOST_PARTS
    for name, value in values.items():
        for label, text in parts_of(name, value):
            if left and len(text) >= SHORTEST:
                left -= 1
                yield Part(name, label), text


def parts_of(name: str, value: str, label: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yields the secret parts of a value, each with a label. A value of the same structure has the same labels."""
    if "://" in value and not re.search(r"\s", value):
        for number, text in enumerate(secrets_in_url(value)):
            if text != value:
                yield f"{label}part {number}", text
    if value.startswith(("{", "[")):
        yield from members_of(name, read(value), label, depth)
    if "\n" in value:
        lines = (line.strip() for line in value.splitlines())
        yield from (
            (f"{LINE} {label}{number}", line)
            for number, line in enumerate(lines)
            if len(line) >= SHORTEST_LINE and not is_ordinary(line)
        )


def pieces_of(texts: Iterable[str]) -> Iterator[bytes]:
    """Yields overlapping pieces of the tokens that are longer than two pieces."""
    for text in texts:
        data = utf8(text)
        if len(data) > 2 * PIECE and not re.search(r"\s", text) and not text.startswith(("{", "[")):
            for start in range(0, len(data) - PIECE + 1, BETWEEN_PIECES):
                yield data[start : start + PIECE]


def members_of(name: str, found: Any, label: str, depth: int) -> Iterator[tuple[str, str]]:
    """Yields the secret texts in JSON. `name` is that of the member, or of the variable."""
    if depth > DEEPEST_MEMBER:
        return
    if isinstance(found, dict):
        for key, item in found.items():
            yield from members_of(key, item, f"{label}/{key}", depth + 1)
    elif isinstance(found, list):
        for number, item in enumerate(found):
            yield from members_of(name, item, f"{label}/{number}", depth + 1)
    elif isinstance(found, str) and len(text := found.strip()) >= SHORTEST:
        is_url = "://" in text and not re.search(r"\s", text)
        if not is_url and (SECRET_NAME.search(name) or not is_ordinary(text)) and not is_path(text):
            yield label, text
        yield from parts_of(name, text, f"{label}/", depth + 1)


def read(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def replaced(value: Any, replace: Callable[[str], str], number: Callable[[float], Any] | None = None) -> Any:
    """Returns JSON with `replace(text)` for each text in it, names of members included."""
    if isinstance(value, str):
        return replace(value)
    if isinstance(value, dict):
        return {replace(name): replaced(item, replace, number) for name, item in value.items()}
    if isinstance(value, list):
        return [replaced(item, replace, number) for item in value]
    if number is not None and isinstance(value, int | float) and not isinstance(value, bool):
        return number(value)
    return value
