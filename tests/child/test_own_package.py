"""A project that is a package is one in its runs: metadata, commands, entry points and `python -m`, without a build."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from projects_for_tests.making import Bench, written
from windlass.kickoffs.states import State
from windlass_child.process.declared_package import parsed

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


DYNAMIC = PYPROJECT.replace('version = "3.1.4"', 'dynamic = ["version"]')
WITHOUT_PLACES = DYNAMIC.replace("[build-system]", '[build-system]\nbuild-backend = "BACKEND"').replace(
    'build-backend = "hatchling.build"\n', ""
)


def dynamic(backend: str, settings: str) -> str:
    return WITHOUT_PLACES.replace("BACKEND", backend) + settings


SETUPTOOLS, HATCH, FLIT = "setuptools.build_meta", "hatchling.build", "flit_core.buildapi"


@pytest.mark.parametrize(
    ("pyproject", "more", "version"),
    [
        (dynamic(SETUPTOOLS, '[tool.setuptools.dynamic]\nversion = {attr = "harbour.about.__version__"}'), {}, "3.1.4"),
        (dynamic(SETUPTOOLS, '[tool.setuptools.dynamic]\nversion = {attr = "harbour.number"}'), {}, "3.1.4"),
        (dynamic(SETUPTOOLS, '[tool.setuptools.dynamic]\nversion = {attr = "harbour.parts"}'), {}, "3.1.4"),
        (dynamic(SETUPTOOLS, '[tool.setuptools.dynamic]\nversion = {file = ["VERSION"]}'), {"VERSION": "2.0\n"}, "2.0"),
        (dynamic(HATCH, '[tool.hatch.version]\npath = "src/harbour/about.py"'), {}, "3.1.4"),
        (
            dynamic(HATCH, "[tool.hatch.version]\npath = 'v.txt'\npattern = 'is (?P<version>\\S+)'"),
            {"v.txt": "it is 5.6"},
            "0+unknown",  # a pattern of a project is not followed: it may take any time
        ),
        (dynamic(HATCH, "[tool.hatch.version]\npath = 'v.txt'\npattern = '('"), {"v.txt": "VERSION = 'v7'"}, "7"),
        (dynamic("pdm.backend", '[tool.pdm.version]\nsource = "file"\npath = "src/harbour/about.py"'), {}, "3.1.4"),
        (dynamic(FLIT, '[tool.flit.module]\nname = "harbour"'), {}, "3.1.4"),
        (dynamic(SETUPTOOLS, '[tool.setuptools_scm]\nversion_file = "_v.py"'), {"_v.py": "__version__ = v = '4'"}, "4"),
        (dynamic(SETUPTOOLS, '[tool.setuptools_scm]\nfallback_version = "0.9"'), {}, "0.9"),
        (dynamic(HATCH, '[tool.hatch.version]\nsource = "vcs"'), {}, "0+unknown"),
        (dynamic(HATCH, '[tool.hatch.version]\npath = "../../../etc/os-release"'), {}, "0+unknown"),
        (dynamic("backend", ""), {"backend.py": "raise SystemExit"}, "0+unknown"),
    ],
)
async def test_a_dynamic_version_is_read_where_it_is_text_and_has_a_stand_in_else(
    bench: Bench, tmp_path: Path, pyproject: str, more: dict[str, str], version: str
) -> None:
    own = {
        "src/harbour/__init__.py": "from .about import __version__, __version__ as number\nparts = (3, 1, 4)\n",
        "src/harbour/about.py": '__version__: str = "3.1.4"\n',
    }
    if version in {"0.9", "0+unknown"}:
        own = {}
    outcome = await bench.run(written(tmp_path / "project", files(pyproject) | own | more))
    assert outcome.state is State.SUCCESS, outcome.error
    assert outcome.json == {name: str(value).replace("3.1.4", version) for name, value in FOUND.items()} | {
        "environment": True
    }


MADE_BY_HAND = PYPROJECT.partition("[build-system]")[2].partition("[tool.windlass]")[2]
WINDLASS = f"[tool.windlass]{MADE_BY_HAND}"
SETUP_PY = """
from setuptools import find_packages, setup
raise SystemExit("no code of the project runs for its metadata")
VERSION = "3.1.4"
setup(
    name="Harbour.Pilot",
    version=VERSION,
    packages=find_packages(where="lib"),
    package_dir={"": "lib"},
    entry_points={
        "console_scripts": ["pilot-help=harbour.helper:main [extra]"],
        "harbour.plugins": "tides = harbour.helper:main",
    },
)
"""
SETUP_CFG = """
[metadata]
name = Harbour.Pilot
version = attr: harbour.about.__version__
[options]
package_dir =
    = lib
packages = find:
[options.packages.find]
where = lib
[options.entry_points]
console_scripts =
    pilot-help = harbour.helper:main
harbour.plugins =
    tides = harbour.helper:main
