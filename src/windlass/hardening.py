"""Keeps what this process knows from others of the same user: crews, where they run as the user that the server is."""

from __future__ import annotations

import ctypes
import resource
import sys

PR_SET_DUMPABLE = 4


def keep_memory_private() -> None:
    """No one but root may read this process's memory or environment from now on, and it leaves no core file behind."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
