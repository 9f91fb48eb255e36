"""Defines a finding of `windlass doctor`, and checks what the machine offers."""

from __future__ import annotations

import asyncio
import os
import platform
import re
import shutil
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from windlass.errors import WindlassError
from windlass.projects.kinds import function_project
from windlass.runner import Runner, cgroups
from windlass.runner.cgroups import NotDelegated, delegated
from windlass.runner.crew_account import crew_account
from windlass.wiring.crews import boundary_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from windlass.config import Settings
    from windlass.kickoffs.boundary_parts import Part
    from windlass_child.protocol.messages import Project


class Level(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    text: str
    level: Level = Level.OK

    def line(self, subject: str) -> str:
        return " ".join(f"{self.level:<5} {subject + ':':<13} {self.text}".splitlines())


def examine(check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except WindlassError as error:
        return Finding(str(error), Level.FAIL)


TOO_NEW = (3, 14)
MEGABYTE = 1024 * 1024
NEEDED = 200 * MEGABYTE
"""Bytes. An empty database takes 40 MB, and PostgreSQL's write-ahead log grows by 16 MB at a time."""
COMFORTABLE = 1024 * MEGABYTE
COMFORTABLE_SHARED = 128 * MEGABYTE
"""Containers have 64 MB by default."""
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where POSIX shared memory is
STATUS = Path("/proc/self/status")
CAPABILITIES = {"CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "KILL": 5, "SETGID": 6, "SETUID": 7}
"""Those that a server uses that is root and runs crews as another user, with their numbers."""


def python() -> Finding:
    text = f"{platform.python_version()} at {sys.executable}"
    if sys.version_info >= TOO_NEW:
        return Finding(
            f"{text}; Windlass is tested with 3.11 to 3.13: create its environment with one of them.", Level.WARN
        )
    return Finding(text)


def home(folder: Path) -> Finding:
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    if not (existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)):
        raise WindlassError(
            f"{folder} can't be used: this user can't write to {existing}, or it is not a folder.",
            "Set WINDLASS_HOME to another folder, or give this user the permission.",
        )
    free = shutil.disk_usage(existing).free
    text = f"{folder}, with {free // MEGABYTE:,} MB free"
    if free < NEEDED:
        raise WindlassError(
            f"{text}: too little for a database.", "Free some space, or set WINDLASS_HOME to another disk."
        )
    if free < COMFORTABLE:
        return Finding(f"{text}, which is little: free some space soon.", Level.WARN)
    return Finding(text)


def fork(machine: Mapping[str, str]) -> Finding:
    """Loads a function as every crew is loaded: in a process that is forked from a zygote."""
    with TemporaryDirectory(prefix="windlass-doctor-") as folder:
        root = Path(folder) / "project"
        root.mkdir()
        (root / "probe.py").write_text("def probe() -> str:\n    return 'well'\n")
        asyncio.run(_inspect(function_project(str(root), "probe:probe"), Path(folder) / "runs", machine))
    return Finding("a process is forked, loads a project and answers")


def limits() -> Finding:
    """Reports the limits that a server has if it is started in the same place as this command."""
    try:
        folder = delegated()
    except NotDelegated as error:
        return Finding(
            f"the server reads the memory of runs four times a second, because runs have no cgroups: {error}"
        )
    return Finding(f"each run has a cgroup of its own below {folder}")


def memory(
    of_a_run: int, shared: Path = SHARED_MEMORY, bounds: tuple[Path, ...] = cgroups.MEMORY_OF_CONTAINER
) -> Finding:
    """Reports the bounds of a container that runs meet before their own. `of_a_run` is WINDLASS_MEMORY_LIMIT."""
    faults = []
    if (bound := cgroups.memory_of_container(bounds)) is not None and bound < of_a_run:
        faults.append(
            f"the container may use {bound // MEGABYTE:,} MB, less than one run may (WINDLASS_MEMORY_LIMIT, "
            f"{of_a_run // MEGABYTE:,} MB): the kernel ends runs before their limit. Give the container more memory, "
            "or set a lower limit."
        )
    try:
        size = shutil.disk_usage(shared).total
    except OSError as error:
        return Finding(" ".join([*faults, f"{shared} can't be used: {error.strerror}."]), Level.WARN)
    if size < COMFORTABLE_SHARED:
        faults.append(
            f"{shared} has {size // MEGABYTE:,} MB for all runs together. Programs that share memory, such as browsers "
            "and numeric libraries, fail or are killed (SIGBUS) when it is full. Start the container with "
            "--shm-size=1g, or in Kubernetes with an emptyDir of the medium Memory there."
        )
    if faults:
        return Finding(" ".join(faults), Level.WARN)
    bounded = "no bound of a container" if bound is None else f"{bound // MEGABYTE:,} MB for the container"
    return Finding(f"{bounded}, {size // MEGABYTE:,} MB of shared memory")


def boundary(part: Part, settings: Settings) -> Finding:
    """Reports a part of what separates runs here. Raises SettingsError when there is no user for crews."""
    crews = crew_account(settings.crew_user)
    if part == "users" and crews is not None and (fault := _not_permitted()):
        raise WindlassError(
            f"root can't run crews as the user {crews.name} here: {fault}.",
            "Give the container the capabilities SETUID, SETGID, CHOWN, DAC_OVERRIDE, FOWNER and KILL, or start it "
            "as another user than root.",
        )
    parts, *_ = boundary_of(crews, settings.crew_users)
    (found,) = (one for one in parts if one.part == part)
    return Finding(found.text, Level.OK if found.holds == "yes" else Level.WARN)


def _not_permitted() -> str:
    """Returns the capabilities that root needs to run crews as another user, and does not have here."""
    try:
        held = int(re.search(r"^CapEff:\s*(\w+)", STATUS.read_text(), re.MULTILINE)[1], 16)  # type: ignore[index]
    except (OSError, TypeError, ValueError):
        return ""
    missing = [name for name, number in CAPABILITIES.items() if not held >> number & 1]
    return f"it has no capability {' and no '.join(missing)}" if missing else ""


def orphans(first: Path = Path("/proc/1")) -> Finding:
    """Reports whether process 1 of this machine or container reaps processes whose parent has ended."""
    try:
        words = (first / "cmdline").read_bytes().decode(errors="replace").split("\0")
        name = (first / "comm").read_text().strip()
    except OSError:
        return Finding("process 1 is not visible here")
    if any(Path(word).name == "windlass" for word in words[:2]):
        return Finding(
            "process 1 of this container is Windlass, which reaps no orphans of others: ended processes can fill the "
            "process table. Start it below an init, as the image does: tini -- windlass, or --init.",
            Level.WARN,
        )
    return Finding(f"process 1 ({name}) reaps them")


async def _inspect(project: Project, scratch: Path, machine: Mapping[str, str]) -> None:
    runner = Runner(scratch, machine)
    await runner.start()
    try:
        await runner.inspect(Path(sys.executable), None, project, {})
    finally:
        await runner.stop()
