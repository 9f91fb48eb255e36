"""Reads and sets the parts of a flow that its methods may change.

The parts are the fields of its state, and the attributes that the project's code sets on the flow.
"""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pydantic_core import PydanticUndefined

from windlass_child.crewai.flow_shape import own_attributes, state_of
from windlass_child.journal.value_codec import decoded, encoded

if TYPE_CHECKING:
    from collections.abc import Iterator

ABSENT = object()
ATTRIBUTES = ("attribute", "private attribute")
SET_FIELD = "set field"

OWN = {
    "_assistant_reply_appended",
    "_conversation_messages",
    "_execute_method",
    "_flow_post_init_done",
    "_pending_intent_llm",
    "_pending_intents",
    "_pending_user_message",
    "_resolved_conversation_config",
    "_streaming_conversation_turn",
    "_tool_action_tools",
    "_turn_classified_intent",
    "_turn_recorded_results",
}
"""Attributes that crewai sets on each flow without declaring them."""


class FlowParts:
    """The parts of a flow. The key of a part is a text: the JSON of its kind and of its name in the project."""

    def __init__(self, flow: Any) -> None:
        self._flow = flow
        self._own = OWN | declared_by_crewai(type(flow)) | own_attributes()

    def all(self) -> Iterator[tuple[str, Any]]:
        """Yields each part with its value. Raises as `encoded` does for names in the state without a form."""
        for kind, held in self._held().items():
            for name, value in held.items():
                if value is not PydanticUndefined and not (kind in ATTRIBUTES and self._makes(name)):
                    yield json.dumps([kind, encoded(name)], separators=(",", ":")), value

    def attributes(self) -> dict[str, Any]:
        held = self._held()
        return {
            json.dumps([kind, name], separators=(",", ":")): value
            for kind in ATTRIBUTES
            for name, value in held[kind].items()
            if not self._makes(name)
        }

    def value(self, part: str) -> Any:
        kind, name = decoded(json.loads(part))
        return self._held()[kind].get(name, ABSENT)

    def has_place_for(self, part: str) -> bool:
        """Returns whether the flow still has the part.

        A field may have been removed from the state, and the state may be of another kind than before.
        """
        kind, name = decoded(json.loads(part))
        state = type(state_of(self._flow))
        return kind in self._held() and (kind != "field" or name in state.model_fields or hasattr(state, name))

    def put(self, part: str, value: Any) -> None:
        """Sets a part, or removes it for ABSENT."""
        kind, name = decoded(json.loads(part))
        held = self._held()[kind]
        if value is ABSENT:
            held.pop(name, None)
        else:
            held[name] = value
        if kind == SET_FIELD:
            object.__setattr__(state_of(self._flow), "__pydantic_fields_set__", set(held))

    def _makes(self, name: str) -> bool:
        """Returns whether a new flow object makes this attribute again: crewai sets it, or it is a cached property."""
        return name in self._own or isinstance(getattr(type(self._flow), name, None), cached_property)

    def _held(self) -> dict[str, Any]:
        flow, state = self._flow, state_of(self._flow)
        attributes = dict(zip(ATTRIBUTES, (vars(flow), getattr(flow, "__pydantic_private__", {})), strict=True))
        if isinstance(state, dict):
            return {"item": state} | attributes
        fields = {
            "field": vars(state),
            "extra field": state.__pydantic_extra__,
            "private field": state.__pydantic_private__,
            SET_FIELD: dict.fromkeys(sorted(state.__pydantic_fields_set__), True),
        }
        return {kind: held for kind, held in fields.items() if held is not None} | attributes


def declared_by_crewai(flow_class: type[Any]) -> set[str]:
    own = [kind for kind in flow_class.__mro__ if kind.__module__.startswith("crewai.")]
    declared = ("__pydantic_fields__", "__private_attributes__")
    return {name for kind in own for names in declared for name in getattr(kind, names, ())}


def is_attribute(part: str) -> bool:
    return json.loads(part)[0] in ATTRIBUTES


def called(part: str) -> str:
    """Returns the name of a part for messages."""
    kind, name = json.loads(part)
    return f"the {kind} {name}"
