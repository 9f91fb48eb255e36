"""Processes of an attacker: of the user that crews run as."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from windlass.accounts import Account
from windlass.runner.crew_account import UNNAMED

if TYPE_CHECKING:
    from collections.abc import Iterator

CREW = Account(UNNAMED, UNNAMED, "windlass-crew", is_ours=False)
INTERPRETER = Path("/usr/bin/python3.11")

as_root = pytest.mark.skipif(
    os.geteuid() != 0 or sys.platform != "linux" or not INTERPRETER.exists(),
    reason="needs root on Linux, and an interpreter that every user can reach",
)


def run_as(account: Account, code: str, *arguments: str | Path) -> None:
    """Runs Python code as this user, to its end."""
    with _started(account, code, arguments) as process:
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output.decode()


@contextlib.contextmanager
def running_as(account: Account, code: str, *arguments: str | Path) -> Iterator[subprocess.Popen[bytes]]:
    """Runs Python code as this user until the end of the block. The code prints a line once it has begun."""
    process = _started(account, code, arguments)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def _started(account: Account, code: str, arguments: tuple[str | Path, ...]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [INTERPRETER, "-I", "-S", "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        user=account.uid,
        group=account.gid,
        extra_groups=[],
        cwd="/",
    )
