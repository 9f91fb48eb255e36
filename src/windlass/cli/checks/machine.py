"""Defines a finding of `windlass doctor`, and checks what the machine offers."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from windlass.errors import WindlassError
from windlass.projects.kinds import function_project
from windlass.runner import Runner
from windlass.runner.cgroups import NotDelegated, delegated
from windlass_child.process.hardening import CONFINES, SCOPES_SIGNALS, landlock_version

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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


def isolation() -> Finding:
    """Reports how far the kernel keeps processes of one user, which crews share, apart from each other."""
    version = landlock_version()
    if version >= SCOPES_SIGNALS:
        return Finding(f"crews can't read each other's memory or signal each other (Landlock {version})")
    if version >= CONFINES:
        return Finding(
            f"crews can't read each other's memory, but can signal each other: Landlock {version} has no scopes for "
            "signals, which Linux 6.12 and newer have.",
            Level.WARN,
        )
    return Finding(
        "the kernel has no usable Landlock: crews can signal each other, and read the memory of a process that another "
        "crew has just started. Use Linux 5.19 or newer with Landlock switched on.",
        Level.WARN,
    )


async def _inspect(project: Project, scratch: Path, machine: Mapping[str, str]) -> None:
    runner = Runner(scratch, machine)
    await runner.start()
    try:
        await runner.inspect(Path(sys.executable), None, project, {})
    finally:
        await runner.stop()
