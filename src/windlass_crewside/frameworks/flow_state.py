"""What the methods of a flow have changed of it, in the journal: with each finished method, what it has changed."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from windlass_crewside.faults import text_of
from windlass_crewside.frameworks.flow_parts import ABSENT, FlowParts, called, is_attribute
from windlass_crewside.frameworks.values import TAG, decoded, encoded

Change = tuple[str, int, str | None, str]
"""Of the JSON text of one part: which part, how much of its beginning is as before, what comes behind that (None: it is
gone), and a digest of the text before.

So a list, a dictionary or a text that grows at its end costs what was added, however long it is; and a change is made
to nothing but what it was made from.
"""

NO_FORM = None


class FlowState:
    """The texts of the parts of a flow as they were journaled last."""

    def __init__(self, flow: Any) -> None:
        self._parts = FlowParts(flow)
        self._texts: dict[str, str] = {}
        self._texts_before: dict[str, str] = {}
        self._to_set: dict[str, str] = {}
        self._values: dict[str, tuple[str, Any]] = {}
        self._seen: dict[str, str | None] | None = None
        self._made = {part: (value, text(value)) for part, value in self._parts.attributes().items()}
        self._latest: list[tuple[str, Any]] = []
        self.not_kept: dict[str, str] = {}

    def changes(self) -> list[Change]:
        """Since it was last asked. Raises what `encoded` and json.dumps do for what has no form."""
        texts = {}
        self._latest = list(self._parts.all())
        for part, value in self._latest:
            if not is_attribute(part):
                texts[part] = dumped(value)
            elif (kept := self._attribute(part, value)) is not None:
                texts[part] = kept
        before, self._texts_before, self._texts = self._texts, self._texts, texts
        gone = {part: None for part in before if part not in texts}
        if self._seen is not None:
            self._seen |= texts | dict.fromkeys(gone, "")
        return [
            change(part, before.get(part, ""), after)
            for part, after in (texts | gone).items()
            if after != before.get(part)
        ]

    def forget(self) -> None:
        """The last changes were not written."""
        self._texts = self._texts_before

    def part_of(self, output: Any) -> str | None:
        """The part whose very value it was when `changes` was asked."""
        if output is None or type(output) in (bool, int, float, str):
            return None
        return next((part for part, value in self._latest if value is output and part in self._texts), None)

    def take(self, changes: list[Change], *, in_use: bool) -> None:
        """What a method has changed that is not run again; `in_use` says that another one is running meanwhile. Raises
        ValueError where the state is not what these were made from, and what `decoded` does; then nothing is changed.
        """
        after = {}
        for part, same, rest, digest_before in changes:
            before = self._texts.get(part, "")
            if digest(before) != digest_before:
                raise ValueError(f"{called(part)} is not what it was before it")
            after[part] = "" if rest is None else before[:same] + rest
        set_already = {part for part, new in after.items() if self._is_there(part, new, in_use=in_use)}
        for part, new in after.items():
            self._texts[part] = self._to_set[part] = new
            if part in set_already:
                del self._to_set[part]
            if not new:
                del self._texts[part]

    def given(self, part: str) -> Any:
        """The value that a part has as of what was taken; the flow is then given this very object."""
        return self._made_again(part, self._to_set[part]) if part in self._to_set else self._parts.value(part)

    def restore(self) -> None:
        """Has the flow be what was taken. What was not changed stays as it is."""
        for part, new in self._to_set.items():
            self._parts.put(part, self._made_again(part, new) if new else ABSENT)
            if self._seen is not None:
                self._seen[part] = new
        self._to_set, self._values = {}, {}

    def watch(self) -> None:
        """From now on code of the flow may change it, and what it changes is not what changes are made to."""
        if self._seen is not None:
            return
        try:
            self._seen = {part: text(value) for part, value in self._parts.all()}
        except Exception:  # noqa: BLE001 - runs code of the project; nothing that is there then passes for unchanged
            self._seen = {}

    def _attribute(self, part: str, value: Any) -> str | None:
        """What is as each attempt makes it need not be kept."""
        made, made_text = self._made.get(part, (ABSENT, ""))
        try:
            new = dumped(value)
        except Exception as error:  # noqa: BLE001 - runs code of the project
            if value is not made:
                self.not_kept[part] = text_of(error)
            return None
        return new if part in self._texts or new != made_text else None

    def _is_there(self, part: str, new: str, *, in_use: bool) -> bool:
        """Whether code that was run again has made this of it already."""
        if not self._parts.has_place_for(part):
            raise ValueError(f"{called(part)} is not there any more")
        if f'"{TAG}":' in new:
            self._made_again(part, new)
        if self._seen is None:
            return False
        seen, now = self._seen.get(part, ""), self._text_now(part)
        if now != NO_FORM and now == new:
            self._seen[part] = new
            return True
        if now == NO_FORM or now != seen or (in_use and now.startswith(("[", "{"))):
            raise ValueError(f"a method that was run again has changed {called(part)}, or may")
        return False

    def _text_now(self, part: str) -> str | None:
        value = self._parts.value(part)
        return "" if value is ABSENT else text(value)

    def _made_again(self, part: str, new: str) -> Any:
        """One object for the same text."""
        known, value = self._values.get(part, ("", ABSENT))
        if new == known:
            return value
        value = decoded(json.loads(new))
        self._values[part] = (new, value)
        return value


def dumped(value: Any) -> str:
    return json.dumps(encoded(value), separators=(",", ":"))


def text(value: Any) -> str | None:
    try:
        return dumped(value)
    except Exception:  # noqa: BLE001 - runs code of the project
        return NO_FORM


def digest(of: str) -> str:
    return hashlib.blake2b(of.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


def change(part: str, before: str, after: str | None) -> Change:
    same = 0 if after is None else common(before, after)
    return part, same, None if after is None else after[same:], digest(before)


def common(one: str, other: str) -> int:
    """How many characters they begin with together."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle - 1)
    return low
