"""The state of a flow in the journal: with each finished method, what it has changed of it."""

from __future__ import annotations

import json
from typing import Any

from windlass_crewside.frameworks.values import decoded, encoded

Change = tuple[int, str]
"""Of the JSON text of one field: how much of its beginning is as before, and what comes behind that.

So a list, a dictionary or a text that grows at its end costs what was added, however long it is.
"""


class FlowState:
    """The texts of a flow's fields as they were journaled last."""

    def __init__(self, flow: Any) -> None:
        self._flow = flow
        self._texts: dict[str, str] = {}

    def changes(self) -> dict[str, Any]:
        """Since it was last asked. Raises TypeError, ValueError or RecursionError for what has no form as JSON."""
        texts = {name: json.dumps(encoded(value), separators=(",", ":")) for name, value in fields_of(self._flow.state)}
        changed = {name: change(self._texts.get(name, ""), text) for name, text in texts.items()}
        gone = [name for name in self._texts if name not in texts]
        self._texts = texts
        return {"set": {name: one for name, one in changed.items() if one is not None}, "gone": gone}

    def forget(self) -> None:
        """The next changes are all of it: those before were not written."""
        self._texts = {}

    def apply(self, changes: dict[str, Any]) -> None:
        for name, (same, rest) in changes["set"].items():
            self._texts[name] = self._texts.get(name, "")[:same] + rest
        for name in changes["gone"]:
            self._texts.pop(name, None)

    def restore(self) -> None:
        """Has the flow's state be what was journaled. Raises ValueError or LookupError where that does not fit."""
        values = {name: decoded(json.loads(text)) for name, text in self._texts.items()}
        state = self._flow.state
        if isinstance(state, dict):
            state.clear()
            state.update(values)
            return
        declared = type(state).model_fields
        vars(state).update({name: value for name, value in values.items() if name in declared})
        if state.__pydantic_extra__ is not None:
            state.__pydantic_extra__.update({name: value for name, value in values.items() if name not in declared})


def fields_of(state: Any) -> list[tuple[str, Any]]:
    if isinstance(state, dict):
        return list(state.items())
    return [*vars(state).items(), *(state.__pydantic_extra__ or {}).items()]


def change(before: str, after: str) -> Change | None:
    if before == after:
        return None
    same = common(before, after)
    return same, after[same:]


def common(one: str, other: str) -> int:
    """How many characters they begin with together."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle - 1)
    return low
