"""The standard streams of a process that runs crew code, and the file for the stacks of its threads."""

from __future__ import annotations

import contextlib
import faulthandler
import io
import os
import sys
import tempfile
from pathlib import Path

from windlass_child.protocol.messages import DUMP_SIGNAL


def prepare_output() -> None:
    """Makes the standard streams send each line when it is complete, with any characters.

    The zygote does this before it imports a framework: loggers and consoles that the framework makes keep these
    streams, so children can't replace them.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)


def take_output(output: int, errors: int) -> None:
    """Makes the two descriptors standard output and standard error."""
    os.dup2(output, 1)
    os.dup2(errors, 2)
    os.close(output)
    os.close(errors)
    faulthandler.enable(2)


def write_stacks_when_asked() -> int:
    """Writes the stacks of all threads at each DUMP_SIGNAL to a file without a name, and returns its descriptor. No
    Python code runs for this, so a thread in C code does not delay it.
    """
    file = file_without_a_name("stacks")
    faulthandler.register(DUMP_SIGNAL, file, all_threads=True, chain=False)
    return file


def file_without_a_name(purpose: str) -> int:
    """Opens a file without a name: a crew could replace a file that has a name by another one."""
    with contextlib.suppress(OSError, AttributeError):  # only Linux has memfds
        return os.memfd_create(purpose)
    descriptor, name = tempfile.mkstemp()
    Path(name).unlink()
    return descriptor


def drop_output() -> None:
    """Discards what is printed from now on."""
    flush_output()
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        os.close(nowhere)


def flush_output() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):  # crew code may have closed or replaced it
            continue
