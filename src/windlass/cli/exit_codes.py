"""The exit codes, and the one place that converts errors into exit codes and messages.

0: success. 1: the kickoff or the command failed. 2: the command line is wrong. 3: the server refused the request.
4: the server or the database can't be reached. 5: the database needs a migration. 6: the database is too new.
130: interrupted. 141: the reader of the output has closed it.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import TYPE_CHECKING

import click

from windlass.cli.printing import print_error
from windlass.errors import SettingsError, WindlassError

if TYPE_CHECKING:
    from collections.abc import Sequence

FAILED = 1
USAGE = 2
REFUSED_BY_SERVER = 3
OUT_OF_REACH = 4
MIGRATION_NEEDED = 5
DATABASE_TOO_NEW = 6
INTERRUPTED = 130
READER_GONE = 141


class ReaderGone(Exception):  # noqa: N818 - a state of the reader of standard output
    pass


def exit_code(command: click.Command, arguments: Sequence[str]) -> int:
    """Runs the command. Returns its exit code."""
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
        return _report(error)
    except (ReaderGone, BrokenPipeError):
        _write_nowhere()
        return READER_GONE
    return code or 0


def _report(error: WindlassError) -> int:
    if _trace_wanted():
        traceback.print_exception(error)
    print_error(error.message, error.hint)
    return getattr(error, "exit_code", FAILED)


def _trace_wanted() -> bool:
    from windlass.config import load

    try:
        return load().log_level == "DEBUG"
    except SettingsError:
        return False


def _write_any_text() -> None:
    """Makes the streams print the code of a character that they can't encode, instead of a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _write_nowhere() -> None:
    """Redirects standard output to /dev/null. The interpreter's last flush of the buffer would fail otherwise."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
