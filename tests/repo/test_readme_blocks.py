"""Every line of shell in the README does what it says, in the order in which a newcomer pastes it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cli.the_command import DEADLINE, PACKAGES, Command

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.xdist_group("crewai")

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
EXAMPLE = ROOT / "examples" / "research_crew"
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
INSTALLING = "make run\n"
SERVING = ".venv/bin/windlass dev path/to/your/project"


def bash(script: str, environment: Mapping[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        check=False,
        capture_output=True,
        text=True,
        env=environment,
        timeout=2 * DEADLINE,
    )
    assert done.returncode == 0, (script, done.stdout, done.stderr)
    return done.stdout


def pasted(folder: Path, port: int) -> tuple[str, Mapping[str, str]]:
    """All blocks but those that install and serve, as one script, for a server at another port."""
    windlass = folder / "windlass.sh"
    path = os.pathsep.join(PACKAGES)
    windlass.write_text(f'#!/bin/sh\nPYTHONPATH="{path}" exec "{sys.executable}" -m windlass "$@"\n')
    windlass.chmod(0o755)
    script = "".join(block for block in BLOCKS if INSTALLING not in block and SERVING not in block)
    here = script.replace("127.0.0.1:8000", f"127.0.0.1:{port}").replace(".venv/bin/windlass", str(windlass))
    return here, {"PATH": "/usr/bin:/bin", "HOME": str(folder), "LANG": "C.UTF-8"}


@pytest.mark.skipif(shutil.which("curl") is None, reason="its lines call curl")
def test_the_lines_of_the_readme_work_as_they_stand(open_folder: Path) -> None:
    windlass = Command(open_folder)
    with windlass.started("dev", str(EXAMPLE), "--port", "0") as server:
        port = int(server.wait_for("Base URL").rpartition(":")[2])
        script, environment = pasted(open_folder, port)
        told = bash(script, {**environment, "WINDLASS_HOME": windlass.environment["WINDLASS_HOME"]})
        server.interrupt()
        assert server.end() == 0
    for words in ('"topic"', '"kickoff_id"', '"state":"SUCCESS"', "[offline model]"):
        assert words in told
    assert script.count("curl") == 3


def test_what_installs_and_serves_is_what_make_and_the_command_have() -> None:
    installing = [block for block in BLOCKS if INSTALLING in block]
    assert installing == ["git clone ADDRESS-OF-THIS-REPOSITORY windlass && cd windlass\nmake run\n"]
    assert re.search(r"^run:.*\n(\t.*\n)*\t@exec \$\(BIN\)/windlass dev \$\(PROJECT\)$", makefile(), re.MULTILINE)
    serving = [line for block in BLOCKS if SERVING in block for line in block.splitlines()]
    assert [line.partition("#")[0].strip() for line in serving] == [SERVING]


def makefile() -> str:
    return (ROOT / "Makefile").read_text("utf-8")
