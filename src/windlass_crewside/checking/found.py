from __future__ import annotations

from typing import TypedDict

ERROR, WARNING = "error", "warning"


class Found(TypedDict):
    """As windlass.projects.checks.Finding."""

    code: str
    level: str
    message: str
    file: str | None
    line: int | None
    hint: str


class Place(TypedDict):
    """In the project, as far as it is known."""

    file: str | None
    line: int | None


def error(code: str, message: str, file: str | None, line: int | None, hint: str) -> Found:
    return Found(code=code, level=ERROR, message=message, file=file, line=line, hint=hint)


def warning(code: str, message: str, file: str | None, line: int | None, hint: str) -> Found:
    return Found(code=code, level=WARNING, message=message, file=file, line=line, hint=hint)


def place_in(text: str) -> Place:
    """Of "file:line", or of "" for none."""
    file, _, line = text.rpartition(":")
    return Place(file=file, line=int(line)) if file and line.isdecimal() else Place(file=text or None, line=None)
