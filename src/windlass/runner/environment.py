from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

OF_THE_MACHINE = {"HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SSL_CERT_DIR", "SSL_CERT_FILE", "TZ", "USER"}


def machine_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What a crew may have of the server's environment without being given it: where programs are, language, time."""
    return {name: value for name, value in environment.items() if name in OF_THE_MACHINE or name.startswith("LC_")}
