from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from projects_for_tests.making import written
from projects_for_tests.wheels import index, source, wheel
from windlass.config import environment
from windlass.errors import ProjectError
from windlass.projects import Interpreters
from windlass.projects.interpreter import version_of
from windlass.projects.packages import packages_of
from windlass.projects.setup import Made, move, set_up
from windlass.projects.uv import Builder, uv_program
from windlass.projects.virtual_environments import FORM, base_interpreter

TINY = '[project]\nname = "steeping"\nversion = "1"\ndependencies = ["tiny>=1"]\n'


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    wheel(tmp_path / "wheels", "tiny", needs=("smaller",))
    wheel(tmp_path / "wheels", "tiny", "2.0")
    wheel(tmp_path / "wheels", "smaller")
    return tmp_path / "wheels"


def builder(wheels: Path, **more: str) -> Builder:
    own = {**environment(), **index(wheels), "UV_CACHE_DIR": str(wheels / "cache")}
    return Builder(uv_program(), {**own, **more}, lambda _: True)


def made(root: Path, wheels: Path, python: str | None = None, framework: str | None = None, **more: str) -> Made:
    return set_up(root, python, framework, builder(wheels, **more), lambda _: None)


def installed(root: Path) -> set[str]:
    found = root.glob(".venv/lib/python*/site-packages/*.dist-info")
    return {path.name.removesuffix(".dist-info") for path in found}


def test_the_packages_of_a_pyproject_are_installed_and_the_environment_is_chosen_afterwards(
    tmp_path: Path, wheels: Path
) -> None:
    root = written(tmp_path / "project", {"pyproject.toml": TINY})
    found = made(root, wheels)
    assert installed(root) == {"tiny-2.0"}
    assert (found.interpreter, found.is_new, found.before) == (root / ".venv/bin/python", True, None)
    assert Interpreters().of(root).path == found.interpreter
    imported = subprocess.run([found.interpreter, "-c", "import tiny; print(tiny.version)"], check=True, stdout=-1)
    assert imported.stdout == b"2.0\n", "it runs at its place, where it was not made"
    assert sorted(path.name for path in root.iterdir()) == [".venv", "pyproject.toml"]


def test_a_second_time_changes_nothing_until_a_file_or_the_python_changes(tmp_path: Path, wheels: Path) -> None:
    root = written(tmp_path / "project", {"requirements.txt": "-r more_requirements.txt\n"})
    written(root, {"more_requirements.txt": "tiny<2\n"})
    made(root, wheels)
    (root / ".venv" / "mark").touch()
    assert not made(root, wheels, UV_FIND_LINKS="/nowhere").is_new, "uv is not started"
    assert (root / ".venv" / "mark").exists()
    written(root, {"more_requirements.txt": "tiny\n"})
    assert made(root, wheels).is_new
    assert (installed(root), (root / ".venv" / "mark").exists()) == ({"tiny-2.0"}, False)
    assert made(root, wheels, python=f"{sys.version_info[0]}.{sys.version_info[1]}").is_new


def test_a_uv_lock_is_installed_as_it_is_without_the_project_itself_and_its_tools(tmp_path: Path, wheels: Path) -> None:
    groups = '[dependency-groups]\ndev = ["smaller"]\n'
    root = written(tmp_path / "project", {"pyproject.toml": TINY.replace(">=1", "<2") + groups})
    subprocess.run(
        [uv_program(), "lock"], cwd=root, env={**environment(), **index(wheels)}, check=True, capture_output=True
    )
    locked = (root / "uv.lock").read_text()
    wheel(wheels, "tiny", "1.5", needs=("smaller",))
    assert made(root, wheels).packages.file == "uv.lock"
    assert installed(root) == {"tiny-1.0", "smaller-1.0"}
    assert (root / "uv.lock").read_text() == locked


def test_a_poetry_lock_gives_the_pins_with_their_hashes(tmp_path: Path, wheels: Path) -> None:
    digest = wheel(wheels, "tiny")
    written(tmp_path / "project", {"pyproject.toml": '[tool.poetry.dependencies]\npython = "^3.10"\ntiny = "^1.0"\n'})
    lock = (
        '[[package]]\nname = "tiny"\nversion = "1.0"\npython-versions = ">=3.8"\n'
        'files = [{file = "tiny-1.0-py3-none-any.whl", hash = "HASH"}]\n[metadata]\npython-versions = "^3.10"\n'
    )
    root = written(tmp_path / "project", {"poetry.lock": lock.replace("HASH", f"sha256:{'0' * 64}")})
    with pytest.raises(ProjectError, match=r"(?i)poetry.lock can't be installed: .*hash mismatch") as caught:
        made(root, wheels)
    assert "Make the lock again" in caught.value.hint
    assert not (root / ".venv").exists()
    written(root, {"poetry.lock": lock.replace("HASH", digest)})
    assert made(root, wheels).packages.file == "poetry.lock"
    assert installed(root) == {"tiny-1.0"}


