"""Copies of projects whose processes run several kickoffs, one after the other."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

TABLE = "[tool.windlass]\n"


@contextmanager
def with_reuse(project: Path, reuse: int) -> Iterator[Path]:
    """Yields a copy of the project with `reuse`, which the users of crews can read."""
    with tempfile.TemporaryDirectory(prefix="windlass-bench-") as folder:
        Path(folder).chmod(0o755)
        copy = Path(folder) / project.name
        shutil.copytree(project, copy, ignore=shutil.ignore_patterns("__pycache__"))
        set_reuse(copy, reuse)
        yield copy


def set_reuse(project: Path, reuse: int) -> None:
    """Writes the option into the project's pyproject.toml. 1 is the default, with which nothing is written."""
    if reuse == 1:
        return
    file = project / "pyproject.toml"
    text, line = file.read_text("utf-8"), f"{TABLE}reuse = {reuse}\n"
    file.write_text(text.replace(TABLE, line, 1) if TABLE in text else f"{text}\n{line}", "utf-8")
