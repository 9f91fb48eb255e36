"""Checks values against JSON Schema at a bounded cost. The schema comes from a crew and the value from a client, and
other requests wait during the check.

A `$ref` never causes a download. Regular expressions are matched in linear time. Some checks are left to the crew's own
process: a value that takes too many steps, members named by a pattern, unevaluated members, and regular expressions
that need a backtracking engine.
"""

# See docs/decisions/api.md#inputs-are-checked-with-bounds

from __future__ import annotations

import json
from contextvars import ContextVar
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import extend
from pydantic_core import SchemaError as NoExpression
from pydantic_core import SchemaValidator, core_schema
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from jsonschema.protocols import Validator

    Keyword = Callable[[Any, Any, Any, Any], Iterable[ValidationError] | None]

MOST_STEPS = 20_000
"""Keywords that are evaluated for one value at most. They take about a tenth of a second."""
HERE = "urn:windlass:inputs"
VALUES = {"default", "const", "enum", "examples"}
"""Keywords whose value is not a schema."""
BY_NAME = {"properties", "$defs", "definitions", "dependentSchemas", "patternProperties"}
"""Keywords whose value is an object of schemas, under arbitrary names."""
NO_SCHEMAS = VALUES | {"example", "required"}
"""Keywords whose value is not a schema, in documents that other programs may have written."""
REFERENCES = ("$ref", "$dynamicRef")

_left: ContextVar[list[int]] = ContextVar("windlass_steps_left")


class NotHere(Exception):  # noqa: N818 - it is not an error
    """Stops a check that is left to the crew's process."""


class Schema:
    def __init__(self, schema: dict[str, Any]) -> None:
        """Raises ValueError, with a message for a person, for an invalid schema or a `$ref` to nothing in it."""
        try:
            Draft202012Validator.check_schema(schema, format_checker=FormatChecker(()))
            self._registry: Registry[Any] = Registry().with_resource(HERE, DRAFT202012.create_resource(schema)).crawl()
            self._refuse_references_elsewhere(schema)
        except SchemaError as error:
            raise ValueError(f"the input schema is not valid: {error.message}") from error
        except RecursionError:
            raise ValueError("the input schema is nested too deeply") from None

    def of_property(self, name: str) -> Validator:
        pointer = quote(name.replace("~", "~0").replace("/", "~1"), errors="surrogatepass")
        validator: Validator = AFFORDABLE({"$ref": f"{HERE}#/properties/{pointer}"}, registry=self._registry)
        return validator

    def _refuse_references_elsewhere(self, schema: dict[str, Any]) -> None:
        resolver = self._registry.resolver_with_root(DRAFT202012.create_resource(schema))
        for reference, base in references(schema, resolver):
            try:
                base.lookup(reference)
            except Unresolvable:
                raise ValueError(f"the input schema refers to {reference}, which is not in it") from None


def first_error(validator: Validator, value: Any) -> ValidationError | None:
    """Returns the first error, or None. Returns None too if the check is left to the crew's process."""
    token = _left.set([MOST_STEPS])
    try:
        return next(validator.iter_errors(value), None)
    except (NotHere, Unresolvable, RecursionError, ArithmeticError, AttributeError, TypeError, ValueError):
        return None
    finally:
        _left.reset(token)


def references(schema: Any, base: Any) -> Iterator[tuple[str, Any]]:
    """Yields each reference with the resolver of its position in the schema."""
    if isinstance(schema, list):
        for item in schema:
            yield from references(item, base)
    elif isinstance(schema, dict):
        base = base.in_subresource(DRAFT202012.create_resource(schema))
        yield from ((schema[name], base) for name in REFERENCES if isinstance(schema.get(name), str))
        for name, item in schema.items():
            if name in BY_NAME and isinstance(item, dict):
                yield from references([*item.values()], base)
            elif name not in VALUES:
                yield from references(item, base)


def counted(keyword: Keyword) -> Keyword:
    def check(validator: Any, wanted: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
        left = _left.get()
        left[0] -= 1
        if left[0] < 0:
            raise NotHere
        yield from keyword(validator, wanted, value, schema) or ()

    return check


def pattern(_: Any, wanted: str, value: Any, __: Any) -> Iterator[ValidationError]:
    if isinstance(value, str) and not found_in(wanted, value):
        yield ValidationError(f"{value!r} does not match {wanted!r}")


def found_in(wanted: str, text: str) -> bool:
    expression = linear(wanted)
    if expression is None:
        raise NotHere
    return expression.isinstance_python(text)


@lru_cache(maxsize=1000)
def linear(wanted: str) -> SchemaValidator | None:
    """Compiles the expression for pydantic's linear-time engine. Returns None if the engine does not support it."""
    try:
        return SchemaValidator(core_schema.str_schema(pattern=wanted, regex_engine="rust-regex"))
    except NoExpression:
        return None


def unique_items(validator: Any, wanted: bool, value: Any, _: Any) -> Iterator[ValidationError]:
    if (
        wanted
        and validator.is_type(value, "array")
        and len({json.dumps(item, sort_keys=True) for item in value}) < len(value)
    ):
        yield ValidationError(f"{value!r} has non-unique elements")


def additional_properties(validator: Any, wanted: Any, value: Any, schema: Any) -> Iterable[ValidationError]:
    if "patternProperties" in schema:
        raise NotHere
    return STANDARD["additionalProperties"](validator, wanted, value, schema) or ()


def multiple_of(validator: Any, wanted: float, value: Any, _: Any) -> Iterator[ValidationError]:
    """Compares the numbers as decimals, as they are written: 19.99 is a multiple of 0.01."""
    if validator.is_type(value, "number") and Decimal(str(value)) % Decimal(str(wanted)):
        yield ValidationError(f"{value!r} is not a multiple of {wanted!r}")


def elsewhere(_: Any, __: Any, ___: Any, ____: Any) -> Iterable[ValidationError]:
    raise NotHere


STANDARD: dict[str, Keyword] = dict(Draft202012Validator.VALIDATORS)
OURS: dict[str, Keyword] = {
    "pattern": pattern,
    "uniqueItems": unique_items,
    "additionalProperties": additional_properties,
    "multipleOf": multiple_of,
    **dict.fromkeys(("patternProperties", "unevaluatedProperties", "unevaluatedItems"), elsewhere),
}
AFFORDABLE = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator, {name: counted(keyword) for name, keyword in (STANDARD | OURS).items()}
)


def rebase_refs(schema: Any, place: str) -> Any:
    """Returns the JSON Schema for use at `place` of a document: references to `#` become references to `place`."""
    if isinstance(schema, list):
        return [rebase_refs(one, place) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {keyword: _moved(keyword, value, place) for keyword, value in schema.items()}


def _moved(keyword: str, value: Any, place: str) -> Any:
    if keyword in NO_SCHEMAS:
        return value
    if keyword in BY_NAME and isinstance(value, dict):
        return {name: rebase_refs(one, place) for name, one in value.items()}
    if keyword == "$ref":
        return _at(value, place)
    if keyword == "discriminator" and isinstance(value, dict):
        mapping = value.get("mapping", {})
        return {**value, "mapping": {name: _at(one, place) for name, one in mapping.items()}}
    return rebase_refs(value, place)


def _at(reference: Any, place: str) -> Any:
    inner = isinstance(reference, str) and (reference == "#" or reference.startswith("#/"))
    return f"{place}{reference[1:]}" if inner else reference
