"""How commands end: the exit codes, and one place that turns errors into them and into words.

0 done; 1 the kickoff, or the command, failed; 2 the command line is wrong; 3 the server said no; 4 the server is out of
reach; 130 interrupted; 141 the reader of the output is gone.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import TYPE_CHECKING

import click

from windlass.cli.printing import say
from windlass.errors import SettingsError, WindlassError

if TYPE_CHECKING:
    from collections.abc import Sequence

FAILED = 1
USAGE = 2
SERVER_SAID_NO = 3
OUT_OF_REACH = 4
INTERRUPTED = 130
READER_GONE = 141


class ReaderGone(Exception):  # noqa: N818 - said of who reads our output
    pass


def exit_code(command: click.Command, arguments: Sequence[str]) -> int:
    """Runs the command to its end."""
    _write_any_text()
    try:
        code = command.main(list(arguments), prog_name=command.name, standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return INTERRUPTED
    except WindlassError as error:
        return _told(error)
    except (ReaderGone, BrokenPipeError):
        _write_nowhere()
        return READER_GONE
    return code or 0


def _told(error: WindlassError) -> int:
    if _trace_wanted():
        traceback.print_exception(error)
    say(f"error: {error.message}")
    if error.hint:
        say(error.hint)
    return getattr(error, "exit_code", FAILED)


def _trace_wanted() -> bool:
    from windlass.config import load

    try:
        return load().log_level == "DEBUG"
    except SettingsError:
        return False


def _write_any_text() -> None:
    """A terminal that can't show a character gets its code, not a traceback of ours."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _write_nowhere() -> None:
    """What is still in the buffer would fail again when the interpreter flushes it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
