"""The form of a finding, and of a place in the project."""

from __future__ import annotations

from typing import TypedDict

ERROR, WARNING = "error", "warning"


class Found(TypedDict):
    """The dictionary form of windlass.projects.findings.Finding."""

    code: str
    level: str
    message: str
    file: str | None
    line: int | None
    hint: str


class Place(TypedDict):
    """A place in the project. Its parts are None if they are not known."""

    file: str | None
    line: int | None


def error(code: str, message: str, file: str | None, line: int | None, hint: str) -> Found:
    return Found(code=code, level=ERROR, message=message, file=file, line=line, hint=hint)


def warning(code: str, message: str, file: str | None, line: int | None, hint: str) -> Found:
    return Found(code=code, level=WARNING, message=message, file=file, line=line, hint=hint)


def place_in(text: str) -> Place:
    """Parses "file:line", "file" or ""."""
    file, _, line = text.rpartition(":")
    return Place(file=file, line=int(line)) if file and line.isdecimal() else Place(file=text or None, line=None)
