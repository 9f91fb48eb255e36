"""The images run crews: as any user, on a read-only file system, without Landlock, and through kills and drains."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from image.person import SLOW, Outside, project
from image.podman import IMAGE, bounds, needs_images, of_machine, podman, started, wait_for, without_landlock

if TYPE_CHECKING:
    from pathlib import Path

from image.podman import Container

pytestmark = [needs_images, pytest.mark.timeout(900), pytest.mark.xdist_group("image")]

LARGEST_SERVER = 300_000_000
OF_WINDLASS = ("WINDLASS_HOME", "WINDLASS_HOST", "WINDLASS_LOG_FORMAT")
OF_BASE = ("GPG_KEY", "PYTHON_VERSION", "PYTHON_SHA256")
CREWAI = "crewai>=1.15,<1.16"
PACKAGE = "iniconfig"
"""A small package that the image does not have."""
CREW = """
from crewai import Agent, Crew, Task

def crew() -> Crew:
    author = Agent(role="author", goal="write", backstory="writes")
    return Crew(agents=[author], tasks=[Task(description="Write about {topic}", expected_output="text", agent=author)])
"""


def doctor(container: Container) -> dict[str, tuple[str, str]]:
    found = json.loads(container.run("windlass", "doctor", "--json", check=False))
    return {one["check"]: (one["level"], one["message"]) for one in found}


def faults(found: dict[str, tuple[str, str]], level: str) -> set[str]:
    return {name for name, (one, _) in found.items() if one == level}


@pytest.mark.parametrize("target", ["server", "full"])
def test_an_image_names_its_user_its_check_and_its_labels_and_has_no_secret(target: str) -> None:
    found = json.loads(podman("image", "inspect", f"{IMAGE}:{target}").stdout)[0]
    config = found["Config"]
    assert (config["User"], config["Entrypoint"]) == ("10001:0", ["tini", "--", "windlass"])
    assert config["Labels"]["org.opencontainers.image.title"] == "Windlass"
    assert re.fullmatch(r"\d+\.\d+\.\d+", config["Labels"]["org.opencontainers.image.version"])
    assert "/health" in str(found.get("Healthcheck") or found.get("HealthCheck"))
    named = {one.partition("=")[0] for one in config["Env"]}
    assert named <= {"PATH", "LANG", "HOME", "PYTHONDONTWRITEBYTECODE", *OF_WINDLASS, *OF_BASE}
    left = podman(
        "run",
        "--rm",
        *bounds(),
        "--entrypoint=sh",
        f"{IMAGE}:{target}",
        "-c",
        "ls -A /tmp /run/secrets 2>/dev/null || true",
    )
    assert not re.search(r"\.(conf|pem|whl|txt)$", left.stdout, re.MULTILINE)
    if target == "server":
        assert found["Size"] <= LARGEST_SERVER


def test_a_server_runs_as_any_user_without_landlock_on_a_read_only_file_system(tmp_path: Path) -> None:
    hard = ("--read-only", "--user=12345:0", "--shm-size=64m", "--cap-drop=ALL", without_landlock(tmp_path))
    with started("server", "serve", "--offline-model", options=(*hard, *of_machine())) as container:
        person = Outside(container, tmp_path)
        person.log_in()
        found = doctor(container)
        assert (faults(found, "fail"), faults(found, "warn")) == (set(), {"users", "files", "memory"}), found
        assert "seccomp" in found["files"][1]
        assert "has 64 MB for all runs together" in found["memory"][1] or "has 63 MB" in found["memory"][1]
        assert "(12345)" in found["users"][1]
        assert found["orphans"][1] == "process 1 (tini) reaps them"
        person.deploy(project(tmp_path, "slow", SLOW, "run", [PACKAGE]))
        assert f"/{PACKAGE}" in container.run("sh", "-c", f"find /var/lib/windlass/environments -name {PACKAGE}")
        for one in [person.start("slow", "seconds=0") for _ in range(4)]:
            person.wait_for(one, "SUCCESS")
        wait_for(lambda: not container.of_state("Z"), "orphans are reaped")


def test_a_drain_lets_runs_end_and_a_kill_loses_none(tmp_path: Path) -> None:
    with started("server", "serve", "--offline-model") as container:
        person = Outside(container, tmp_path)
        person.log_in()
        person.deploy(project(tmp_path, "slow", SLOW, "run", []))
        drained = person.start("slow", "seconds=4")
        person.wait_for(drained, "STARTED")
        podman("stop", "--time=60", container.name)
        assert container.state()["ExitCode"] == 0
        podman("start", container.name)
        person.wait_until_ready()
        assert person.state(drained) == "SUCCESS"
        killed = person.start("slow", "seconds=6")
        person.wait_for(killed, "STARTED")
        podman("kill", "--signal=KILL", container.name)
        wait_for(lambda: not container.state()["Running"], "the end of the container")
        podman("start", container.name)
        person.wait_until_ready()
        person.wait_for(killed, "SUCCESS")


def test_root_in_a_container_runs_crews_as_another_user(tmp_path: Path) -> None:
    needed = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID")
    options = ("--user=0:0", "--cap-drop=ALL", *(f"--cap-add={name}" for name in needed))
    with started("server", "serve", "--offline-model", options=options) as container:
        person = Outside(container, tmp_path)
        person.log_in()
        assert faults(doctor(container), "fail") == set()
        person.deploy(project(tmp_path, "who", "import os\n\ndef run() -> int:\n    return os.getuid()\n", "run", []))
        kickoff = person.start("who")
        person.wait_for(kickoff, "SUCCESS")
        assert json.loads(person.windlass("status", kickoff, "--json").out)["result"]["json"] == 59999


@pytest.mark.parametrize(("target", "packages"), [("full", []), ("server", [CREWAI])])
def test_a_crew_runs_in_the_full_image_and_in_an_environment_made_in_the_container(
    tmp_path: Path, target: str, packages: list[str]
) -> None:
    with started(target, "serve", "--offline-model", options=tuple(of_machine())) as container:
        person = Outside(container, tmp_path)
        person.log_in()
        person.deploy(project(tmp_path, "writer", CREW, "crew", packages))
        kickoff = person.start("writer", "topic=tides")
        person.wait_for(kickoff, "SUCCESS")
        assert "offline model" in person.windlass("status", kickoff).out
