"""No process that Windlass starts has the password of the database in its environment or on its command line."""

from __future__ import annotations

import io
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import psycopg
import pytest

from windlass.embedded_postgres.dump_and_restore import dump, restore
from windlass.embedded_postgres.home import Paths
from windlass.embedded_postgres.postgres import EmbeddedPostgres

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes as Linux shows them")


def shown_of(program: str) -> list[str]:
    """What everyone of the same user can read of those of our processes that run the program."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if child.name() == program:
                found.append(f"{child.cmdline()} {child.environ()}")
    return found


def test_programs_that_dump_and_restore_show_no_password(open_folder: Path) -> None:
    places = Paths(open_folder / "home")
    database = EmbeddedPostgres(places.home)
    url = database.start()
    try:
        with psycopg.connect(url) as connection:  # more than fits into a pipe, so that the program still runs
            connection.execute("CREATE TABLE filler AS SELECT sha512(n::text::bytea) FROM generate_series(1, 100000) n")
        password = places.password.read_text().strip()
        shown: list[str] = []
        written = io.BytesIO()
        assert dump(places, written, lambda _: shown.extend(shown_of("pg_dump"))) > 0
        written.seek(0)
        with psycopg.connect(url) as connection:
            connection.execute("DROP TABLE filler")
        restore(places, written, lambda _: shown.extend(shown_of("pg_restore")))
    finally:
        database.stop()
    assert password in url
    assert {"pg_dump", "pg_restore"} <= {Path(one.split("'")[1]).name for one in shown}
    assert not any(password in one or "PGPASSWORD" in one for one in shown)
