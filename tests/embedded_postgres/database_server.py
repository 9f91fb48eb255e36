"""A process that serves a database until its standard input ends. It uses no package but Windlass itself.

Argument: the home.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from windlass.embedded_postgres.postgres import EmbeddedPostgres
from windlass.errors import WindlassError


def notify(word: str, text: str = "") -> None:
    print(word, text, flush=True)


def serve(home: Path) -> None:
    database = EmbeddedPostgres(home, report=lambda line: notify("report", line))
    try:
        notify("url", database.start())
        sys.stdin.read()
    except WindlassError as error:
        notify("error", str(error))
    finally:
        database.stop()
        notify("stopped")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(Path(sys.argv[1]))
