from __future__ import annotations

import os
import sys
from typing import NoReturn

from windlass.cli.commands import windlass
from windlass.cli.exit_codes import exit_code


def main() -> NoReturn:
    _open_closed_streams()
    sys.exit(exit_code(windlass, sys.argv[1:]))


def _open_closed_streams() -> None:
    """Opens the standard streams that the parent process has closed.

    Otherwise the next socket gets the free descriptor number, and `print` writes to that socket.
    """
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
