"""Whatever is installed for Windlass is pinned by a version and by hashes, what builds it included."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit


ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "requirements").rglob("*.txt"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_requirement_has_a_version_and_a_hash_and_names_no_host(file: Path) -> None:
    text = file.read_text("utf-8")
    assert "://" not in text
    found = re.split(r"^(?=\w)", text.replace("\\\n", ""), flags=re.MULTILINE)
    assert [one for one in found if one.strip()]
    assert not [one for one in found if one.strip() and not re.match(r"[\w.\[\]-]+==\S+ .*--hash=sha256:", one)]


def test_what_builds_the_editable_install_is_pinned_and_installed_before_it() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["build-system"]["requires"]
    pinned = set(re.findall(r"^([\w.-]+)==", (ROOT / "requirements/build.txt").read_text("utf-8"), re.MULTILINE))
    assert {re.split(r"[^\w.-]", one)[0] for one in build} <= pinned
    makefile = (ROOT / "Makefile").read_text("utf-8")
    editable = [line for line in makefile.splitlines() if "-e ." in line]
    assert editable
    assert all("--no-build-isolation" in line for line in editable)
    assert makefile.index("-r requirements/build.txt") < makefile.index("-e .")
