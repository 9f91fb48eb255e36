"""The import contracts of pyproject.toml name each package of the server: a new one is not left out."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit


ROOT = Path(__file__).parents[2]
CONTRACTS = {
    contract["name"]: contract
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
}
MODULES = {f"windlass.{path.stem}" for path in (ROOT / "src" / "windlass").iterdir() if not path.name.startswith("_")}


@pytest.mark.parametrize(
    ("name", "exempt"),
    [
        ("Only the store speaks to PostgreSQL", {"store"}),
        ("Only runner, projects and embedded_postgres start processes", {"runner", "projects", "embedded_postgres"}),
    ],
)
def test_each_package_is_in_a_contract(name: str, exempt: set[str]) -> None:
    assert set(CONTRACTS[name]["source_modules"]) == MODULES - {"windlass.py"} - {f"windlass.{one}" for one in exempt}
