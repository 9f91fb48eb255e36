"""Hides what crewai prints of every flow: its events hold the same, redacted."""

from __future__ import annotations

import logging
from typing import Any

from crewai.events.utils.console_formatter import ConsoleFormatter


def hush() -> None:
    """Suppresses crewai's console panels and listener errors of flows.

    It is never undone, because a process runs one project.
    """
    print_panel = ConsoleFormatter.print_panel

    def print_other_panels(self: Any, *arguments: Any, is_flow: bool = False, **named: Any) -> None:
        if not is_flow:
            print_panel(self, *arguments, **named)

    ConsoleFormatter.print_panel = print_other_panels
    logging.getLogger("crewai.flow.runtime").addFilter(no_failed_listener)


def no_failed_listener(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith("Error executing listener ")
