from __future__ import annotations

import sys
from typing import NoReturn

from windlass.cli.commands import windlass
from windlass.cli.ending import exit_code


def main() -> NoReturn:
    sys.exit(exit_code(windlass, sys.argv[1:]))


if __name__ == "__main__":
    main()
