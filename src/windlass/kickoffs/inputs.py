"""Checks the inputs of a kickoff against the schema of its crew."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import islice
from typing import TYPE_CHECKING, Any

from windlass.kickoffs.schema_checks import NotHere, Schema, first_error, found_in

if TYPE_CHECKING:
    from collections.abc import Collection

    from jsonschema.protocols import Validator

Inputs = dict[str, Any]
PERHAPS, SURELY = 0.6, 0.8
"""How similar two names must be, from 0 to 1: where one of them is certainly wrong, and where both may be right."""
LONGEST_REASON = 200
MOST_UNKNOWN = 5
LONGEST_NAME = 60
MOST_COMPARED, LONGEST_COMPARED = 30, 32
"""Bounds of the search for a similar name. Its time grows with the number of names, and faster with their length. It is
made for each kickoff of a batch, and both the crew and the client choose names.
"""


@dataclass(frozen=True, slots=True)
class Missing:
    names: list[str]


@dataclass(frozen=True, slots=True)
class Invalid:
    """Holds the reason why each invalid input breaks the schema, by the input's name."""

    reasons: dict[str, str]


@dataclass(frozen=True, slots=True)
class InputsCheck:
    """Checks inputs against a crew's input schema, which is compiled once for many kickoffs.

    Inputs that the schema does not name are accepted. A property whose schema does not restrict its values is not
    checked, because a crew's placeholders accept any JSON. `names` are the inputs that the schema names, also by
    `patterns`. `others` is whether the crew can use other ones, None if the schema does not define it.
    """

    required: tuple[str, ...]
    validators: dict[str, Validator] = field(default_factory=dict)
    names: frozenset[str] = frozenset()
    patterns: tuple[str, ...] = ()
    others: bool | None = None

    @classmethod
    def of(cls, schema: dict[str, Any]) -> InputsCheck:
        """Raises ValueError, with a message for a person, for an invalid schema."""
        checked = Schema(schema)
        return cls(
            required=tuple(schema.get("required", ())),
            validators={
                name: checked.of_property(name)
                for name, given in schema.get("properties", {}).items()
                if _constrains(given)
            },
            names=frozenset(schema.get("properties", {})),
            patterns=tuple(schema.get("patternProperties", ())),
            others=None if (others := schema.get("additionalProperties")) is None else others is not False,
        )

    def __call__(self, inputs: Inputs) -> Missing | Invalid | None:
        """Returns the missing inputs, else the invalid ones, else None."""
        missing = [name for name in self.required if name not in inputs]
        if missing:
            return Missing(missing)
        reasons = {
            name: reason
            for name, validator in self.validators.items()
            if name in inputs and (reason := _first_reason(validator, inputs[name]))
        }
        return Invalid(reasons) if reasons else None

    def unknown(self, inputs: Inputs) -> dict[str, str | None]:
        """Returns the inputs that the crew does not use, each with the most similar name of an input, at most
        MOST_UNKNOWN.

        Where the schema does not define whether the crew can use others, these are the inputs that look like a
        misspelt name of an input that is not given.
        """
        if self.others or inputs.keys() <= self.names:
            return {}
        unnamed = islice((one for one in inputs if one not in self.names and not self._fits(one)), MOST_UNKNOWN)
        if self.others is False:
            return {name: self._similar(name, self.names) for name in unnamed}
        left = self.names - inputs.keys()
        return {name: similar for name in unnamed if (similar := self._similar(name, left, SURELY))}

    def _fits(self, name: str) -> bool:
        with suppress(NotHere):
            return any(found_in(pattern, name) for pattern in self.patterns)
        return True

    def _similar(self, name: str, names: Collection[str], ratio: float = PERHAPS) -> str | None:
        if len(name) > LONGEST_COMPARED or len(names) > MOST_COMPARED:
            return None
        known = sorted(one for one in names if len(one) <= LONGEST_COMPARED)
        return next(iter(get_close_matches(name, known, 1, ratio)), None)


def _constrains(schema: dict[str, Any] | bool) -> bool:
    """Returns whether the schema restricts its values. The schema `true` accepts any value, and `false` none."""
    if isinstance(schema, bool):
        return not schema
    return bool(schema.keys() - {"title", "description", "default", "examples", "deprecated"})


def _first_reason(validator: Validator, value: Any) -> str | None:
    error = first_error(validator, value)
    if error is None:
        return None
    where = "".join(f"[{step!r}]" for step in error.absolute_path)
    text = f"{where}: {error.message}" if where else error.message
    return text if len(text) <= LONGEST_REASON else f"{text[:LONGEST_REASON]}..."
