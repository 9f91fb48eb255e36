from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from windlass.kickoffs.schema_checks import Schema, first_error

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

Inputs = dict[str, Any]
LONGEST_REASON = 200


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
    checked, because a crew's placeholders accept any JSON.
    """

    required: tuple[str, ...]
    validators: dict[str, Validator] = field(default_factory=dict)

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
