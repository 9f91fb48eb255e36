"""Reads a YAML file as nodes with lines, by PyYAML, which a framework may depend on."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


LARGEST = 4 << 20
"""Bytes of a file that is parsed."""


class Unreadable(Exception):  # noqa: N818 - the name describes a file
    def __init__(self, message: str, line: int | None) -> None:
        super().__init__(message)
        self.line = line


def compose(path: Path) -> Any:
    """Returns the root node of a file. Raises Unreadable if the file can't be read, or if it is no mapping."""
    yaml = import_module("yaml")
    try:
        if path.stat().st_size > LARGEST:
            raise Unreadable(f"the file is larger than {LARGEST >> 20} MB", None)
        text = path.read_text("utf-8")
        yaml.safe_load(text)
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except (OSError, UnicodeDecodeError) as fault:
        raise Unreadable(f"the file can't be read: {fault}", None) from None
    except yaml.YAMLError as fault:
        raise Unreadable(*in_words(fault)) from None
    except RecursionError:
        raise Unreadable("the file is nested too deeply", None) from None
    if root is not None and not isinstance(root, yaml.MappingNode):
        raise Unreadable("it must hold names, each with a colon and its members below it", line_of(root))
    return root


def in_words(fault: Any) -> tuple[str, int | None]:
    mark = getattr(fault, "problem_mark", None) or getattr(fault, "context_mark", None)
    problem = getattr(fault, "problem", None) or str(fault).splitlines()[0]
    if mark is None:
        return problem, None
    return f"{problem} (column {mark.column + 1})", mark.line + 1


def mapping(node: Any) -> dict[str, Any]:
    """Returns the members of a mapping by name, or {} for other nodes."""
    return {key.value: value for key, value in pairs(node)}


def pairs(node: Any) -> list[tuple[Any, Any]]:
    """Returns the (name, value) pairs of a mapping as written, with repeated names, or [] for other nodes."""
    return [(key, value) for key, value in node.value if isinstance(key.value, str)] if is_mapping(node) else []


def is_mapping(node: Any) -> bool:
    return type(node).__name__ == "MappingNode"


def is_scalar(node: Any) -> bool:
    return type(node).__name__ == "ScalarNode"


def has_text(node: Any) -> bool:
    return is_scalar(node) and node.tag == "tag:yaml.org,2002:str" and bool(node.value)


def sequence(node: Any) -> list[Any]:
    return list(node.value) if type(node).__name__ == "SequenceNode" else []


def line_of(node: Any) -> int:
    return int(node.start_mark.line) + 1
