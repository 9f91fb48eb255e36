"""Variables in the text of a .env file, and which of them are secret by their names and values."""

from __future__ import annotations

import re
from io import StringIO

from windlass.errors import WindlassError

SECRET_NAMES = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH(?!OR)|DSN", re.IGNORECASE)
PASSWORD_IN_URL = re.compile(r"://[^\s/:@]*:[^\s/@]+@")


class BadEnvFile(WindlassError):  # noqa: N818 - describes the text
    """Reports that a line of the text is not of the form NAME=VALUE. The message does not quote the line."""

    def __init__(self, line: int) -> None:
        super().__init__(f"Line {line} is no line of the form NAME=VALUE.", "Correct it, or remove it.")
        self.line = line


def looks_secret(name: str, value: str) -> bool:
    return bool(SECRET_NAMES.search(name) or PASSWORD_IN_URL.search(value))


def parse_env_file(text: str) -> dict[str, str]:
    """Returns the values by name, the last one of each. Skips names without `=`. Raises BadEnvFile."""
    from dotenv import dotenv_values  # noqa: PLC0415 - commands that read no .env file start quicker
    from dotenv.parser import parse_stream  # noqa: PLC0415

    for one in parse_stream(StringIO(text)):
        if one.error:
            raise BadEnvFile(one.original.line)
    found = dotenv_values(stream=StringIO(text))
    return {name: value for name, value in found.items() if value is not None}
