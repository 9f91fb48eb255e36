"""`windlass dev` says what its project lacks, all of it at once, before the first kickoff."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from cli.the_command import ForkedCommand
from projects_for_tests.making import written

if TYPE_CHECKING:
    from pathlib import Path

PROJECT = """
[project]
name = "Steeping"
dependencies = ["kettle-that-nobody-made>=2"]
[tool.windlass]
entrypoint = "steep:steep"
"""
STEEP = "def steep(leaf: str) -> str:\n    return f'{leaf} tea'\n"
KEYS = "import os\nKEYS = [os.environ['TEA_KEY'], os.environ['MILK_KEY']]\n"


def test_a_project_that_loads_is_told_what_it_lacks_before_it_is_served(open_folder: Path) -> None:
    project = written(open_folder / "project", {"pyproject.toml": PROJECT, "steep.py": STEEP})
    with ForkedCommand(open_folder).started("dev", str(project), "--port", "0") as server:
        server.wait_for("Base URL")
        said = server.out + server.err
        assert "pyproject.toml:4: warning: " in said
        assert "kettle-that-nobody-made" in said
        server.interrupt()
        assert server.end() == 0


def test_a_project_is_imported_once_for_a_version(open_folder: Path) -> None:
    counted = open_folder / "counted"
    counted.mkdir()
    counted.chmod(0o777)
    code = f"import os, tempfile\ntempfile.mkstemp(dir={str(counted)!r})\n"
    project = written(open_folder / "project", {"pyproject.toml": PROJECT, "steep.py": code + STEEP})
    opened = {"WINDLASS_CREW_FILES": f"{counted}:rw"}
    with ForkedCommand(open_folder).started("dev", str(project), "--port", "0", **opened) as server:
        server.wait_for("Base URL")
        assert len(list(counted.iterdir())) == 1
        (project / "steep.py").write_text(f"{code}\n{STEEP}")
        server.wait_for("version 2 is served from now on")
        assert len(list(counted.iterdir())) == 2
        assert "kettle-that-nobody-made" in server.out + server.err, "other findings are reported all the same"
        server.interrupt()
        assert server.end() == 0


def test_a_project_that_does_not_load_is_told_all_that_it_lacks(open_folder: Path) -> None:
    project = written(open_folder / "project", {"pyproject.toml": PROJECT, "steep.py": KEYS + STEEP})
    ended = ForkedCommand(open_folder)("dev", str(project), "--port", "0")
    assert ended.code == 1
    for name in ("variable TEA_KEY", "variable MILK_KEY", "'kettle-that-nobody-made' is not installed"):
        assert name in ended.out
    assert "2 errors, 1 warning\n" in ended.out
    assert ended.err.count("\nerror: ") == 1


def test_all_that_is_wrong_with_its_options_is_told(open_folder: Path) -> None:
    project = written(
        open_folder / "project",
        {"pyproject.toml": PROJECT + "concurency = 2\nweight = -1\n", "steep.py": STEEP},
    )
    ended = ForkedCommand(open_folder)("dev", str(project), "--port", "0")
    assert ended.code == 1
    assert "pyproject.toml:7: error: " in ended.out
    assert "pyproject.toml:8: error: " in ended.out


def test_a_change_that_breaks_more_than_one_thing_is_told_as_a_whole(open_folder: Path) -> None:
    project = written(open_folder / "project", {"pyproject.toml": PROJECT, "steep.py": STEEP})
    with ForkedCommand(open_folder).started("dev", str(project), "--port", "0") as server:
        server.wait_for("Base URL")
        (project / "steep.py").write_text(KEYS + STEEP)
        server.wait_for("variable MILK_KEY")
        server.wait_for("variable TEA_KEY")
        server.wait_for("until it can, version 1, the last one that could be loaded, is served")
        server.interrupt()
        assert server.end() == 0


def test_dev_prints_its_interpreter_and_why_and_refuses_one_that_is_too_old_before_it_starts(open_folder: Path) -> None:
    project = written(open_folder / "project", {"pyproject.toml": PROJECT, "steep.py": STEEP})
    command = ForkedCommand(open_folder)
    with command.started("dev", str(project), "--port", "0", "--python", sys.executable) as server:
        server.wait_for(f"crews run in {sys.executable} (Python 3.{sys.version_info[1]}), named by --python")
        server.wait_for("Base URL")
        server.interrupt()
        assert server.end() == 0
    written(project, {".venv/pyvenv.cfg": "version = 3.9.1\n", ".venv/bin/python": ""})
    ended = ForkedCommand(open_folder / "other")("dev", str(project), "--port", "0")
    assert ended.code == 1
    assert "the project's .venv, is Python 3.9, and crews run on Python 3.10 to 3.13." in ended.err
    assert not (open_folder / "other" / "windlass").exists(), "nothing was started"
