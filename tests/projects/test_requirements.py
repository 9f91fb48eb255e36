from __future__ import annotations

import platform
from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest

from projects_for_tests.layouts import CREW_BASE
from projects_for_tests.making import written
from windlass.projects.kinds import used_classes
from windlass.projects.requirements import wanted_versions
from windlass_child.checks import packages

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.unit


PYTHON, PYTEST = platform.python_version(), version("pytest")
MINOR = PYTHON.rpartition(".")[0]
POETRY = '[tool.poetry]\nname = "a"\n[tool.poetry.dependencies]\n'


def found(folder: Path, files: dict[str, str]) -> list[tuple[str, str | None, int | None]]:
    root = written(folder, files)
    reported = list(packages.of_wanted(root, wanted_versions(root)))
    assert all(f"windlass setup {root}" in one["hint"] for one in reported)
    return [(one["code"], one["file"], one["line"]) for one in reported]


@pytest.mark.parametrize(
    ("pyproject", "expected"),
    [
        (f'[project]\nrequires-python = ">={MINOR},<={MINOR}"\n', []),
        ('[project]\nrequires-python = ">=3.99"\n', [("python_version", "pyproject.toml", 2)]),
        (f'{POETRY}python = ">=3.10,<4"\npytest = "^{PYTEST}"\n', []),
        (f'{POETRY}python = "~2.7"\n', [("python_version", "pyproject.toml", 4)]),
        (f'{POETRY}pytest = "^0.80"\n', [("package_version", "pyproject.toml", 4)]),
        (f'{POETRY}pytest = {{ version = "~0.1", extras = ["a"] }}\n', [("package_version", "pyproject.toml", 4)]),
        (f'{POETRY}no-such-package = "*"\n', [("missing_package", "pyproject.toml", 4)]),
        (f'{POETRY}no-such-package = {{ version = "1", optional = true }}\n', []),
        (f'{POETRY}pytest = "^0.1 || ^99"\nother = {{ path = "../other" }}\nodd = "what is this"\n', []),
        ("[tool.poetry]\ndependencies = 3\n", []),
        ("[project\n", []),
    ],
)  # fmt: skip
def test_constraints_on_python_and_of_poetry_are_compared_with_what_is_installed(
    tmp_path: Path, pyproject: str, expected: list[tuple[str, str, int]]
) -> None:
    assert found(tmp_path, {"pyproject.toml": pyproject}) == expected


def test_requirements_are_read_if_the_project_declares_no_dependencies(tmp_path: Path) -> None:
    lines = "# tools\n-r other.txt\n\npytest<1  # old\nno-such-package[all]\nabsent; python_version < '3'\n"
    expected = [("package_version", "requirements.txt", 4), ("missing_package", "requirements.txt", 5)]
    assert found(tmp_path, {"requirements.txt": lines}) == expected
    assert found(tmp_path, {"pyproject.toml": '[project]\ndependencies = ["pytest"]\n'}) == []


def test_the_version_that_is_wanted_is_shown_as_it_is_written(tmp_path: Path) -> None:
    root = written(tmp_path, {"pyproject.toml": f'{POETRY}pytest = "^0.80"\n'})
    (one,) = packages.of_wanted(root, wanted_versions(root))
    assert one["message"].startswith(f"pytest {PYTEST} is installed in ")
    assert one["message"].endswith('and the project wants pytest = "^0.80".')


def test_the_classes_that_an_entrypoint_uses_are_found_through_other_code(tmp_path: Path) -> None:
    files = {
        "pkg/crews/a.py": CREW_BASE.replace("Work", "A"),
        "pkg/crews/b.py": CREW_BASE.replace("Work", "B"),
        "pkg/crews/c.py": CREW_BASE.replace("Work", "C"),
        "pkg/old.py": CREW_BASE.replace("Work", "Old"),
        "pkg/help.py": "from . import crews\nfrom .crews.b import B\ndef b():\n    return B()\n",
        "pkg/crews/__init__.py": "from .c import C\n",
        "pkg/main.py": (
            "from pkg.crews.a import A\nfrom .help import b\nimport pkg.crews\nfrom .old import Old\n"
            "def run():\n    return A(), b(), pkg.crews.C()\ndef other():\n    return Old()\n"
        ),
    }
    root = written(tmp_path, files)
    used = used_classes(root, "pkg.main:run")
    assert used is not None
    assert sorted(used) == ["pkg/crews/a.py:3", "pkg/crews/b.py:3", "pkg/crews/c.py:3"]
    assert used_classes(root, "pkg.old") == ["pkg/old.py:3"]
    assert used_classes(root, "pkg.gone") is None
