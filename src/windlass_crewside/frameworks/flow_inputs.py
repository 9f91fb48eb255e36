"""Which inputs a flow takes: the fields of its state, found without making one."""

from __future__ import annotations

import contextlib
import json
import pkgutil
from typing import Any, TypeVar

from crewai.utilities.pydantic_schema_utils import create_model_from_schema
from pydantic import BaseModel, ValidationError
from pydantic.errors import PydanticInvalidForJsonSchema

from windlass_crewside.faults import field_problem
from windlass_crewside.frameworks import results

MAKERS = ("__init__", "_create_initial_state", "model_post_init")
"""Methods by which a flow may be given its state otherwise than crewai does."""

ANY = {"type": "object", "properties": {}, "required": []}


def schema(flow_class: Any) -> dict[str, Any]:
    """JSON Schema of the inputs object. Where crewai makes the state, all fields have defaults (`without_value`)."""
    state = state_of(flow_class)
    if isinstance(state, dict):
        return ANY | {"properties": {name: default_of(value) for name, value in state.items() if name != "id"}}
    if isinstance(state, BaseModel):
        return with_defaults(schema_of_model(type(state)), state)
    if isinstance(state, type) and issubclass(state, BaseModel):
        return schema_of_model(state)
    return dict(ANY)


def schema_of_declared(state: Any) -> dict[str, Any]:
    """Of what a declarative flow says of its state; None for nothing. Fields with defaults are not required."""
    defaults = getattr(state, "default", None) or {}
    found = declared(state)
    properties = {name: field for name, field in found.get("properties", {}).items() if name != "id"}
    for name, value in defaults.items():
        if name != "id":
            properties[name] = properties.get(name, {}) | default_of(value)
    required = [name for name in found.get("required", []) if name != "id" and name not in defaults]
    return found | {"type": "object", "properties": properties, "required": required}


def declared(state: Any) -> dict[str, Any]:
    """JSON Schema of the state's model, which can be imported or stands there."""
    model = imported_model(state)
    return dict(getattr(state, "json_schema", None) or {}) if model is None else schema_of_model(model)


def imported_model(state: Any) -> type[BaseModel] | None:
    if reference := getattr(state, "ref", None):
        with contextlib.suppress(ImportError, AttributeError, ValueError):  # then crewai takes the schema beside it
            model = pkgutil.resolve_name(reference)
            if isinstance(model, type) and issubclass(model, BaseModel):
                return model
    return None


def unfit_default(state: Any) -> str:
    """What is wrong with the default of a declared state, in words; then crewai can't make the state."""
    default = {name: value for name, value in (getattr(state, "default", None) or {}).items() if name != "id"}
    if default and (model := imported_model(state) or described_model(state)):
        try:
            model(**default)
        except ValidationError as error:
            return "; ".join(field_problem(dict(one)) for one in error.errors() if one["type"] != "missing")
    return ""


def described_model(state: Any) -> type[BaseModel] | None:
    """None where crewai makes none of the schema either, and leaves the state unchecked."""
    schema = getattr(state, "json_schema", None)
    try:
        return create_model_from_schema(schema) if schema else None
    except Exception:  # noqa: BLE001 - crewai goes on after any
        return None


def without_value(flow_class: Any) -> list[str]:
    """Fields of its state that keep crewai from making one. None where the flow may make its state itself."""
    makes_its_own = any(is_its_own(flow_class, name) for name in MAKERS)
    state = state_of(flow_class)
    if makes_its_own or not (isinstance(state, type) and issubclass(state, BaseModel)):
        return []
    if not any(field.is_required() for name, field in state.model_fields.items() if name != "id"):
        return []
    try:
        state()
    except ValidationError as error:
        return [str(one["loc"][0]) for one in error.errors() if one["type"] == "missing" and one["loc"] != ("id",)]
    return []


def is_its_own(flow_class: Any, name: str) -> bool:
    """And neither crewai's nor pydantic's, which both give each class some of its own."""
    return not getattr(flow_class, name).__module__.startswith(("crewai.", "pydantic."))


def state_of(flow_class: Any) -> Any:
    """A class, or an object to begin with; as the flow itself looks for it."""
    initial = flow_class.model_fields["initial_state"].get_default(call_default_factory=True)
    declared = getattr(flow_class, "_initial_state_t", None)
    return initial if initial is not None else None if isinstance(declared, TypeVar) else declared


def schema_of_model(model: type[BaseModel]) -> dict[str, Any]:
    try:
        found = model.model_json_schema()
    except PydanticInvalidForJsonSchema:  # a field of a type that JSON has no word for
        return dict(ANY)
    properties = {name: field for name, field in found.get("properties", {}).items() if name != "id"}
    required = [name for name in found.get("required", []) if name != "id"]
    return found | {"properties": properties, "required": required}


def with_defaults(found: dict[str, Any], state: BaseModel) -> dict[str, Any]:
    properties = {name: field | default_of(getattr(state, name, None)) for name, field in found["properties"].items()}
    return found | {"properties": properties, "required": []}


def default_of(value: Any) -> dict[str, Any]:
    try:
        return {"default": json.loads(results.as_json(results.structure(value)))}
    except (TypeError, ValueError, RecursionError):
        return {}
