from __future__ import annotations

import functools
import socket


@functools.cache
def host() -> str:
    """The name of the machine, as rows tell it to people."""
    return socket.gethostname()
