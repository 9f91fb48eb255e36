"""The child runs on Python 3.10 too, which is older than the server's."""

from __future__ import annotations

import subprocess
import textwrap
from pathlib import Path

import pytest

import windlass_child
from projects_for_tests.driver import DrivenZygote
from projects_for_tests.environments import interpreter
from projects_for_tests.making import function_project
from windlass_child.protocol.messages import Project, Ready, Succeeded, Unready

PACKAGE = Path(windlass_child.__file__).parent
OLDEST = interpreter("3.10")

FRAMEWORKS = {"crewai", "pydantic", "pydantic_core"}

IMPORT_ALL = """
    import importlib, pkgutil, sys
    import __main__ as start

    start.make_importable()
    import windlass_child
    for found in pkgutil.walk_packages(windlass_child.__path__, "windlass_child."):
        if not found.name.endswith("__main__"):
            try:
                importlib.import_module(found.name)
            except ModuleNotFoundError as error:
                print("without", error.name)
    print("imported")
"""


@pytest.fixture
def python() -> Path:
    if OLDEST is None:
        pytest.skip("there is no Python 3.10 on this machine")
    return OLDEST


def test_each_module_is_compiled(python: Path, tmp_path: Path) -> None:
    code = "import sys; [compile(open(path, 'rb').read(), path, 'exec') for path in sys.argv[1:]]"
    files = [str(path) for path in PACKAGE.rglob("*.py")]
    subprocess.run([python, "-I", "-c", code, *files], check=True, timeout=60)


def test_each_module_without_a_framework_is_imported(python: Path, tmp_path: Path) -> None:
    code = textwrap.dedent(IMPORT_ALL).replace("import __main__ as start", start())
    done = subprocess.run([python, "-I", "-c", code], check=True, timeout=60, capture_output=True, text=True)
    *missing, last = done.stdout.splitlines()
    assert last == "imported"
    assert {line.split()[1].partition(".")[0] for line in missing} <= FRAMEWORKS


def start() -> str:
    return f"import sys; sys.path.insert(0, {str(PACKAGE.parent)!r}); from windlass_child import __main__ as start"


def test_a_function_runs(python: Path, tmp_path: Path) -> None:
    project = Project(
        "function", str(function_project(tmp_path / "project", "def run():\n    return 'ran'\n")), "work:run"
    )
    with DrivenZygote(tmp_path / "zygote", command=[str(python)]) as zygote:
        ready = zygote.ready()
        assert isinstance(ready, Ready)
        assert ready.python.startswith("3.10.")
        assert zygote.run(project, tmp_path).answer() == Succeeded("ran", output_of=None)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (None, "crewai is not installed in "),
        ("import missing_thing", "it needs missing_thing, which is missing."),
        ("import crewai.damaged", "No module named 'crewai.damaged'"),
        ("from os import no_such_name", "ImportError: cannot import name 'no_such_name' from 'os'"),
        ("raise RuntimeError('numpy is too new')", "RuntimeError: numpy is too new"),
    ],
)
def test_an_error_at_the_import_of_crewai_is_told_as_it_is(python: Path, tmp_path: Path, code: str, words: str) -> None:
    if code is not None:
        (tmp_path / "packages" / "crewai").mkdir(parents=True)
        (tmp_path / "packages" / "crewai" / "__init__.py").write_text(code)
    given = {"PYTHONPATH": str(tmp_path / "packages")}
    with DrivenZygote(tmp_path / "zygote", "crewai", command=[str(python)], environment=given) as zygote:
        unready = zygote.ready()
        assert isinstance(unready, Unready)
        assert words in unready.message
        assert ("is not installed" in unready.message) is (code is None)
