"""Words for what happened in a run, as short lines in which a crew's text is safe to print."""

from __future__ import annotations

import re
from typing import Any

from windlass.cli.printing import printable
from windlass.kickoffs.tracebacks import without_frames

LONGEST = 120
"""Most characters of a name or a message of a crew."""
TERMINAL_CODES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_=>])")


def model_of(payload: dict[str, Any]) -> str:
    return f"model {shown(payload.get('model') or 'of the crew')}"


def shown(value: Any) -> str:
    """Returns the value as one short line, with terminal codes escaped."""
    words = printable(" ".join(str(value).split()))
    return words if len(words) <= LONGEST else f"{words[: LONGEST - 3]}..."


def plain(line: str) -> str:
    """Returns the visible text of a line of output: what a terminal would finally show, "" for nothing."""
    return printable(TERMINAL_CODES.sub("", line).rstrip().rpartition("\r")[2].expandtabs())


def without_our_frames(trace: str) -> list[str]:
    """Returns the lines of a traceback, except the frames of Windlass that call the crew's code."""
    return [printable(line) for line in without_frames(trace)]
