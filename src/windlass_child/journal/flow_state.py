"""Journals the state of a flow: the entry of each finished method holds the changes that the method made."""

# See docs/decisions/journal.md#an-entry-for-a-flows-state-holds-the-additions

from __future__ import annotations

import hashlib
from typing import Any

from windlass_child.journal.flow_parts import ABSENT, FlowParts, called, is_attribute
from windlass_child.journal.markers import Markers
from windlass_child.journal.value_codec import TAG, decoded, encoded
from windlass_child.masking.secret_values import SecretValues
from windlass_child.process.error_text import text_of

Change = tuple[str, int, str | None, str]
"""A change of the JSON text of one part of the flow. Its four items:

1. the part;
2. the number of characters at the beginning that are unchanged;
3. the text after those, or None if the part is gone;
4. a digest of the text before the change.

The size of a change at the end of a list, a dictionary or a text depends on the added text alone. The digest ensures
that a change is applied only to the text from which it was made.
"""

NO_FORM = None


class FlowState:
    """The JSON texts of the parts of a flow, as they were journaled last."""

    def __init__(self, flow: Any, markers: Markers | None = None) -> None:
        """`markers` keep secrets out of the texts. The texts of all attempts of a kickoff have the same markers."""
        self._markers = markers or Markers(SecretValues({}))
        self._parts = FlowParts(flow)
        self._texts: dict[str, str] = {}
        self._texts_before: dict[str, str] = {}
        self._to_set: dict[str, str] = {}
        self._values: dict[str, tuple[str, Any]] = {}
        self._seen: dict[str, str | None] | None = None
        self._made = {part: (value, self._text(value)) for part, value in self._parts.attributes().items()}
        self._latest: list[tuple[str, Any]] = []
        self.not_kept: dict[str, str] = {}

    def changes(self) -> list[Change]:
        """Returns the changes since the last call. Raises as `encoded` and json.dumps do for values without a form."""
        texts = {}
        self._latest = list(self._parts.all())
        for part, value in self._latest:
            if not is_attribute(part):
                texts[part] = self._dumped(value)
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
        """Discards the last changes, because they were not written."""
        self._texts = self._texts_before

    def part_of(self, output: Any) -> str | None:
        """Returns the part whose value was this very object at the last call of `changes`, or None."""
        if output is None or type(output) in (bool, int, float, str):
            return None
        return next((part for part, value in self._latest if value is output and part in self._texts), None)

    def take(self, changes: list[Change], *, in_use: bool) -> None:
        """Takes the changes of a method that is not run again. `in_use` means that another method is running.

        Raises ValueError if the state is not the one from which the changes were made, and as `decoded` does. Nothing
        is changed then.
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
        """Returns the value of a part after the taken changes. `restore` sets this very object on the flow."""
        return self._made_again(part, self._to_set[part]) if part in self._to_set else self._parts.value(part)

    def restore(self) -> None:
        """Sets the parts that were taken on the flow. Does not touch other parts."""
        for part, new in self._to_set.items():
            self._parts.put(part, self._made_again(part, new) if new else ABSENT)
            if self._seen is not None:
                self._seen[part] = new
        self._to_set, self._values = {}, {}

    def watch(self) -> None:
        """Records the texts of all parts before code of the flow runs.

        Journaled changes are not applied to a part that this code changes.
        """
        if self._seen is not None:
            return
        try:
            self._seen = {part: self._text(value) for part, value in self._parts.all()}
        except Exception:  # noqa: BLE001 - runs code of the project; without texts no existing part counts as unchanged
            self._seen = {}

    def _attribute(self, part: str, value: Any) -> str | None:
        """Returns the text of an attribute, or None if it need not or can't be journaled.

        An attribute with the value that each new flow object has need not be journaled.
        """
        made, made_text = self._made.get(part, (ABSENT, ""))
        try:
            new = self._dumped(value)
        except Exception as error:  # noqa: BLE001 - runs code of the project
            if value is not made:
                self.not_kept[part] = text_of(error)
            return None
        return new if part in self._texts or new != made_text else None

    def _is_there(self, part: str, new: str, *, in_use: bool) -> bool:
        """Returns whether a method that was run again has already set the part to this text.

        Raises ValueError if the part is gone, or if a method that was run again has changed it or may change it.
        """
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
        return "" if value is ABSENT else self._text(value)

    def _made_again(self, part: str, new: str) -> Any:
        """Decodes the text of a part. The same text gives the same object."""
        known, value = self._values.get(part, ("", ABSENT))
        if new == known:
            return value
        value = decoded(self._markers.read(new))
        self._values[part] = (new, value)
        return value

    def _dumped(self, value: Any) -> str:
        return self._markers.text_of(encoded(value))

    def _text(self, value: Any) -> str | None:
        try:
            return self._dumped(value)
        except Exception:  # noqa: BLE001 - runs code of the project
            return NO_FORM


def digest(of: str) -> str:
    return hashlib.blake2b(of.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


def change(part: str, before: str, after: str | None) -> Change:
    same = 0 if after is None else common(before, after)
    return part, same, None if after is None else after[same:], digest(before)


def common(one: str, other: str) -> int:
    """Returns the length of the common prefix of two texts."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle - 1)
    return low
