"""Reports knowledge sources that crewai could not read, for example without the key of the embedder.

crewai passes over such an error: it logs the error to its own logger, which prints nothing by default, and the crew
runs without its knowledge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windlass_child.crewai.features import optional
from windlass_child.replacements import replace_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from windlass_child.process.report import Report

FAILED = "Failed to init knowledge: "
"""The beginning of the text that crewai logs."""
MOST_FAILURES = 5
LOGGER = optional("crewai.utilities.logger:Logger")
CODE = "knowledge_not_read"

failures: list[str] = []
"""The texts of the errors since the last run ended."""


def note_failures() -> None:
    """Notes the errors of crews that are built from now on."""
    failures.clear()
    log = getattr(LOGGER, "log", None)
    if log is None or log.__module__ == __name__:
        return

    replace_name("crewai.utilities.logger:Logger.log", noting, LOGGER)


def noting(log: Callable[..., Any]) -> Callable[..., Any]:
    def noted(self: Any, level: str, message: str, *others: Any, **named: Any) -> Any:
        if str(message).startswith(FAILED) and len(failures) < MOST_FAILURES:
            failures.append(str(message)[len(FAILED) :])
        return log(self, level, message, *others, **named)

    return noted


def warn_of_failures(report: Report) -> None:
    """Sends a warning for each error. Called at the end of a run: code may build crews until then."""
    for text in dict.fromkeys(failures):
        report.warn(CODE, f"the crew ran without its knowledge sources, which could not be read: {text}")
    failures.clear()
