"""Hides this process's memory and passwords from other processes of the same user.

These are the crews, when they run as the server's user.
"""

# See docs/decisions/store.md#programs-of-postgresql-read-the-password-from-a-descriptor

from __future__ import annotations

import os
import resource
import sys
import tempfile
from pathlib import Path

from windlass_child.process.hardening import PR_SET_DUMPABLE, control


def keep_memory_private() -> None:
    """Lets only root read this process's memory and environment from now on, and disables core files."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        control(PR_SET_DUMPABLE, 0)


def password_file(password: str) -> int:
    """Returns a descriptor of an unnamed file that has the form of `.pgpass` and holds the password for every server.

    A program that inherits the descriptor gets `password_variable` in place of PGPASSWORD. PGPASSWORD would be visible
    to everyone who may read the program's environment.
    """
    if sys.platform == "linux":
        descriptor = os.memfd_create("passwords")
    else:
        descriptor, name = tempfile.mkstemp()
        Path(name).unlink()
    os.fchmod(descriptor, 0o600)  # libpq ignores a file that others may read
    escaped = password.replace("\\", "\\\\").replace(":", "\\:")
    os.write(descriptor, f"*:*:*:*:{escaped}\n".encode())
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def password_variable(descriptor: int) -> dict[str, str]:
    return {"PGPASSFILE": f"/dev/fd/{descriptor}"}
