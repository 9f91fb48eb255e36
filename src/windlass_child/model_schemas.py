"""Makes the JSON Schema of pydantic models, also of those that pydantic can't describe as a whole.

The module is imported only once a project has imported pydantic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic.errors import PydanticUserError
from pydantic.json_schema import DEFAULT_REF_TEMPLATE, GenerateJsonSchema
from pydantic_core import PydanticSerializationError

from windlass_child import results

if TYPE_CHECKING:
    from pydantic import BaseModel


def schema_with_every_field(model: type[BaseModel], ref_template: str = DEFAULT_REF_TEMPLATE) -> dict[str, Any]:
    """Returns the JSON Schema of a model. A part of a type without one accepts any JSON: its field stays a field.

    Returns only the names of the fields for a model with an annotation that can't be resolved at run time.
    """
    try:
        return model.model_json_schema(ref_template=ref_template, schema_generator=AnyForTheUnknown)
    except (PydanticUserError, NameError):  # for example a type that is imported under TYPE_CHECKING
        fields = model.model_fields or model.__annotations__
        required = [name for name, field in model.model_fields.items() if field.is_required()]
        return {"type": "object", "properties": {name: {} for name in fields}, "required": required}


class AnyForTheUnknown(GenerateJsonSchema):
    """Describes a type that JSON Schema can't describe as any JSON."""

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> dict[str, Any]:
        del schema, error_info
        return {}

    def emit_warning(self, kind: Any, detail: str) -> None:
        """Warns of nothing: the field without its default is right."""

    def encode_default(self, value: Any) -> Any:
        """Omits a default that is no JSON, such as bytes that are not UTF-8."""
        found = results.default(value)
        if not found:
            raise PydanticSerializationError("the default is no JSON")
        return found["default"]
