from __future__ import annotations

from psycopg import OperationalError
from psycopg.pq import Conninfo

from windlass.errors import SettingsError, WindlassError


def check(url: str) -> None:
    """Raises SettingsError, without the URL, for one that can't be read."""
    try:
        Conninfo.parse(url.encode())
    except OperationalError:  # its message quotes the URL
        raise SettingsError(
            "The database's URL can't be read.",
            "It looks like this: postgresql://user:password@host:5432/name, with %-codes for what is special in a "
            "password.",
        ) from None


def variables(url: str) -> dict[str, str]:
    """The PG* variables with which PostgreSQL's own programs connect as `url` says, so that no command line holds it.

    Raises WindlassError, without the URL, for one that can't be read or that no variables can express.
    """
    check(url)
    given = [option for option in Conninfo.parse(url.encode()) if option.val is not None]
    if unknown := [option.keyword.decode() for option in given if option.envvar is None]:
        raise WindlassError(
            f"The database's URL sets {', '.join(unknown)}, which can't be handed on by a variable.",
            "Start psql yourself with what `windlass db url` prints.",
        )
    return {option.envvar.decode(): option.val.decode() for option in given if option.envvar and option.val is not None}