"""
PLACES = [
    ({"pyproject.toml": WINDLASS, "setup.py": SETUP_PY}, "lib"),
    ({"pyproject.toml": WINDLASS, "setup.cfg": SETUP_CFG}, "lib"),
    (
        {"pyproject.toml": f"{WINDLASS}[build-system]\nrequires = []\n", "setup.cfg": SETUP_CFG, "setup.py": "setup()"},
        "lib",
    ),
    ({"pyproject.toml": f'{PYPROJECT}[tool.hatch.build.targets.wheel]\npackages = ["lib/harbour"]'}, "lib"),
    (
        {"pyproject.toml": f'{dynamic(SETUPTOOLS, "")}[tool.setuptools.packages.find]\nwhere = ["lib"]'},
        "lib",
    ),
    ({"pyproject.toml": f'{dynamic(SETUPTOOLS, "")}[tool.setuptools.package-dir]\n"" = "lib"'}, "lib"),
    (
        {
            "pyproject.toml": dynamic(
                "poetry.core.masonry.api", '[tool.poetry]\npackages = [{include = "harbour", from = "lib"}]'
            )
        },
        "lib",
    ),
]


@pytest.mark.parametrize(("declared", "folder"), PLACES)
async def test_modules_are_where_the_files_of_the_project_name_them(
    bench: Bench, tmp_path: Path, declared: dict[str, str], folder: str
) -> None:
    own = {name.replace("src/", f"{folder}/"): text for name, text in files().items()} | declared
    own[f"{folder}/harbour/about.py"] = '__version__ = "3.1.4"\n'
    if "version" in declared["pyproject.toml"].partition("dynamic")[2][:30]:
        own["lib/harbour_pilot.py"] = '__version__ = "3.1.4"\n'
    outcome = await bench.run(written(tmp_path / "project", own))
    assert outcome.state is State.SUCCESS, outcome.error
    assert outcome.json == FOUND


async def test_a_package_in_a_folder_of_another_name_is_imported_and_its_errors_name_the_file(
    bench: Bench, tmp_path: Path
) -> None:
    places = '[tool.setuptools.package-dir]\nharbour = "code/of it"\n'
    pyproject = PYPROJECT.replace("hatchling.build", SETUPTOOLS) + places
    own = {name.replace("src/harbour/", "code/of it/"): text for name, text in files(pyproject).items()}
    outcome = await bench.run(written(tmp_path / "project", own))
    assert outcome.json == FOUND, outcome.error
    own["code/of it/main.py"] += "    raise ValueError('a storm')\n".replace("    ", "", 1)
    outcome = await bench.run(written(tmp_path / "project", own))
    assert (
        str(outcome.error) == f"ValueError: a storm (code/of it/main.py:{len(own['code/of it/main.py'].splitlines())})"
    )


async def test_commands_that_are_files_are_on_the_path(bench: Bench, tmp_path: Path) -> None:
    code = """
import subprocess

def run():
    commands = [["moor", "a"], ["cast-off", "b"], ["sound", "c"]]
    return [subprocess.run(one, capture_output=True, text=True, check=True).stdout for one in commands]
"""
    pyproject = (
        '[project]\nname = "x"\nversion = "1"\n[build-system]\nrequires = []\n[tool.setuptools]\n'
        'script-files = ["bin/moor", "bin/cast-off", "../../out"]\n[tool.poetry.scripts]\n'
        'sound = {reference = "bin/sound.py", type = "file"}\n[tool.windlass]\nentrypoint = "work:run"\n'
    )
    python = (
        "#!/usr/bin/python\nfrom __future__ import annotations\nimport sys, pydantic\nprint('python', *sys.argv[1:])\n"
    )
    own = {"bin/moor": python, "bin/cast-off": "#!/bin/sh\necho shell $1\n", "bin/sound.py": python}
    outcome = await bench.run(written(tmp_path / "project", {"pyproject.toml": pyproject, "work.py": code, **own}))
    assert outcome.json == ["python a\n", "shell b\n", "python c\n"], outcome.error


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


@pytest.mark.parametrize(
    "own",
    [
        {"setup.py": 'setup(name="x", package_dir={"": "\\ud800"})'},
        {"setup.py": f'setup(name="x", version=0x{"f" * 6000})'},
        {"setup.py": f'setup(name="x", entry_points={{"a": {{"b": 0x{"f" * 6000}}}}})'},
        {"pyproject.toml": f"[build-system]\nbuild-backend = 0x{'f' * 6000}\n[project]\nname = 'x'\n"},
    ],
)
async def test_values_that_no_file_can_hold_fail_no_run(bench: Bench, tmp_path: Path, own: dict[str, str]) -> None:
    pyproject = own.get("pyproject.toml", "") + '\n[tool.windlass]\nentrypoint = "work:run"\n'
    project = own | {"pyproject.toml": pyproject, "work.py": "def run():\n    return 1\n"}
    outcome = await bench.run(written(tmp_path / "project", project))
    assert (outcome.state, outcome.json) == (State.SUCCESS, 1), outcome.error


async def test_sections_of_long_lines_are_read_at_once() -> None:
    """Each of these lines takes configparser minutes."""
    spaces = " " * 500_000
    text = f"[a]\nb{spaces}c\nd{spaces}e = f\n{'[' * 500_000}\n[g]\nh =\n" + " i\n" * 100_000 + "j = k = l\n"
    before = time.thread_time()
    found = parsed(text)
    assert time.thread_time() - before < 2
    assert list(found["a"].values()) == ["f"]
    assert found["g"]["h"].split() == ["i"] * 100_000
    assert found["g"]["j"] == "k = l"


async def test_a_process_that_is_reused_has_the_package_of_each_run(bench: Bench, tmp_path: Path) -> None:
    main = MAIN.replace("    return {", "    return {'process': os.getpid(), ")
    project = written(tmp_path / "project", files() | {"src/harbour/main.py": main})
    found = [(await bench.run(project, reuse=20, version=str(project))).json for _ in range(3)]
    assert len({one.pop("process") for one in found}) == 1
    assert found == [FOUND] * 3
