from __future__ import annotations

import ast
import keyword
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cli.the_command import ForkedCommand
from patience import DEADLINE
from windlass.errors import ProjectError
from windlass.projects import recognise
from windlass.projects.making import KINDS_WITH_TEMPLATES as KINDS
from windlass.projects.making import TAKEN, Names, contents, new_project

if TYPE_CHECKING:
    from cli.checker import Checker

pytestmark = pytest.mark.xdist_group("served_crews")

OFFLINE = "[offline model]"


@pytest.mark.timeout(600)  # a quarter of a minute on a machine with nothing else to do
def test_made_projects_have_no_findings_and_run_on_the_offline_model(open_folder: Path, check: Checker) -> None:
    windlass = ForkedCommand(open_folder)
    projects = {kind: open_folder / f"my {kind}!" for kind in KINDS}
    for kind, project in projects.items():
        made = windlass("init", str(project), "--kind", kind)
        assert (made.code, f"windlass dev '{project}'" in made.out) == (0, True), made
        assert check(str(project)) == []
    with windlass.started("dev", *map(str, projects.values()), "--port", "0") as server:
        server.wait_for("Ctrl-C stops it")
        for kind in KINDS:
            of_crew = ("--deployment", f"my-{kind}")
            given = [] if kind == "flow" else ["-i", "topic=tides"]
            assert "topic" in windlass("inputs", *of_crew).out
            run = windlass("kickoff", *of_crew, *given, "--watch")
            assert (run.code, OFFLINE in run.out, "tides" in run.out) == (0, True, True), run
        server.interrupt()
        assert server.end() == 0


@pytest.mark.parametrize("found", [True, False], ids=["in the path", "by its path"])
def test_the_next_steps_name_the_program_as_it_was_typed(tmp_path: Path, *, found: bool) -> None:
    program = Path(sys.executable).with_name("windlass")
    made = subprocess.run(
        [program, "init", tmp_path / "tea", "--kind", "function"],
        check=True,
        capture_output=True,
        text=True,
        env={"PATH": str(program.parent) if found else str(tmp_path), "HOME": str(tmp_path), "LANG": "C.UTF-8"},
        timeout=DEADLINE,
    )
    assert f"\n  {'windlass' if found else program} dev {tmp_path / 'tea'}" in made.stdout


def test_a_crew_in_the_current_folder_is_made_if_nothing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tea time"
    folder.mkdir()
    monkeypatch.chdir(folder)
    new_project(Path(), "crew")
    assert recognise(folder).project.entrypoint == "tea_time.crew"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("taken", ["pyproject.toml", "src/tea/__init__.py", "crew.jsonc"])
def test_nothing_is_written_where_a_file_is_in_the_way(tmp_path: Path, kind: str, taken: str) -> None:
    windlass, folder = ForkedCommand(tmp_path), tmp_path / "tea"
    (folder / taken).parent.mkdir(parents=True)
    (folder / taken).write_text("mine")
    before = sorted(folder.rglob("*"))
    ended = windlass("init", str(folder), "--kind", kind)
    assert (ended.code, ended.out) == (1, "")
    assert str(folder / taken) in ended.err
    assert "Nothing is written." in ended.err
    assert (sorted(folder.rglob("*")), (folder / taken).read_text()) == (before, "mine")


@pytest.mark.parametrize("taken", ["", "src", "pyproject.toml"])
def test_what_is_no_folder_or_leads_nowhere_is_in_the_way(tmp_path: Path, taken: str) -> None:
    place = tmp_path / "tea" / taken if taken else tmp_path / "tea"
    place.parent.mkdir(exist_ok=True)
    if taken == "pyproject.toml":
        place.symlink_to(tmp_path / "nowhere")
    else:
        place.write_text("mine")
    with pytest.raises(ProjectError, match="Nothing is written"):
        new_project(tmp_path / "tea", "crew")
    assert not (tmp_path / "nowhere").exists()


def test_files_that_are_not_in_the_way_stay(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    new_project(tmp_path, "flow")
    assert (tmp_path / "README.md").read_text() == "mine"


@pytest.mark.parametrize(
    ("folder", "package", "name"),
    [
        ("my crew!", "my_crew", "my-crew"),
        ("2024", "crew_2024", "crew-2024"),
        ("class", "my_class", "my-class"),
        ("None", "none", "none"),
        ("json", "my_json", "my-json"),
        ("pydantic", "my_pydantic", "my-pydantic"),
        ("crew", "my_crew", "my-crew"),
        ("Café-Crème", "cafe_creme", "cafe-creme"),
        ("日本", "my_crew", "my-crew"),
        ("", "my_crew", "my-crew"),
    ],
)
def test_the_package_is_named_after_the_folder(folder: str, package: str, name: str) -> None:
    names = Names.of(folder, "crew")
    assert (names.package, names.name) == (package, name)


@given(st.text(max_size=80), st.sampled_from(KINDS))
@example("crew", "crew")
@example("flow crew", "flow")
@example("src", "function")
def test_any_folder_gives_names_that_can_be_used_and_files_that_can_be_read(folder: str, kind: str) -> None:
    names = Names.of(folder, kind)
    assert names.package.isidentifier()
    assert names.package.isascii()
    assert not keyword.iskeyword(names.package)
    assert names.package not in TAKEN
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", names.name)
    assert names.camel.isidentifier()
    assert names.camel not in {"Crew", "Flow", "Agent", "Task"}
    files = contents(folder, kind)
    assert tomllib.loads(files["pyproject.toml"])["project"]["name"] == names.name
    code = [text for path, text in files.items() if path.endswith(".py")]
    assert [ast.parse(text) for text in code]
    assert not any("$" in text for text in files.values())


def test_what_is_made_is_what_is_told(tmp_path: Path) -> None:
    made = new_project(tmp_path / "tea", "crew")
    assert sorted(made) == sorted(path for path in (tmp_path / "tea").rglob("*") if path.is_file())


def test_an_unknown_kind_is_a_usage_error(tmp_path: Path) -> None:
    ended = ForkedCommand(tmp_path)("init", str(tmp_path / "tea"), "--kind", "opera")
    assert ended.code == 2
    assert not (tmp_path / "tea").exists()
