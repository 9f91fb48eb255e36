from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, resource
from windlass.cli.serving import serving_settings

serving_settings({})  # as each command begins that starts a server
print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), resource.getrlimit(resource.RLIMIT_CORE))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux's own")
def test_the_servers_memory_is_closed_and_leaves_no_core_file() -> None:
    told = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert told.stdout == "0 (0, 0)\n"
