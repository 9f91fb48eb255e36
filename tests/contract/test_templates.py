"""What `crewai create` makes is served as it is, by the real command, on the offline model."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cli.the_command import ForkedCommand
from patience import DEADLINE

pytestmark = pytest.mark.xdist_group("served_crews")

QUIET = {
    "CREWAI_DMN": "true",
    "CREWAI_DISABLE_TELEMETRY": "true",
    "OTEL_SDK_DISABLED": "true",
    "CREWAI_DISABLE_VERSION_CHECK": "true",
    "GIT_CONFIG_GLOBAL": os.devnull,
}
OFFLINE = "[offline model]"


def created(folder: Path, *arguments: str) -> Path:
    subprocess.run(
        [str(Path(sys.executable).parent / "crewai"), "create", *arguments],
        cwd=folder,
        env={"PATH": os.defpath, "HOME": str(folder), **QUIET},
        check=True,
        capture_output=True,
        timeout=DEADLINE,
    )
    return folder / arguments[1]


TEMPLATES = [
    (("crew", "json"), "no inputs", [], OFFLINE),
    (("crew", "classic", "--classic"), "topic", ["-i", "topic=tides", "-i", "current_year=2026"], OFFLINE),
    (("flow", "python"), "topic", ["-i", "topic=tides"], ""),  # its last method gives nothing
    (("flow", "declared", "--declarative"), "topic", ["-i", "topic=tides"], "tides"),
]
"""The arguments of `crewai create`, words about the inputs, inputs, and words of the result."""


@pytest.mark.timeout(600)  # half a minute on a machine with nothing else to do
def test_templates_are_served_as_they_are(open_folder: Path) -> None:
    """By one server: each would import crewai again."""
    projects = [str(created(open_folder, *arguments)) for arguments, *_ in TEMPLATES]
    windlass = ForkedCommand(open_folder)
    with windlass.started("dev", *projects, "--port", "0") as server:
        server.wait_for("Ctrl-C stops it")
        for (_, name, *_), inputs, given, said in TEMPLATES:
            of_crew = ("--deployment", name)
            assert inputs in windlass("inputs", *of_crew).out, name
            run = windlass("kickoff", *of_crew, *given, "--watch")
            assert (run.code, said in run.out) == (0, True), run
            logs = windlass("logs", run.err.split()[1])
            models = set(re.findall(r"model (\S+) answered", logs.out))
            assert models <= {"offline-model"}, logs
            assert models or said != OFFLINE, logs
        server.interrupt()
        assert server.end() == 0
