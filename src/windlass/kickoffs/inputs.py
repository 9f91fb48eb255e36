from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

Inputs = dict[str, Any]
LONGEST_REASON = 200


@dataclass(frozen=True, slots=True)
class Missing:
    names: list[str]


@dataclass(frozen=True, slots=True)
class Invalid:
    """Why each input breaks the schema, by the input's name."""

    reasons: dict[str, str]


@dataclass(frozen=True, slots=True)
class InputsCheck:
    """A crew's input schema, compiled once for many kickoffs.

    Inputs that the schema does not name are accepted. A property whose schema says nothing of its values is not looked
    at: a crew's placeholders take any JSON.
    """

    required: tuple[str, ...]
    validators: dict[str, Draft202012Validator] = field(default_factory=dict)

    @classmethod
    def of(cls, schema: dict[str, Any]) -> InputsCheck:
        """Raises ValueError when `schema` is no JSON Schema."""
        try:
            Draft202012Validator.check_schema(schema)
        except SchemaError as error:
            raise ValueError(f"the input schema is not valid: {error.message}") from error
        definitions = {"$defs": schema["$defs"]} if "$defs" in schema else {}
        return cls(
            required=tuple(schema.get("required", ())),
            validators={
                name: Draft202012Validator({**wanted, **definitions})
                for name, given in schema.get("properties", {}).items()
                if _constrains(wanted := _as_object(given))
            },
        )

    def __call__(self, inputs: Inputs) -> Missing | Invalid | None:
        """Missing ones are told before invalid ones."""
        missing = [name for name in self.required if name not in inputs]
        if missing:
            return Missing(missing)
        reasons = {
            name: reason
            for name, validator in self.validators.items()
            if name in inputs and (reason := _first_reason(validator, inputs[name]))
        }
        return Invalid(reasons) if reasons else None


def _constrains(schema: dict[str, Any]) -> bool:
    return bool(schema.keys() - {"title", "description", "default", "examples", "deprecated"})


def _as_object(schema: dict[str, Any] | bool) -> dict[str, Any]:
    """A schema may be `true`, which takes anything, or `false`, which takes nothing."""
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    return schema


def _first_reason(validator: Draft202012Validator, value: Any) -> str | None:
    for error in validator.iter_errors(value):
        where = "".join(f"[{step!r}]" for step in error.absolute_path)
        text = f"{where}: {error.message}" if where else error.message
        return text if len(text) <= LONGEST_REASON else f"{text[:LONGEST_REASON]}..."
    return None
