"""A project that is a package is one in its runs: metadata, commands, entry points and `python -m`, without a build."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from projects_for_tests.making import Bench, written
from windlass.kickoffs.states import State

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("functions")]

PYPROJECT = """
[project]
name = "Harbour.Pilot"
version = "3.1.4"

[project.scripts]
pilot-help = "harbour.helper:main"

[project.entry-points."harbour.plugins"]
tides = "harbour.helper:main"

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[tool.windlass]
entrypoint = "harbour.main:run"
"""
HELPER = """
import os, sys
from importlib.metadata import version


def main():
    import pydantic  # a package of the shared environment
    print(version("harbour-pilot"), " ".join(sys.argv[1:]))


if __name__ == "__main__":
    main()
"""
MAIN = """
import os
import subprocess
import sys
from importlib.metadata import entry_points, version

HERE = version("harbour-pilot")


def said(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def run():
    (point,) = entry_points(group="harbour.plugins")
    return {
        "here": HERE,
        "point": point.load().__name__,
        "by path": said("python", "-m", "harbour.helper", "a"),
        "by executable": said(sys.executable, "-m", "harbour.helper", "b c"),
        "script": said("pilot-help", "d"),
        "environment": os.environ["VIRTUAL_ENV"] == said("python", "-c", "import sys; print(sys.prefix)"),
    }
"""
FOUND = {
    "here": "3.1.4",
    "point": "main",
    "by path": "3.1.4 a",
    "by executable": "3.1.4 b c",
    "script": "3.1.4 d",
    "environment": True,
}


def files(pyproject: str = PYPROJECT) -> dict[str, str]:
    return {
        "pyproject.toml": pyproject,
        "src/harbour/__init__.py": "",
        "src/harbour/main.py": MAIN,
        "src/harbour/helper.py": HELPER,
    }


@pytest.mark.parametrize("place", ["src", "", "poetry"])
async def test_a_project_is_a_package_in_its_runs(bench: Bench, tmp_path: Path, place: str) -> None:
    found = files()
    if place == "poetry":
        poetry = PYPROJECT.replace(
            '[project.entry-points."harbour.plugins"]', '[tool.poetry.plugins."harbour.plugins"]'
        )
        found = files(poetry.replace("[project", "[tool.poetry"))
    elif not place:
        found = {name.removeprefix("src/"): text for name, text in found.items()}
    project = written(tmp_path / "project with a space", found)
    outcome = await bench.run(project)
    assert outcome.state is State.SUCCESS, outcome.error
    assert outcome.json == FOUND


async def test_a_version_that_only_a_build_finds_is_missing_with_an_error_that_names_it(
    bench: Bench, tmp_path: Path
) -> None:
    dynamic = PYPROJECT.replace('version = "3.1.4"', 'dynamic = ["version"]')
    outcome = await bench.run(written(tmp_path / "project", files(dynamic)))
    assert "the project itself, harbour-pilot, is not installed" in str(outcome.error)


async def test_a_project_that_is_no_package_has_the_environment_of_its_interpreter(
    bench: Bench, tmp_path: Path
) -> None:
    code = "import os, sys\n\ndef run():\n    return [os.environ.get('VIRTUAL_ENV', sys.prefix), sys.prefix]\n"
    pyproject = PYPROJECT.partition("[build-system]")[0] + '[tool.windlass]\nentrypoint = "work:run"\n'
    outcome = await bench.run(written(tmp_path / "project", {"pyproject.toml": pyproject, "work.py": code}))
    assert outcome.json[0] == outcome.json[1]


HOSTILE = """
[build-system]
x = 1
[project]
name = "x"
version = "1"
[project.scripts]
"../y" = "a:b"
"python" = "a:b"
z = "a:b\\nimport os"
ok = 3
[project.entry-points]
"a]" = {b = "c:d"}
"""
LISTED = """
import os, shutil

def run():
    return sorted(os.listdir(os.path.dirname(shutil.which("python"))))
"""


@pytest.mark.parametrize(
    "pyproject",
    [
        "[build-system]\nx = 1\n[project]\nname = 3\nversion = []\nscripts = 4\n",
        '[build-system]\nx = 1\n[project]\nname = "../x"\n',
        HOSTILE,
    ],
)
async def test_nothing_that_a_project_declares_leaves_the_folder_or_fails_a_run(
    bench: Bench, tmp_path: Path, pyproject: str
) -> None:
    project = {"pyproject.toml": pyproject + '\n[tool.windlass]\nentrypoint = "work:run"\n', "work.py": LISTED}
    outcome = await bench.run(written(tmp_path / "project", project))
    assert outcome.state is State.SUCCESS, outcome.error
    assert not {"y", "z", "ok"} & set(outcome.json)


async def test_a_process_that_is_reused_has_the_package_of_each_run(bench: Bench, tmp_path: Path) -> None:
    main = MAIN.replace("    return {", "    return {'process': os.getpid(), ")
    project = written(tmp_path / "project", files() | {"src/harbour/main.py": main})
    found = [(await bench.run(project, reuse=20, version=str(project))).json for _ in range(3)]
    assert len({one.pop("process") for one in found}) == 1
    assert found == [FOUND] * 3
