"""Makes the JSON Schema of a function's parameters from their annotations, and the arguments from JSON inputs."""

from __future__ import annotations

import dataclasses
import enum
import sys
import types
import typing
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, cast, get_args, get_origin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SIMPLE: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    None: {"type": "null"},
    type(None): {"type": "null"},
    list: {"type": "array"},
    tuple: {"type": "array"},
    set: {"type": "array"},
    dict: {"type": "object"},
}
ARRAYS = (list, tuple, set, frozenset, Sequence, AbstractSet)
OBJECTS = (dict, Mapping)

UNRESOLVED = (NameError, TypeError, AttributeError, SyntaxError)
"""The errors for annotations that can't be resolved."""

Definitions = dict[str, Any]
"""The definitions that model schemas refer to. They belong at the root of the schema, under "$defs"."""


def schema_of(annotation: Any, definitions: Definitions) -> dict[str, Any]:
    """Returns {}, which accepts any JSON, for an annotation without a schema."""
    if isinstance(annotation, typing.Hashable) and annotation in SIMPLE:
        return dict(SIMPLE[annotation])
    if get_origin(annotation) is not None:
        return schema_of_generic(annotation, definitions)
    if hasattr(annotation, "model_json_schema"):
        return schema_of_model(annotation, definitions)
    if isinstance(annotation, type):
        return schema_of_class(annotation, definitions)
    return {}


def schema_of_generic(annotation: Any, definitions: Definitions) -> dict[str, Any]:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return schema_of(arguments[0], definitions) | description_in(arguments[1:])
    if origin in (Union, types.UnionType):
        return any_of([schema_of(argument, definitions) for argument in arguments])
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in ARRAYS:
        items = schema_of(arguments[0], definitions) if arguments else {}
        return {"type": "array"} | ({"items": items} if items else {})
    if origin in OBJECTS:
        values = schema_of(arguments[1], definitions) if len(arguments) > 1 else {}
        return {"type": "object"} | ({"additionalProperties": values} if values else {})
    return schema_of(arguments[0], definitions) if is_marked(origin, "Required", "NotRequired") else {}


def description_in(notes: tuple[Any, ...]) -> dict[str, Any]:
    """Returns the first text among the notes of an Annotated. A note with a `description` counts (pydantic's Field)."""
    for note in notes:
        text = note if isinstance(note, str) else getattr(note, "description", None)
        if isinstance(text, str):
            return {"description": text}
    return {}


def any_of(schemas: list[dict[str, Any]]) -> dict[str, Any]:
    return {} if {} in schemas else {"anyOf": schemas}


def schema_of_model(model: Any, definitions: Definitions) -> dict[str, Any]:
    from windlass_child.model_schemas import schema_with_every_field

    schema = schema_with_every_field(model, f"#/$defs/{model.__qualname__}.{{model}}")
    for name, definition in schema.pop("$defs", {}).items():
        definitions[f"{model.__qualname__}.{name}"] = definition
    return schema


def schema_of_class(annotation: type, definitions: Definitions) -> dict[str, Any]:
    if issubclass(annotation, enum.Enum):
        return {"enum": [member.value for member in annotation]}
    if typing.is_typeddict(annotation):
        return schema_of_fields(annotation, required_keys(annotation), definitions)
    if dataclasses.is_dataclass(annotation):
        fields = [field for field in dataclasses.fields(annotation) if field.init]
        required = [field.name for field in fields if has_no_default(field)]
        return schema_of_fields(annotation, required, definitions)
    return {}


def required_keys(annotation: Any) -> list[str]:
    # `from __future__ import annotations` makes annotations text, and the class then does not see NotRequired
    optional = {name for name, hint in hints_of(annotation).items() if is_marked(get_origin(hint), "NotRequired")}
    return [name for name in annotation.__required_keys__ if name not in optional]


def is_marked(origin: Any, *names: str) -> bool:
    """Returns whether the origin of an annotation is one of these marks. Python 3.10 has them in typing_extensions."""
    return getattr(origin, "_name", None) in names


def has_no_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def schema_of_fields(owner: type, required: list[str], definitions: Definitions) -> dict[str, Any]:
    properties = {name: schema_of(hint, definitions) for name, hint in hints_of(owner).items()}
    return {"type": "object", "properties": properties, "required": [name for name in properties if name in required]}


def hints_of(owner: Any) -> dict[str, Any]:
    """Returns the annotations with their names resolved. One that can't be resolved at run time stays as written.

    An example is a type that is imported under TYPE_CHECKING.
    """
    try:
        return typing.get_type_hints(owner, include_extras=True)
    except UNRESOLVED:
        owners = reversed(owner.__mro__) if isinstance(owner, type) else [owner]
        return {name: hint for one in owners for name, hint in hints_one_by_one(one)}


def hints_one_by_one(owner: Any) -> Iterator[tuple[str, Any]]:
    """Yields the annotations that a function or a class has itself."""
    module = sys.modules.get(str(getattr(owner, "__module__", "")))
    names = getattr(owner, "__globals__", vars(module) if module else {})
    inner = dict(vars(owner)) if isinstance(owner, type) else None
    own = vars(owner).get("__annotations__") if isinstance(owner, type) else getattr(owner, "__annotations__", None)
    for name, written in (own or {}).items():
        alone = types.SimpleNamespace(__annotations__={name: written})
        try:
            yield name, typing.get_type_hints(alone, names, inner, include_extras=True)[name]
        except UNRESOLVED:
            yield name, written


def built(annotation: Any, value: Any) -> Any:
    """Returns an instance for an annotation with a model, a dataclass or an enum, and else `value` unchanged.

    Raises ValueError or TypeError.
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return built(arguments[0], value)
    if origin in (Union, types.UnionType):
        return built_optional(arguments, value)
    if origin is list and arguments and isinstance(value, list):
        return [built(arguments[0], item) for item in value]
    if isinstance(annotation, type):
        return built_class(annotation, value)
    return value


def built_optional(choices: tuple[Any, ...], value: Any) -> Any:
    """Builds X for "X or None". Returns the value of any other union unchanged, because its type is ambiguous."""
    kinds = [choice for choice in choices if choice is not type(None)]
    return value if value is None or len(kinds) != 1 else built(kinds[0], value)


def built_class(annotation: Any, value: Any) -> Any:
    if hasattr(annotation, "model_validate"):
        return annotation.model_validate(value)
    if issubclass(annotation, enum.Enum):
        return annotation(value)
    if dataclasses.is_dataclass(annotation) and isinstance(value, dict):
        hints, make = hints_of(annotation), cast("Callable[..., Any]", annotation)
        return make(**{name: built(hints.get(name, Any), item) for name, item in value.items()})
    return value
