"""What a process that runs crew code finds around it: environment, folder, standard streams."""

from __future__ import annotations

import contextlib
import faulthandler
import io
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from windlass_crewside.messages import DUMP_SIGNAL

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from windlass_crewside.messages import Surroundings

QUIET = {
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_DISABLE_VERSION_CHECK": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "ANONYMIZED_TELEMETRY": "false",
    "DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "true",
    "MEM0_TELEMETRY": "false",
    "SCARF_NO_ANALYTICS": "true",
}
"""Keeps frameworks and the libraries under them from calling home. A value that the crew's environment gives wins.

CREWAI_TRACING_ENABLED also saves 5 s on the first run of a home folder. OTEL_SDK_DISABLED is not among them: it would
switch off the tracing of crews that bring their own.
"""


def inhabit(surroundings: Surroundings) -> None:
    """Makes environment and folder this process's own; crew code that comes after it sees nothing else."""
    folder = Path(surroundings.folder)
    temporary, storage = folder / ".tmp", folder / ".storage"
    for place in (temporary, storage):
        place.mkdir(mode=0o700, exist_ok=True)
    replace_environment(
        {
            **QUIET,
            "CREWAI_STORAGE_DIR": str(storage),
            **surroundings.environment,
            "TMPDIR": str(temporary),
        }
    )
    tempfile.tempdir = None
    os.chdir(folder)


@contextlib.contextmanager
def without_dotenv() -> Iterator[None]:
    """For the import of crewai, which reads a .env file near the interpreter."""
    before = environment()
    replace_environment({**before, "PYTHON_DOTENV_DISABLED": "true"})
    try:
        yield
    finally:
        replace_environment(before)


def environment() -> dict[str, str]:
    return dict(os.environ)  # noqa: TID251 - this process's own, which is the crew's


def replace_environment(wanted: Mapping[str, str]) -> None:
    os.environ.clear()  # noqa: TID251 - as above
    os.environ.update(wanted)  # noqa: TID251 - as above
    time.tzset()


def prepare_output() -> None:
    """Has each line sent when it is complete, whatever is in it.

    In the zygote: loggers and consoles that a framework makes keep these streams, so children can't have others.
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
    """On DUMP_SIGNAL, to a file without a name, whose descriptor is given. No Python runs for it: a thread in C code
    holds nothing up.
    """
    file = file_without_a_name("stacks")
    faulthandler.register(DUMP_SIGNAL, file, all_threads=True, chain=False)
    return file


def file_without_a_name(purpose: str) -> int:
    """Who opens a file by its name may find another one there, which a crew has put in its place."""
    with contextlib.suppress(OSError, AttributeError):  # Linux alone has it
        return os.memfd_create(purpose)
    descriptor, name = tempfile.mkstemp()
    Path(name).unlink()
    return descriptor


def flush_output() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):  # crew code may have closed or replaced it
            continue
