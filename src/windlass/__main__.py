from __future__ import annotations

import os
import sys
from typing import NoReturn

from windlass.cli.commands import windlass
from windlass.cli.ending import exit_code


def main() -> NoReturn:
    _open_closed_streams()
    sys.exit(exit_code(windlass, sys.argv[1:]))


def _open_closed_streams() -> None:
    """A descriptor that was closed by who started us would be given to the next socket, which print then writes to."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
    sys.stdin, sys.stdout, sys.stderr = (
        stream or open(number, mode, closefd=False)  # noqa: SIM115 - for the life of the process
        for number, (stream, mode) in enumerate(((sys.stdin, "r"), (sys.stdout, "w"), (sys.stderr, "w")))
    )


if __name__ == "__main__":
    main()
