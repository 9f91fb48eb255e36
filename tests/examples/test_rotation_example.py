"""The one command of examples/rotation_verifier, which starts OpenBao and a server."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parents[2] / "examples" / "rotation_verifier" / "verify.py"


def test_the_next_kickoff_has_the_rotated_secret() -> None:
    done = subprocess.run([sys.executable, str(PROGRAM)], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    pairs = re.findall(r"the secret is (sha256:\w+), and the crew reports (sha256:\w+)\n", done.stdout)
    assert len({one for one, _ in pairs}) == 2
    assert all(one == reported for one, reported in pairs)
