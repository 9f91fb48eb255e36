"""Variables in the text of a .env file, and which of them are secret by their names and values."""

from __future__ import annotations

import re
from collections import ChainMap
from io import StringIO
from types import MappingProxyType
from typing import TYPE_CHECKING

from windlass.errors import WindlassError

if TYPE_CHECKING:
    from collections.abc import Mapping

NOTHING: Mapping[str, str] = MappingProxyType({})
SECRET_NAMES = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH(?!OR)|DSN", re.IGNORECASE)
PASSWORD_IN_URL = re.compile(r"://[^\s/:@]*:[^\s/@]+@")


class BadEnvFile(WindlassError):  # noqa: N818 - describes the text
    """Reports that a line of the text is not of the form NAME=VALUE. The message does not quote the line."""

    def __init__(self, line: int) -> None:
        super().__init__(f"Line {line} is no line of the form NAME=VALUE.", "Correct it, or remove it.")
        self.line = line


def looks_secret(name: str, value: str) -> bool:
    return bool(SECRET_NAMES.search(name) or PASSWORD_IN_URL.search(value))


def parse_env_file(text: str, environment: Mapping[str, str] = NOTHING) -> dict[str, str]:
    """Returns the values by name, the last one of each. Skips names without `=`. Raises BadEnvFile.

    Ignores a byte order mark. `${NAME}` stands for an earlier value of the text, else for that of `environment`. A
    server gives none: whoever sends a text must not read the environment of the server.
    """
    from dotenv.parser import parse_stream  # noqa: PLC0415 - commands that read no .env file start quicker
    from dotenv.variables import parse_variables  # noqa: PLC0415

    found: dict[str, str] = {}
    known = ChainMap(found, dict(environment))
    for one in parse_stream(StringIO(text.removeprefix("\ufeff"))):
        if one.error:
            raise BadEnvFile(one.original.line)
        if one.key is not None and one.value is not None:
            found[one.key] = "".join(part.resolve(known) for part in parse_variables(one.value))
    return found
