"""Keeps log records of libraries out of the printed lines of a run.

Where nobody has set up logging, Python prints each warning. Here such a record becomes an event of the run if it is
below ERROR and comes from code outside of the project. All other records are printed. Where the crew's code has set up
logging, its handlers get every record, as in any program.
"""

from __future__ import annotations

import logging
import sys
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windlass_child.replacements import replace_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from windlass_child.process.report import Report

EVENT = "library_log"
MOST_REMEMBERED = 500
LEFT_OUT = ("Using an approximate input token count for model",)
"""The first words of records that are left out. A framework logs this one for each model without a tokenizer,
and nobody can act on it: the token counts of a run are those of the model's answers."""
INSTALLED = {"site-packages", "dist-packages"}
"""Folders of installed libraries, which are in the project's folder when its environment is."""


def ignore_accidental_setup() -> None:
    """Prevents that logging is set up by a library that only logs.

    `logging.info(...)` and its like add a handler to the root logger when it has none. In this process they don't, so
    that a record reaches the handler of last resort. A call of `logging.basicConfig` elsewhere has its usual effect.
    """
    if logging.basicConfig.__module__ != __name__:
        replace_name("logging:basicConfig", by_others)


def by_others(set_up: Callable[..., None]) -> Callable[..., None]:
    def basic_config(**options: Any) -> None:
        if sys._getframe(1).f_globals is not vars(logging):  # noqa: SLF001 - the only way to see who calls
            set_up(**options)

    return basic_config


def keep_apart(report: Report, root: str) -> None:
    """Handles the records of this process for which nobody has set up a handler. `root` is the project's folder."""
    ignore_accidental_setup()
    replace_name("logging:lastResort", lambda _: LastResort(report, root))


class LastResort(logging.StreamHandler):  # type: ignore[type-arg]  # Python 3.10 does not take the argument
    def __init__(self, report: Report, root: str) -> None:
        super().__init__()
        self.setLevel(logging.WARNING)
        self.setFormatter(logging.Formatter(logging.BASIC_FORMAT))
        self._report = report
        self._given_root = root
        self._seen: set[tuple[str, str]] = set()

    @cached_property
    def _root(self) -> Path:
        return Path(self._given_root).resolve()

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR or self._is_of_project(record.pathname):
            self.stream = sys.stderr  # which the crew's code may have replaced
            super().emit(record)
            return
        try:
            message = record.getMessage()
            if message.startswith(LEFT_OUT) or self._is_repeated(record.name, message):
                return
            payload = {"logger": record.name, "level": record.levelname, "message": message}
            self._report.event(EVENT, payload, record.created)
        except Exception:  # noqa: BLE001 - as in every handler: a record that can't be handled must not end the crew
            self.handleError(record)

    def _is_repeated(self, logger: str, message: str) -> bool:
        """Returns whether the run has this record already. Some libraries log the same warning at each model call."""
        if (logger, message) in self._seen:
            return True
        if len(self._seen) < MOST_REMEMBERED:
            self._seen.add((logger, message))
        return False

    def _is_of_project(self, path: str) -> bool:
        place = Path(path).resolve()
        return place.is_relative_to(self._root) and not INSTALLED & set(place.relative_to(self._root).parts)
