from __future__ import annotations

from psycopg import OperationalError
from psycopg.pq import Conninfo

from windlass.errors import SettingsError, WindlassError


def check(url: str) -> None:
    """Raises SettingsError for a URL that can't be parsed. The error does not quote the URL."""
    try:
        Conninfo.parse(url.encode())
    except OperationalError:  # its message quotes the URL
        raise SettingsError(
            "The database's URL can't be read.",
            "Its form is postgresql://user:password@host:5432/name, with %-codes for special characters in the "
            "password.",
        ) from None


def variables(url: str) -> tuple[dict[str, str], str | None]:
    """Returns the PG* variables that make PostgreSQL's own programs connect to `url`, and the password or None.

    With the variables, the URL is not visible on a command line. The password must not be visible in an environment
    either: see `hardening.password_file`. Raises WindlassError for a URL that can't be parsed or that variables can't
    express. The error does not quote the URL.
    """
    check(url)
    given = [option for option in Conninfo.parse(url.encode()) if option.val is not None]
    if unknown := [option.keyword.decode() for option in given if option.envvar is None]:
        raise WindlassError(
            f"The database's URL sets {', '.join(unknown)}, which no PG* variable can express.",
            "Run psql with the URL that `windlass db url` prints.",
        )
    found = {
        option.envvar.decode(): option.val.decode() for option in given if option.envvar and option.val is not None
    }
    return found, found.pop("PGPASSWORD", None)