def test_what_can_not_be_resolved_is_explained_briefly_and_leaves_the_project_as_it_was(
    tmp_path: Path, wheels: Path
) -> None:
    root = written(tmp_path / "project", {"requirements.txt": "tiny<2\n"})
    made(root, wheels)
    written(root, {"requirements.txt": "tiny>=7\n"})
    with pytest.raises(ProjectError) as caught:
        made(root, wheels)
    assert "the packages in requirements.txt can't be installed: " in caught.value.message
    assert "tiny>=7" in caught.value.message
    assert len(caught.value.message) < 1000
    assert "--python" in caught.value.hint
    assert installed(root) == {"tiny-1.0", "smaller-1.0"}, "the former environment still works"
    assert sorted(path.name for path in root.iterdir()) == [".venv", "requirements.txt"]


def test_an_interrupted_setup_leaves_nothing_that_the_next_command_trusts(tmp_path: Path, wheels: Path) -> None:
    root = written(tmp_path / "project", {"requirements.txt": "tiny\n"})
    (root / ".venv.setup-killed" / "env" / "bin").mkdir(parents=True)

    def interrupt(line: str) -> None:
        if line.startswith(("Installed", "Prepared", "Resolved")):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        set_up(root, None, None, builder(wheels), interrupt)
    assert [path.name for path in root.iterdir()] == ["requirements.txt"], "what a killed one left is gone, too"
    assert Interpreters().of(root).path == Path(sys.executable)


def test_an_environment_that_another_program_made_is_kept(tmp_path: Path, wheels: Path) -> None:
    root = written(tmp_path / "project", {"requirements.txt": "tiny\n", ".venv/mine": "", ".venv/bin/python": ""})
    assert made(root, wheels).before == root / ".venv.before-setup"
    assert (root / ".venv.before-setup" / "mine").exists()
    written(root, {".venv/windlass-setup.json": "no JSON", "requirements.txt": "tiny<2\n"})
    with pytest.raises(ProjectError, match=r"was not made by this command, and \.venv\.before-setup beside it"):
        made(root, wheels)
    assert installed(root) == {"tiny-2.0"}


def test_a_link_to_an_environment_is_kept(tmp_path: Path, wheels: Path) -> None:
    root = written(tmp_path / "project", {"requirements.txt": "tiny\n"})
    (root / ".venv").symlink_to(written(tmp_path / "mine", {"mark": "", "windlass-setup.json": "{}"}))
    assert made(root, wheels).before == root / ".venv.before-setup"
    assert (root / ".venv.before-setup").readlink() == tmp_path / "mine"
    assert not (root / ".venv").is_symlink()


def test_the_former_environment_is_moved_back_when_the_new_one_can_not_be_moved(tmp_path: Path) -> None:
    place = written(tmp_path / ".venv", {"mark": ""})
    with pytest.raises(FileNotFoundError):
        move(tmp_path / "missing", place, tmp_path / "former")
    assert [path.name for path in tmp_path.iterdir()] == [".venv"]


def test_a_dangling_environment_is_replaced(tmp_path: Path, wheels: Path) -> None:
    root = written(tmp_path / "project", {"requirements.txt": "tiny\n"})
    made(root, wheels)
    (root / ".venv/bin/python").unlink()
    (root / ".venv/bin/python").symlink_to(tmp_path / "gone")
    assert made(root, wheels).is_new
    assert Interpreters().of(root).reason == "the project's .venv"


def test_a_project_that_does_not_name_its_framework_gets_no_environment(tmp_path: Path, wheels: Path) -> None:
    root = written(tmp_path / "project", {"requirements.txt": "tiny\n"})
    with pytest.raises(ProjectError, match=r"requirements.txt does not name crewai, which the project needs") as caught:
        made(root, wheels, framework="crewai")
    assert "Add crewai to the dependencies" in caught.value.hint
    assert not (root / ".venv").exists()
    wheel(wheels, "crewai")
    written(root, {"requirements.txt": "crewai\n"})
    assert made(root, wheels, framework="crewai").is_new


def test_a_project_without_dependencies_is_refused_with_what_to_write(tmp_path: Path, wheels: Path) -> None:
    root = written(tmp_path / "project", {"pyproject.toml": '[project]\nname = "a"\nversion = "1"\n'})
    with pytest.raises(ProjectError, match=r"No file in .* names the packages") as caught:
        made(root, wheels)
    assert "Write a requirements.txt" in caught.value.hint


@pytest.mark.parametrize("file", ["pyproject.toml", "uv.lock", "poetry.lock"])
@pytest.mark.parametrize("text", ["[project", "a = 1\na = 2", "x = " + "[" * 100_000])
def test_a_broken_file_is_named(tmp_path: Path, wheels: Path, file: str, text: str) -> None:
    root = written(tmp_path / "project", {"pyproject.toml": TINY, file: text})
    with pytest.raises(ProjectError, match=f"{file} can't be read: "):
        made(root, wheels)


def test_a_constraint_that_two_files_have_is_named_once(tmp_path: Path) -> None:
    wants = 'requires-python = ">=3.12"\n'
    root = written(tmp_path / "project", {"pyproject.toml": TINY + wants, "uv.lock": f"version = 1\n{wants}"})
    assert packages_of(root).wanted_python == ">=3.12"


