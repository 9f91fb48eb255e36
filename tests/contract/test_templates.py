"""What `crewai create` makes is served as it is, by the real command, on the offline model."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cli.the_command import DEADLINE, ForkedCommand

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


@pytest.mark.parametrize(
    ("arguments", "inputs", "given", "said"),
    [
        (("crew", "tides"), "no inputs", [], OFFLINE),
        (("crew", "tides", "--classic"), "topic", ["-i", "topic=tides", "-i", "current_year=2026"], OFFLINE),
        (("flow", "tides"), "topic", ["-i", "topic=tides"], ""),  # its last method gives nothing
        (("flow", "tides", "--declarative"), "topic", ["-i", "topic=tides"], "tides"),
    ],
    ids=["json crew", "classic crew", "python flow", "declarative flow"],
)
def test_a_template_is_served_as_it_is(
    open_folder: Path, arguments: tuple[str, ...], inputs: str, given: list[str], said: str
) -> None:
    project = created(open_folder, *arguments)
    windlass = ForkedCommand(open_folder)
    with windlass.started("dev", str(project), "--port", "0") as server:
        url = server.wait_for("Base URL").split()[-1]
        windlass.environment["WINDLASS_TOKEN"] = windlass("tokens", "show", "--kind", "user").out.strip()
        assert inputs in windlass("inputs", url).out
        run = windlass("kickoff", url, *given, "--watch")
        logs = windlass("logs", url, run.err.split()[1])
        server.interrupt()
        assert server.end() == 0
    assert (run.code, said in run.out) == (0, True), run
    models = set(re.findall(r"model (\S+) answered", logs.out))
    assert models <= {"offline-model"}, logs
    assert models or said != OFFLINE, logs
