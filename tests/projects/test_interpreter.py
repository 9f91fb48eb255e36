from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from projects_for_tests.making import written
from windlass.errors import ProjectError
from windlass.projects import Interpreters
from windlass.projects.interpreter import on_this_machine, version_of

pytestmark = pytest.mark.unit


OWN = Path(sys.executable)
HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"


def environment(folder: Path, version: str = HERE, *, python: Path = OWN) -> Path:
    """As `python -m venv` makes it; returns its interpreter."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(python)
    (folder / "pyvenv.cfg").write_text(f"home = {python.parent}\nversion = {version}.1\n")
    return folder / "bin" / "python"


def test_each_place_comes_before_the_next_one_and_gives_its_reason(tmp_path: Path) -> None:
    project = tmp_path / "project"
    given, declared, active = (environment(tmp_path / name) for name in ("given", "declared", "active"))
    hidden, plain = environment(project / ".venv"), environment(project / "venv")
    every = Interpreters(given, active.parents[1])
    without = Interpreters(None, active.parents[1])
    assert (every.of(project, str(declared)).path, every.of(project).reason) == (given, "named by --python")
    found = without.of(project, str(declared))
    assert (found.path, found.reason) == (declared, "[tool.windlass] python")
    assert (without.of(project).path, without.of(project).reason) == (hidden, "the project's .venv")
    (project / ".venv").rename(tmp_path / "elsewhere")
    assert (without.of(project).path, without.of(project).reason) == (plain, "the project's venv")
    (project / "venv").rename(tmp_path / "elsewhere too")
    assert (without.of(project).path, without.of(project).reason) == (active, "$VIRTUAL_ENV")
    own = Interpreters().of(project)
    assert (own.path, own.reason) == (OWN, "Windlass's own, as the project has no .venv")
    assert str(without.of(project)) == f"{active} (Python {HERE}), $VIRTUAL_ENV"


def test_the_environment_of_windlass_that_is_active_counts_as_its_own(tmp_path: Path) -> None:
    found = Interpreters.of_command(None, sys.prefix).of(tmp_path)
    assert (found.path, found.reason.startswith("Windlass's own")) == (OWN, True)
    other = environment(tmp_path / "other")
    assert Interpreters.of_command(None, str(tmp_path / "other")).of(tmp_path).path == other
    assert Interpreters.of_command(None, "").of(tmp_path).path == OWN


@pytest.mark.parametrize("name", [".venv", "venv"])
def test_a_dangling_environment_is_an_error_that_names_the_link_and_the_remedy(tmp_path: Path, name: str) -> None:
    environment(tmp_path / name, python=tmp_path / "gone")
    with pytest.raises(ProjectError) as caught:
        Interpreters().of(tmp_path)
    assert f"{tmp_path / name} has no Python that can be started" in caught.value.message
    assert f"its link leads to {tmp_path / 'gone'}, which is missing" in caught.value.message
    assert f"windlass setup {tmp_path}" in caught.value.hint


def test_a_dot_venv_without_a_python_is_an_error_and_a_folder_venv_with_code_is_none(tmp_path: Path) -> None:
    written(tmp_path, {"venv/models.py": ""})
    assert Interpreters().of(tmp_path).path == OWN
    (tmp_path / ".venv").mkdir()
    with pytest.raises(ProjectError, match="it is missing"):
        Interpreters().of(tmp_path)


def test_an_active_environment_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match="Unset VIRTUAL_ENV"):
        Interpreters.of_command(None, str(tmp_path / "gone")).of(tmp_path)


def test_an_interpreter_is_named_by_a_path_a_folder_or_a_version(tmp_path: Path) -> None:
    python = environment(tmp_path / "kept")
    for named in (str(python), str(tmp_path / "kept")):
        assert Interpreters.of_command(named, None).of(tmp_path).path == python
    assert Interpreters().of(tmp_path, "kept").path == python, "relative to the project"
    found = Interpreters.of_command(HERE, None).of(tmp_path).path
    assert version_of(found) == sys.version_info[:2]


@pytest.mark.parametrize("named", ["2.4", "3.12.987", "no-such-folder", "pyproject.toml", "\0"])
def test_what_names_no_interpreter_is_refused_with_what_does(tmp_path: Path, named: str) -> None:
    written(tmp_path, {"pyproject.toml": ""})
    with pytest.raises(ProjectError) as caught:
        Interpreters().of(tmp_path, named)
    assert "[tool.windlass] python is " in caught.value.message
    assert caught.value.hint


def test_versions_are_known_without_a_start_of_the_interpreter(tmp_path: Path) -> None:
    assert version_of(environment(tmp_path / "old", "3.9")) == (3, 9)
    (tmp_path / "uv" / "bin").mkdir(parents=True)
    (tmp_path / "uv" / "pyvenv.cfg").write_text("home = /usr\nversion_info = 3.13.0\n")
    assert version_of(tmp_path / "uv" / "bin" / "python") == (3, 13)
    assert version_of(tmp_path / "bin" / "python3.12") == (3, 12)
    assert version_of(tmp_path / "bin" / "anything") is None


@pytest.mark.parametrize(("version", "fits"), [("3.9", False), ("3.10", True), ("3.13", True), ("3.14", False)])
def test_only_versions_that_crews_run_on_are_taken(tmp_path: Path, version: str, fits: bool) -> None:
    environment(tmp_path / ".venv", version)
    found = Interpreters().of(tmp_path)
    if fits:
        assert found.supported(tmp_path) == found
        return
    with pytest.raises(ProjectError, match=rf"is Python {version}, and crews run on Python 3\.10 to 3\.13") as caught:
        found.supported(tmp_path)
    assert f"windlass setup {tmp_path}" in caught.value.hint


def test_a_configuration_that_is_a_pipe_blocks_nobody(tmp_path: Path) -> None:
    python = environment(tmp_path / ".venv")
    (tmp_path / ".venv" / "pyvenv.cfg").unlink()
    os.mkfifo(tmp_path / ".venv" / "pyvenv.cfg")
    assert str(Interpreters().of(tmp_path)).startswith(str(python))


def test_shims_of_pyenv_and_broken_links_are_no_interpreters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("shims", "bin"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "python3.12").symlink_to(OWN)
    (tmp_path / "bin" / "python3.11").symlink_to(tmp_path / "gone")
    monkeypatch.setenv("PATH", f"{tmp_path / 'shims'}:{tmp_path / 'bin'}")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert on_this_machine() == [Path(os.path.realpath(OWN))]
