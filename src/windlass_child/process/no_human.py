"""Refuses questions to a person at once, because no person attends a kickoff: code that asks must not wait or retry."""

from __future__ import annotations

import builtins
from typing import NoReturn

from windlass_child.process.error_text import NobodyAnswers, ProjectFault

NOT_THERE = "approvals_not_there"
"""Code of the warning for a project that asks a person."""

OUTSIDE = "or let a person approve the result after the kickoff."


def answers_input() -> None:
    """Replaces input(), whose own error reports only that standard input is empty."""
    builtins.input = refuse


def refuse(prompt: object = "", /) -> NoReturn:
    asked = f"asked for {str(prompt).strip()!r}" if str(prompt).strip() else "asked"
    raise NobodyAnswers(
        f"the code called input() and {asked}, but a kickoff has no one to answer",
        f"Make it an input of the kickoff, {OUTSIDE}",
    )


def asked_by(what: str) -> ProjectFault:
    """Returns the fault for a project that asks a person. `what` names the part that asks, and how it asks."""
    return ProjectFault(f"{what}, and approvals are not supported yet", f"Remove it, {OUTSIDE}")
