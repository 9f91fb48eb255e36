from __future__ import annotations

import sys
from pathlib import Path

from windlass.errors import ProjectError


def interpreter_of(project: Path) -> Path:
    """The project's own, from its .venv, else the server's. Raises ProjectError for a .venv that is broken."""
    environment = project.resolve() / ".venv"
    python = environment / "bin" / "python"
    if python.exists():
        return python
    if environment.exists():
        raise ProjectError(
            f"the project's environment {environment} has no Python that can be started.",
            f"Make it again (uv sync, say, in {project}), or remove it to run on Windlass's own.",
        )
    return Path(sys.executable)
