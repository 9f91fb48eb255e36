from __future__ import annotations

import asyncio
import os
import platform
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from windlass.cli.checks.finding import Finding, Level
from windlass.errors import WindlassError
from windlass.runner import Runner
from windlass_crewside.messages import Project

if TYPE_CHECKING:
    from collections.abc import Mapping

TOO_NEW = (3, 14)
MEGABYTE = 1024 * 1024
NEEDED = 200 * MEGABYTE
"""An empty database takes 40 MB, and PostgreSQL's log of changes grows by 16 MB at a time."""
COMFORTABLE = 1024 * MEGABYTE


def python() -> Finding:
    text = f"{platform.python_version()} at {sys.executable}"
    if sys.version_info >= TOO_NEW:
        return Finding(
            f"{text}; Windlass is tried with 3.11 to 3.13: make its environment with one of them.", Level.WARN
        )
    return Finding(text)


def home(folder: Path) -> Finding:
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    if not (existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)):
        raise WindlassError(
            f"{folder} can't be used: {existing} is not a folder that this user can write to.",
            "Choose another with WINDLASS_HOME, or give this user the right to.",
        )
    free = shutil.disk_usage(existing).free
    text = f"{folder}, with {free // MEGABYTE:,} MB free"
    if free < NEEDED:
        raise WindlassError(f"{text}: too little for a database.", "Free some space, or set WINDLASS_HOME.")
    if free < COMFORTABLE:
        return Finding(f"{text}, which is little: free some space soon.", Level.WARN)
    return Finding(text)


def fork(machine: Mapping[str, str]) -> Finding:
    """A function is loaded as every crew is: by a process that is forked from a warm one."""
    with TemporaryDirectory(prefix="windlass-doctor-") as folder:
        root = Path(folder) / "project"
        root.mkdir()
        (root / "probe.py").write_text("def probe() -> str:\n    return 'well'\n")
        asyncio.run(_inspect(Project("function", str(root), "probe:probe"), Path(folder) / "runs", machine))
    return Finding("a process is forked, loads a project and answers")


async def _inspect(project: Project, scratch: Path, machine: Mapping[str, str]) -> None:
    runner = Runner(scratch, machine)
    await runner.start()
    try:
        await runner.inspect(Path(sys.executable), None, project, {})
    finally:
        await runner.stop()
