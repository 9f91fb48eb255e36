"""The client of Semantic Kernel for the crew API, CrewAIEnterprise, works here as it is."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cli.the_command import ForkedCommand
from patience import DEADLINE
from projects_for_tests.making import written

if TYPE_CHECKING:
    from typing import Any

pytestmark = pytest.mark.xdist_group("served_crews")

ROOT = Path(__file__).parents[2]
INTERPRETER = ROOT / ".make" / "semantic-kernel" / "bin" / "python"
CLIENT = Path(__file__).parent / "semantic_kernel_client.py"
PROJECT = {
    "pyproject.toml": """
        [project]
        name = "brewery"

        [tool.windlass]
        entrypoint = "brew:brew"
        profile = "live"
    """,
    "brew.py": """
        def brew(leaf: str) -> str:
            if leaf == "none":
                raise ValueError("there are no leaves")
            return f"Brewed {leaf}."
    """,
}


def returned(home: Path, url: str, token: str) -> dict[str, Any]:
    assert INTERPRETER.exists(), "its environment is missing: make .make/semantic-kernel"
    done = subprocess.run(
        [INTERPRETER, CLIENT],
        input=json.dumps({"url": url, "token": token}),
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "HOME": str(home)},
        timeout=3 * DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_it_starts_a_crew_waits_for_it_and_serves_it_as_a_plugin(open_folder: Path) -> None:
    windlass = ForkedCommand(open_folder)
    with windlass.started("dev", str(written(open_folder / "project", PROJECT)), "--port", "0") as server:
        url = server.wait_for("Base URL").split()[-1]
        found = returned(open_folder, url, windlass("tokens", "show", "--kind", "user").out.strip())
        server.interrupt()
        assert server.end() == 0
    assert "422" in found.pop("null")
    assert found == {
        "result": "Brewed green.",
        "state": "SUCCESS",
        "same": True,
        "failure": "",
        "failed": "FAILED",
        "plugin": "Brewed black.",
    }
