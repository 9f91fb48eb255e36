"""Whatever is installed for Windlass is pinned by a version and by hashes, what builds it included."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "requirements").rglob("*.txt"))
HOSTS = [
    ".".join(one)
    for one in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("yarnpkg", "com"),
        ("docker", "io"),
        ("ghcr", "io"),
        ("quay", "io"),
        ("debian", "org"),
    )
]
"""Names of registries, which a company replaces by its own. They are in no file, this one included."""


@pytest.mark.unit
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_requirement_has_a_version_and_a_hash_and_names_no_host(file: Path) -> None:
    text = file.read_text("utf-8")
    assert "://" not in text
    found = re.split(r"^(?=\w)", text.replace("\\\n", ""), flags=re.MULTILINE)
    assert [one for one in found if one.strip()]
    assert not [one for one in found if one.strip() and not re.match(r"[\w.\[\]-]+==\S+ .*--hash=sha256:", one)]


@pytest.mark.unit
def test_what_builds_the_editable_install_is_pinned_and_installed_before_it() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["build-system"]["requires"]
    pinned = set(re.findall(r"^([\w.-]+)==", (ROOT / "requirements/build.txt").read_text("utf-8"), re.MULTILINE))
    assert {re.split(r"[^\w.-]", one)[0] for one in build} <= pinned
    makefile = (ROOT / "Makefile").read_text("utf-8")
    editable = [line for line in makefile.splitlines() if "-e ." in line]
    assert editable
    assert all("--no-build-isolation" in line for line in editable)
    assert makefile.index("-r requirements/build.txt") < makefile.index("-e .")


def test_no_file_names_the_host_of_a_registry() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, timeout=60).stdout
    names = re.compile("|".join(map(re.escape, HOSTS)).encode())
    files = [ROOT / os.fsdecode(name) for name in listed.split(b"\0") if name]
    assert len(files) > 1000
    assert [str(file) for file in files if file.is_file() and names.search(file.read_bytes())] == []
