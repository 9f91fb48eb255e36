"""Which files a run and its zygote may use, and that a run can do with them what it needs."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from projects_for_tests.making import Bench, function_project, running_bench
from windlass.projects import recognise
from windlass.runner import RunnerConfig
from windlass.runner.file_rules import FileRules
from windlass.runner.run_spec import Boundary
from windlass_child.process.hardening import CONFINES, landlock_version
from windlass_child.process.places import LIST, READ, WRITE

if TYPE_CHECKING:
    from windlass.kickoffs.opened_files import Files
    from windlass.runner import RunSpec

confined = pytest.mark.skipif(landlock_version() < CONFINES, reason="needs Landlock")


def rules(*closed: Path, **variables: str) -> FileRules:
    return FileRules(RunnerConfig(closed=closed), variables)


def spec_of(project: Path, files: Files = (), **changes: object) -> RunSpec:
    made = Bench(None).order(recognise(project), {}, {})  # type: ignore[arg-type]  # no runner runs it
    return replace(made, boundary=Boundary(files=files), **changes)  # type: ignore[arg-type]


def environment(folder: Path) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(sys.executable)
    (folder / "pyvenv.cfg").write_text("")
    packages = folder / "lib" / "python3.11" / "site-packages"
    (packages / "shared-1.dist-info").mkdir(parents=True)
    (packages / "shared.pth").write_text(f"import os\n{folder.parent / 'linked'}\n")
    installed = {"url": f"file://{folder.parent}/shared%20package", "dir_info": {"editable": True}}
    (packages / "shared-1.dist-info" / "direct_url.json").write_text(json.dumps(installed))
    for name in ("linked", "shared package"):
        (folder.parent / name).mkdir()
    return folder / "bin" / "python"


def test_a_run_reads_its_project_and_writes_its_folder(tmp_path: Path) -> None:
    project = function_project(tmp_path / "project", "def run(): pass\n")
    found = rules().of_run(spec_of(project), tmp_path / "k")
    assert found[str(project)] == READ
    assert {place for place, what in found.items() if what == WRITE} == {str(tmp_path / "k")}
    assert str(tmp_path) not in found


def test_a_path_that_this_user_can_not_look_at_is_left_out(tmp_path: Path) -> None:
    """PATH may have folders of another user."""
    project = function_project(tmp_path / "project", "def run(): pass\n")
    unusable = f"/usr/bin/{'x' * 300}"
    found = rules(PATH=f"{unusable}:{tmp_path}").of_run(spec_of(project), tmp_path / "k")
    assert unusable not in found
    assert found[str(tmp_path)] == READ


def test_packages_that_are_installed_in_place_can_be_read_but_not_by_a_deployed_project(tmp_path: Path) -> None:
    interpreter = environment(tmp_path / "environment")
    linked = {str(tmp_path / "linked"), str(tmp_path / "shared package")}
    project = function_project(tmp_path / "project", "def run(): pass\n")
    deployed = function_project(tmp_path / "sources" / ("a" * 64), "def run(): pass\n")
    found = [rules().of_run(spec_of(one, interpreter=interpreter), tmp_path / "k") for one in (project, deployed)]
    assert linked <= found[0].keys()
    assert not linked & found[1].keys()


def test_a_zygote_of_deployed_projects_reads_their_sources_and_writes_no_package(tmp_path: Path) -> None:
    interpreter = environment(tmp_path / "environment")
    deployed = function_project(tmp_path / "sources" / ("a" * 64), "def run(): pass\n")
    found = rules().of_zygote(spec_of(deployed, interpreter=interpreter), tmp_path / "code", with_project=False)
    assert found is not None
    assert found[str(tmp_path / "sources")] == READ
    assert WRITE not in found.values()
    assert not {str(tmp_path / "linked"), str(tmp_path / "code")} & found.keys()


def test_a_zygote_on_the_servers_interpreter_has_no_list_unless_it_imports_a_project(tmp_path: Path) -> None:
    spec = spec_of(function_project(tmp_path / "project", "def run(): pass\n"))
    assert rules().of_zygote(spec, tmp_path, with_project=False) is None
    assert rules().of_zygote(spec, tmp_path, with_project=True) is not None


def test_no_rule_opens_a_folder_of_the_server(tmp_path: Path) -> None:
    project = function_project(tmp_path / "project", "def run(): pass\n")
    home = project / ".windlass" / "home"
    home.mkdir(parents=True)
    (home / "master.key").touch()
    files = ((str(home), READ), (str(home / "master.key"), READ), (str(tmp_path), WRITE))
    found = rules(home, PATH=f"{home}:/usr/bin:relative").of_run(spec_of(project, files=files), tmp_path / "k")
    assert not [place for place in found if Path(place).is_relative_to(home)]
    assert found[str(project)] == found[str(project / ".windlass")] == LIST
    assert found[str(project / "work.py")] in (READ, WRITE)
    assert found["/usr/bin"] == READ


USES = """
import multiprocessing, os, pathlib, sqlite3, ssl, subprocess, sys, tempfile, time, zoneinfo

def square(number):
    return number * number

def run(read, write, neither):
    ssl.create_default_context()
    zoneinfo.ZoneInfo("Europe/Berlin") if os.path.exists("/usr/share/zoneinfo/Europe/Berlin") else None
    subprocess.run([sys.executable, "-c", "import json"], check=True)
    subprocess.run("ls / > list.txt; cat list.txt > /dev/null", shell=True)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(square, [1, 2]) == [1, 4]
    with sqlite3.connect(os.path.join(tempfile.gettempdir(), "a.db")) as database:
        database.execute("CREATE TABLE a (b)")
    os.rename("list.txt", pathlib.Path.home() / "list.txt")
    pathlib.Path(write, "made").write_text(pathlib.Path(read, "kept").read_text())
    refused = []
    for name, attempt in {
        "read": lambda: pathlib.Path(neither, "kept").read_text(),
        "list": lambda: os.listdir(neither),
        "write": lambda: pathlib.Path(read, "made").write_text(""),
        "project": lambda: pathlib.Path(__file__).with_name("made").write_text(""),
        "truncate": lambda: os.truncate(os.path.join(read, "kept"), 0),
    }.items():
        try:
            attempt()
        except PermissionError:
            refused.append(name)
    return refused
"""


@confined
@pytest.mark.parametrize("how", [{}, {"start": "exec"}, {"reuse": 5}, {"preload_project": True}])
async def test_a_run_works_with_its_files_and_those_that_are_opened(tmp_path: Path, how: dict[str, Any]) -> None:
    places = {name: tmp_path / name for name in ("read", "write", "neither")}
    for place in places.values():
        place.mkdir()
        (place / "kept").write_text("kept")
    project = function_project(tmp_path / "project", USES)
    config = RunnerConfig(files=((str(places["read"]), READ), (str(places["write"]), WRITE)))
    async with running_bench(tmp_path / "scratch", config) as bench:
        for _ in range(2):  # with `reuse`, in the same process
            inputs = {name: str(place) for name, place in places.items()}
            outcome = await bench.run(project, inputs, boundary=Boundary(), version="1", **how)
            assert outcome.json == ["read", "list", "write", "project", "truncate"], outcome
    assert (places["write"] / "made").read_text() == "kept"
