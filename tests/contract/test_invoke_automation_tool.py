"""The client that crewai-tools has for the crew API, InvokeCrewAIAutomationTool, works here as it is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from cli.the_command import Command, ForkedCommand
from patience import DEADLINE
from projects_for_tests.making import written

pytestmark = pytest.mark.xdist_group("served_crews")

CLIENT = Path(__file__).parent / "automation_client.py"
ANSWER = 'Brewed "green" \N{TEACUP WITHOUT HANDLE}\nfor 3 minutes.\n'
PROJECT = {
    "pyproject.toml": '[project]\nname = "brewery"\n\n[tool.windlass]\nentrypoint = "brew:brew"\n',
    "brew.py": """
        def brew(leaf: str, minutes: str = "3") -> str:
            if leaf == "none":
                raise ValueError("there are no leaves")
            return f'Brewed "{leaf}" \\N{TEACUP WITHOUT HANDLE}\\nfor {minutes} minutes.\\n'
    """,
}


def asked_by_the_tool(home: Path, url: str, token: str, *calls: dict[str, str]) -> list[str]:
    """What the tool returns for each of these inputs."""
    quiet = {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true", "CREWAI_TRACING_ENABLED": "false"}
    done = subprocess.run(
        [sys.executable, CLIENT],
        input=json.dumps({"url": url, "token": token, "calls": calls}),
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "HOME": str(home), **quiet},
        timeout=2 * DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    returned: list[str] = json.loads(done.stdout.splitlines()[-1])
    return returned


def status_of_the_last(url: str, token: str, windlass: Command) -> dict[str, Any]:
    """The last kickoff's own status, in the form of the token's profile."""
    query = "SELECT id FROM kickoffs ORDER BY id DESC LIMIT 1"
    kickoff = windlass("admin", "db", "--", "-Atc", query).out.strip()
    answer = httpx.get(f"{url}/status/{kickoff}", headers={"Authorization": f"Bearer {token}"}, timeout=DEADLINE)
    found: dict[str, Any] = answer.json()
    return found


def test_it_runs_a_crew_and_returns_exactly_the_final_output(open_folder: Path) -> None:
    windlass = ForkedCommand(open_folder)
    with windlass.started("dev", str(written(open_folder / "project", PROJECT)), "--port", "0") as server:
        url = server.wait_for("Base URL").split()[-1]
        live = windlass("tokens", "create", "--profile", "live").out.strip()
        good, missing, failing = asked_by_the_tool(
            open_folder, url, live, {"leaf": "green"}, {"minutes": "5"}, {"leaf": "none"}
        )
        server.interrupt()
        assert server.end() == 0
    assert good == ANSWER
    assert missing.startswith("Error: Failed to kickoff crew. Response: ")
    assert "'missing_inputs': ['leaf']" in missing
    assert failing.startswith("Error: Crew task failed. Response: ")
    assert "there are no leaves" in failing
