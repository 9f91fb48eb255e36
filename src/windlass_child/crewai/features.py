"""Looks for objects of the installed crewai by their names."""

from __future__ import annotations

import functools
from importlib import import_module
from typing import Any


def optional(name: str) -> Any:
    """Returns the object that `name` ("module:attribute.attribute") names, or None if this crewai does not have it."""
    module, _, attributes = name.partition(":")
    try:
        return functools.reduce(getattr, filter(None, attributes.split(".")), import_module(module))
    except (ImportError, AttributeError):
        return None


def first_of(*names: str) -> Any:
    """Returns the first of these objects that this crewai has, or None."""
    return next((found for found in map(optional, names) if found is not None), None)


def has(name: str) -> bool:
    return optional(name) is not None


def has_fields(model: Any, *names: str) -> bool:
    return set(names) <= set(getattr(model, "model_fields", ()))


def has_any(*names: str) -> bool:
    return first_of(*names) is not None
