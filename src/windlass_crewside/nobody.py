"""A kickoff has no person beside it: code that asks one is told so at once, and is not left to wait or to retry."""

from __future__ import annotations

import builtins
from typing import NoReturn

from windlass_crewside.faults import NobodyAnswers, ProjectFault

NOT_THERE = "approvals_not_there"
"""Code of the warning for a project that asks a person."""

OUTSIDE = "or let a person approve the result after the kickoff."


def answers_input() -> None:
    """Replaces input(), which would say no more than that standard input is empty."""
    builtins.input = refuse


def refuse(prompt: object = "", /) -> NoReturn:
    asked = f"asked for {str(prompt).strip()!r}" if str(prompt).strip() else "asked"
    raise NobodyAnswers(
        f"the code called input() and {asked}, but a kickoff has no one to answer",
        f"Make it an input of the kickoff, {OUTSIDE}",
    )


def asked_by(what: str) -> ProjectFault:
    """`what` names who asks, and how."""
    return ProjectFault(f"{what}, and approvals are not there yet", f"Remove it, {OUTSIDE}")
