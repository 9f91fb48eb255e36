"""`windlass dev` serves the project as its files are; what runs goes on with the code that it has imported."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cli.the_command import Command, ForkedCommand
from projects_for_tests.making import written

if TYPE_CHECKING:
    from pathlib import Path

    from cli.the_command import Started

PROJECT = """
[project]
name = "Steeping"
[tool.windlass]
entrypoint = "steep:steep"
preload = "{preload}"
"""
OLD = "def steep(leaf: str) -> str:\n    return f'{leaf} tea'\n"
NEW = "def steep(leaf: str, sugar: int = 2) -> str:\n    return f'{leaf} tea, {sugar} lumps'\n"
SLOW = """
import time
from pathlib import Path
def steep(leaf: str) -> str:
    while not Path(leaf).exists():
        time.sleep(0.02)
    return "the old way"
"""
SERVED = "is served from now on"


@pytest.fixture
def project(open_folder: Path) -> Path:
    """Its code is imported in the zygote: a new zygote must have the new one."""
    return written(open_folder / "project", {"pyproject.toml": PROJECT.format(preload="project"), "steep.py": OLD})


def begun(windlass: Command, server: Started) -> str:
    url = server.wait_for("Base URL").split()[-1]
    windlass.environment["WINDLASS_TOKEN"] = windlass("tokens", "show", "--kind", "organization").out.strip()
    return url


def stop(server: Started) -> None:
    server.interrupt()
    assert server.end() == 0


def result(windlass: Command, url: str) -> str:
    return windlass("kickoff", url, "-i", "leaf=green", "--watch").out


def test_a_changed_project_is_loaded_again(open_folder: Path, project: Path) -> None:
    windlass = ForkedCommand(open_folder)
    with windlass.started("dev", str(project), "--port", "0") as server:
        url = begun(windlass, server)
        assert result(windlass, url) == "green tea\n"
        (project / "steep.py").write_text(NEW)
        assert server.wait_for(SERVED).startswith("version 2 ")
        assert result(windlass, url) == "green tea, 2 lumps\n"
        assert "sugar" in windlass("inputs", url).out
        stop(server)


def test_what_runs_goes_on_with_the_code_that_it_has_imported(open_folder: Path, project: Path) -> None:
    windlass, brewed = ForkedCommand(open_folder), open_folder / "brewed"
    (project / "steep.py").write_text(SLOW)
    with windlass.started("dev", str(project), "--port", "0") as server:
        url = begun(windlass, server)
        with windlass.started("kickoff", url, "-i", f"leaf={brewed}", "--watch") as running:
            running.wait_for("running")
            (project / "steep.py").write_text(OLD)
            server.wait_for(SERVED)
            assert result(windlass, url) == "green tea\n"
            brewed.touch()
            assert running.end() == 0
        assert running.out == "the old way\n"
        stop(server)


def test_a_project_that_was_broken_is_told_and_served_again_when_it_is_mended(open_folder: Path, project: Path) -> None:
    windlass = ForkedCommand(open_folder)
    with windlass.started("dev", str(project), "--port", "0") as server:
        url = begun(windlass, server)
        (project / "steep.py").write_text("def steep(leaf\n")
        told = server.wait_for("can't be loaded any more")
        assert "steep.py" in told
        assert "until it can, version 1, the last one that could be loaded, is served" in told
        assert result(windlass, url) == "green tea\n", "as before"
        (project / "pyproject.toml").write_text("[project\n")
        told = server.wait_for("can't be loaded any more")
        assert "pyproject.toml can't be read" in told
        assert "version 1, the last one that could be loaded, is served" in told
        assert result(windlass, url) == "green tea\n", "as before"
        log = server.err[server.err.index(" project.broken ") :]
        assert "steep.py" in log
        assert "importlib" not in log, "only lines of the project"
        assert "windlass_child" not in log
        (project / "pyproject.toml").write_text(PROJECT.format(preload="framework"))
        (project / "steep.py").write_text(NEW)
        assert server.wait_for(SERVED).startswith("the project can be loaded again: version 2 ")
        assert result(windlass, url) == "green tea, 2 lumps\n"
        (project / "pyproject.toml").write_text(PROJECT.format(preload="framework").replace("Steeping", "Brewing"))
        told = server.wait_for("the project is called brewing now: start again")
        assert "Until then kickoffs begin with the options of version 2 of steeping, and changes have no effect" in told
        stop(server)