def test_the_interpreter_satisfies_requires_python(tmp_path: Path, wheels: Path) -> None:
    root = written(tmp_path / "project", {"pyproject.toml": TINY + 'requires-python = "<3.9"\n'})
    with pytest.raises(ProjectError, match=r"needs Python <3\.9, and no such Python .*: crews run on Python 3\.10 to"):
        made(root, wheels)
    for broken in ("python3", "^x"):
        written(root, {"pyproject.toml": f"{TINY}requires-python = {broken!r}\n"})
        assert packages_of(root).any_python == ">=3.10,<3.14", "one that can't be read excludes none"
    written(root, {"pyproject.toml": TINY + 'requires-python = "==3.10.*"\n'})
    with pytest.raises(ProjectError, match=r"needs Python ==3\.10\.\*, and --python names "):
        made(root, wheels, python=sys.executable)
    with pytest.raises(ProjectError, match=r"needs Python ==3\.10\.\*, and --python is 3\.13"):
        made(root, wheels, python="3.13")
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    written(root, {"pyproject.toml": TINY + f'requires-python = "=={here}.*"\n'})
    assert version_of(made(root, wheels).interpreter) == sys.version_info[:2]


def test_builds_of_packages_see_none_of_the_variables_of_windlass(tmp_path: Path, wheels: Path) -> None:
    source(wheels, "built", f"    open({str(tmp_path / 'seen')!r}, 'w').write(repr(dict(os.environ)))")
    root = written(tmp_path / "project", {"requirements.txt": "built\n"})
    made(
        root,
        wheels,
        PGPASSWORD="hidden",
        OPENAI_API_KEY="hidden",
        AWS_SECRET_ACCESS_KEY="hidden",
        UV_PUBLISH_TOKEN="hidden",
        uv_publish_password="hidden",
        HTTP_PROXY="http://p",
    )
    seen = (tmp_path / "seen").read_text()
    assert "hidden" not in seen
    assert "http://p" in seen
    assert installed(root) == {"built-1.0"}


def test_one_setup_at_a_time_works_in_a_project(tmp_path: Path, wheels: Path) -> None:
    root = written(tmp_path / "project", {"requirements.txt": "tiny\n"})
    descriptor = os.open(root, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(ProjectError, match="another command makes the environment"):
        made(root, wheels)
    os.close(descriptor)
    assert made(root, wheels).is_new


def test_the_stamp_names_what_the_environment_was_made_from(tmp_path: Path, wheels: Path) -> None:
    root = written(tmp_path / "project", {"requirements.txt": "tiny\n"})
    packages = made(root, wheels).packages
    stamp = json.loads((root / ".venv" / "windlass-setup.json").read_text())
    assert stamp == {"form": FORM, "digest": packages.digest, "asked": None}


def test_no_code_of_the_project_runs_to_make_its_environment(tmp_path: Path, wheels: Path) -> None:
    itself = TINY + '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    code = "import pathlib\npathlib.Path(__file__).with_name('ran').touch()\n"
    root = written(tmp_path / "project", {"pyproject.toml": itself, "backend.py": code, "setup.py": code})
    made(root, wheels)
    assert installed(root) == {"tiny-2.0"}
    assert not (root / "ran").exists()


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("3.12\n", "python3.12"),
        ("3.12\r\n3.10\n", "python3.12"),
        ("3.11.99\n", None),
        ("./python\n", None),
        ("python3.12\n", None),
        ("\0" * 5000, None),
        (None, None),
    ],
)
def test_the_interpreter_is_that_of_python_version_if_it_is_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, chosen: str | None
) -> None:
    for name in ("python3.12", "python3.13"):
        program = written(tmp_path / "bin", {name: "#!/bin/sh\n"}) / name
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    files = {"pyproject.toml": TINY} | ({} if text is None else {".python-version": text})
    packages = packages_of(written(tmp_path / "project", files))
    found = base_interpreter(None, packages, builder(tmp_path))
    assert found == (tmp_path / "bin" / chosen if chosen else Path(os.path.realpath(sys.executable)))
    written(tmp_path / "project", {"pyproject.toml": TINY + 'requires-python = ">=3.13"\n'})
    assert (
        base_interpreter(None, packages_of(tmp_path / "project"), builder(tmp_path)) == tmp_path / "bin" / "python3.13"
    )
    assert base_interpreter("3.13", packages, builder(tmp_path)) == tmp_path / "bin" / "python3.13"


def test_a_python_that_can_not_be_started_is_named_with_what_to_do(tmp_path: Path, wheels: Path) -> None:
    broken = written(tmp_path / "bin", {"python3.13": "#!/bin/sh\nexit 127\n"}) / "python3.13"
    broken.chmod(0o755)
    root = written(tmp_path / "project", {"pyproject.toml": TINY})
    with pytest.raises(ProjectError, match=re.escape(str(broken))) as raised:
        made(root, wheels, python=str(broken))
    hint = "That Python can't be started. Repair it, or choose another one with --python or .python-version."
    assert raised.value.hint == hint
