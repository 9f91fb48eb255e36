"""Starts containers of the images that `make image` built, and ends them."""

from __future__ import annotations

import json
import os
import resource
import shlex
import subprocess
import time
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

ENVIRONMENT = dict(os.environ)  # noqa: TID251 - what `make test-image` gives, and how this machine reaches packages
IMAGE = ENVIRONMENT.get("WINDLASS_TESTS_IMAGE", "")
PODMAN = shlex.split(ENVIRONMENT.get("WINDLASS_TESTS_PODMAN", "podman"))
SECCOMP = Path("/usr/share/containers/seccomp.json")
LANDLOCK = {"landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"}
DEADLINE = 120.0

needs_images = pytest.mark.skipif(not IMAGE, reason="`make test-image` builds the images and runs these tests")


def podman(
    *arguments: str, check: bool = True, deadline: float = DEADLINE, environment: Mapping[str, str] = ENVIRONMENT
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*PODMAN, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=deadline,
        stdin=subprocess.DEVNULL,
        env=environment,
    )
    assert done.returncode == 0 or not check, (arguments, done.stdout, done.stderr)
    return done


def bounds() -> list[str]:
    """Returns the options for limits that this process may set. Podman's own are higher than some machines permit."""
    files, processes = (resource.getrlimit(one)[1] for one in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC))
    most = {"nofile": (files, 20_000), "nproc": (processes, 20_000)}
    return [
        f"--ulimit={name}={bound}:{bound}"
        for name, (hard, wanted) in most.items()
        for bound in [wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)]
    ]


def of_machine() -> list[str]:
    """Returns the options with which uv finds packages in a container as on this machine: certificates and proxies."""
    options = []
    if (certificates := ENVIRONMENT.get("SSL_CERT_FILE")) and Path(certificates).exists():
        options += [f"--volume={certificates}:/run/ca.pem:ro", "--env=SSL_CERT_FILE=/run/ca.pem"]
    return [*options, *(f"--env={name}" for name in ENVIRONMENT if name.startswith("UV_") or name.endswith("_PROXY"))]


def without_landlock(folder: Path) -> str:
    """Returns the option of a seccomp profile in which Landlock's calls fail, as in older container runtimes."""
    profile = json.loads(SECCOMP.read_text("utf-8"))
    for rule in profile["syscalls"]:
        rule["names"] = [name for name in rule["names"] if name not in LANDLOCK]
    profile["syscalls"] = [rule for rule in profile["syscalls"] if rule["names"]]
    refused = {"names": sorted(LANDLOCK), "action": "SCMP_ACT_ERRNO", "errnoRet": 1}
    profile["syscalls"].append({**refused, "args": [], "comment": "", "includes": {}, "excludes": {}})
    file = folder / "no_landlock.json"
    file.write_text(json.dumps(profile))
    return f"--security-opt=seccomp={file}"


def wait_for(condition: Callable[[], Any], what: str, seconds: float = DEADLINE) -> Any:
    until = time.monotonic() + seconds
    while True:
        if found := condition():
            return found
        assert time.monotonic() < until, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.3)


class Container:
    def __init__(self, name: str, environment: Mapping[str, str] = ENVIRONMENT) -> None:
        self.name = name
        self._environment = environment

    def podman(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return podman(*arguments, check=check, environment=self._environment)

    def run(self, *command: str, check: bool = True) -> str:
        """Runs a command in the container. Returns its output."""
        return self.podman("exec", self.name, *command, check=check).stdout

    def port(self) -> int:
        return int(self.podman("port", self.name, "8000/tcp").stdout.rsplit(":", 1)[1])

    def logs(self) -> str:
        done = self.podman("logs", self.name)
        return done.stdout + done.stderr

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.podman("inspect", self.name).stdout)[0]["State"]
        return found

    def processes(self) -> list[tuple[int, str, str]]:
        """Returns the id, the state and the name of each process in the container."""
        listed = self.run("sh", "-c", "cat /proc/[0-9]*/stat 2>/dev/null || true")
        found = []
        for line in listed.splitlines():
            number, _, rest = line.partition(" (")
            name, _, fields = rest.rpartition(") ")
            found.append((int(number), fields.split()[0], name))
        return found

    def of_state(self, state: str) -> list[tuple[int, str, str]]:
        return [one for one in self.processes() if one[1] == state]


@contextmanager
def started(target: str, *command: str, options: tuple[str, ...] = ()) -> Iterator[Container]:
    """Starts a container of the image, and removes it with its volumes at the end."""
    name = f"windlass-test-{uuid.uuid4().hex[:8]}"
    given = [f"--name={name}", "--publish=127.0.0.1::8000", *bounds(), *options]
    try:
        podman("run", "--detach", *given, f"{IMAGE}:{target}", *command)
        yield Container(name)
    finally:
        remove = ("rm", "--force", "--ignore", "--volumes", "--time=1", name)
        wait_for(lambda: podman(*remove, check=False).returncode == 0, f"the removal of {name}", 30)
