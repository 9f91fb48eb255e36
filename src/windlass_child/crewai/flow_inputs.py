"""Finds the inputs of a flow: the fields of its state. No flow object is made for it."""

from __future__ import annotations

import contextlib
import pkgutil
from typing import Any, TypeVar

from crewai.flow.flow import Flow
from pydantic import BaseModel, ValidationError
from pydantic.errors import PydanticUserError

from windlass_child import results
from windlass_child.crewai.features import optional
from windlass_child.model_schemas import schema_with_every_field
from windlass_child.process.error_text import field_problem

MAKERS = ("__init__", "_create_initial_state", "model_post_init")
"""Methods with which a project can make the state of a flow in place of crewai."""

TAKERS = ("kickoff", "kickoff_async", "akickoff", "_initialize_state")
"""Methods with which a project can take the inputs of a flow in place of crewai."""

ID: dict[str, Any] = {"^id$": {}}
"""The input `id`, the id of a persisted state. It is no property, because clients would ask for it."""

ANY = {"type": "object", "properties": {}, "required": []}


def schema(flow_class: Any) -> dict[str, Any]:
    """Returns the JSON Schema of the inputs object.

    If crewai makes the state, all its fields have defaults: `without_value` has checked that.
    """
    state = state_of(flow_class)
    found = schema_of_state(state)
    if any(getattr(flow_class, name, None) is not getattr(Flow, name, None) for name in TAKERS):
        return found
    return found | known_alone(state if isinstance(state, type) else type(state))


def known_alone(state: type) -> dict[str, Any]:
    """Returns the members of a schema by which no other inputs have an effect, {} for a state that may use others."""
    if not issubclass(state, BaseModel) or state.model_config.get("extra") == "allow":
        return {}
    renamed = any(field.alias or field.validation_alias for field in state.model_fields.values())
    validators = state.__pydantic_decorators__.model_validators.values()
    if renamed or any(one.info.mode != "after" for one in validators):
        return {}
    return {"additionalProperties": False, "patternProperties": ID}


def schema_of_state(state: Any) -> dict[str, Any]:
    if isinstance(state, dict):
        return ANY | {"properties": {name: results.default(value) for name, value in state.items() if name != "id"}}
    if isinstance(state, BaseModel):
        return with_defaults(schema_of_model(type(state)), state)
    if isinstance(state, type) and issubclass(state, BaseModel):
        return schema_of_model(state)
    return dict(ANY)


def schema_of_declared(state: Any) -> dict[str, Any]:
    """Returns the JSON Schema of the inputs of a declarative flow. Fields with defaults are not required.

    `state` is the flow's declaration of its state, or None.
    """
    defaults = getattr(state, "default", None) or {}
    found = declared(state)
    properties = {name: field for name, field in found.get("properties", {}).items() if name != "id"}
    for name, value in defaults.items():
        if name != "id":
            properties[name] = properties.get(name, {}) | results.default(value)
    required = [name for name in found.get("required", []) if name != "id" and name not in defaults]
    return found | {"type": "object", "properties": properties, "required": required}


def declared(state: Any) -> dict[str, Any]:
    """Returns the JSON Schema of the state: that of the imported model, or else the schema in the declaration."""
    model = imported_model(state)
    if model is None:
        return dict(getattr(state, "json_schema", None) or {})
    return schema_of_model(model) | known_alone(model)


def imported_model(state: Any) -> type[BaseModel] | None:
    if reference := getattr(state, "ref", None):
        with contextlib.suppress(ImportError, AttributeError, ValueError):  # crewai then uses the declared schema
            model = pkgutil.resolve_name(reference)
            if isinstance(model, type) and issubclass(model, BaseModel):
                return model
    return None


def unfit_default(state: Any) -> str:
    """Returns the errors in the default of a declared state, or "". With an error crewai can't make the state."""
    default = {name: value for name, value in (getattr(state, "default", None) or {}).items() if name != "id"}
    if default and (model := imported_model(state) or described_model(state)):
        try:
            model(**default)
        except ValidationError as error:
            return "; ".join(field_problem(dict(one)) for one in error.errors() if one["type"] != "missing")
    return ""


def described_model(state: Any) -> type[BaseModel] | None:
    """Returns the model of the declared schema, or None if crewai can't make it. It then does not check the state."""
    schema = getattr(state, "json_schema", None)
    try:
        return optional("crewai.utilities.pydantic_schema_utils:create_model_from_schema")(schema) if schema else None
    except Exception:  # noqa: BLE001 - crewai ignores every exception here
        return None


def without_value(flow_class: Any) -> list[str]:
    """Returns the required fields because of which crewai can't make the state.

    Returns [] if the flow may make its state itself.
    """
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
    except PydanticUserError:  # `unresolved` reports it
        return []
    return []


def unresolved(flow_class: Any) -> str:
    """Returns why crewai can't make the state: a name in its annotations, such as that of a type that is imported
    under TYPE_CHECKING, can't be resolved at run time. Returns "" if it can, or if the flow may make its state itself.
    """
    state = state_of(flow_class)
    if any(is_its_own(flow_class, name) for name in MAKERS) or not (
        isinstance(state, type) and issubclass(state, BaseModel) and not state.__pydantic_complete__
    ):
        return ""
    try:
        with_id(state)()
    except PydanticUserError as error:
        return error.message.replace("StateWithId", state.__name__)
    except ValidationError:  # `without_value` reports it
        return ""
    return ""


def with_id(state: type[BaseModel]) -> type[BaseModel]:
    """Returns the class that crewai makes of the type of a state."""
    of_flow = optional("crewai.flow.flow:FlowState") or BaseModel
    return state if issubclass(state, of_flow) else type("StateWithId", (of_flow, state), {})


def is_its_own(flow_class: Any, name: str) -> bool:
    """Returns whether the project defines the method. crewai and pydantic add methods of this name to each class."""
    method = getattr(flow_class, name, None)
    return method is not None and not method.__module__.startswith(("crewai.", "pydantic."))


def state_of(flow_class: Any) -> Any:
    """Returns the class of the state, or its initial object, by the same rules as the flow."""
    if fields := getattr(flow_class, "model_fields", None):
        initial = fields["initial_state"].get_default(call_default_factory=True)
    else:
        initial = flow_class.initial_state
    declared = getattr(flow_class, "_initial_state_t", None) or getattr(flow_class, "_initial_state_T", None)
    return initial if initial is not None else None if isinstance(declared, TypeVar) else declared


def schema_of_model(model: type[BaseModel]) -> dict[str, Any]:
    found = schema_with_every_field(model)
    properties = {name: field for name, field in found.get("properties", {}).items() if name != "id"}
    required = [name for name in found.get("required", []) if name != "id"]
    return found | {"properties": properties, "required": required}


def with_defaults(found: dict[str, Any], state: BaseModel) -> dict[str, Any]:
    properties = {
        name: field | results.default(getattr(state, name, None)) for name, field in found["properties"].items()
    }
    return found | {"properties": properties, "required": []}
