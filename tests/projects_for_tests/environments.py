"""The environments with other releases of crewai, which the Makefile builds below .make/crewai."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".make" / "crewai"
CHOSEN = os.environ.get("CREWAI_ENVIRONMENTS", "")  # noqa: TID251 - as the Makefile sets it for these tests
"""Names of environments, separated by spaces. A name is that of a requirements file and a version of Python."""


@dataclass(frozen=True)
class Environment:
    name: str

    @property
    def python(self) -> Path:
        return FOLDER / self.name / "bin" / "python"

    @property
    def crewai(self) -> tuple[int, ...]:
        """The release as numbers. The newest one is greater than all others."""
        return tuple(int(number) for number in re.findall(r"\d+", self.name.partition("-")[0])) or (sys.maxsize,)


def chosen() -> list[Environment]:
    """Returns the environments that `make test` or `make test-versions` has built for this run of the tests."""
    return [Environment(name) for name in CHOSEN.split()]


def interpreter(python: str) -> Path | None:
    """Returns an interpreter of this version, on the path or one of pyenv's, that can be started.

    pyenv's folder is found by the path, too: tests may run with another home.
    """
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep)]  # noqa: TID251 - as above
    roots = [Path.home() / ".pyenv", *(folder.parent for folder in folders if folder.name == "shims")]
    pyenv = sorted(
        (version for root in roots for version in (root / "versions").glob(f"{python}.*")),
        key=lambda path: number(path.name),
    )
    found = [*(folder / "bin" / "python" for folder in pyenv), *(folder / f"python{python}" for folder in folders)]
    return next((path for path in found if path.exists() and starts(path)), None)


def number(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]


def starts(python: Path) -> bool:
    return subprocess.run([python, "-c", ""], check=False, capture_output=True).returncode == 0
