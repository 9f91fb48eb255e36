"""The import contracts of pyproject.toml name each package of the server, and imports go in no circle."""

from __future__ import annotations

import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
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


@pytest.mark.parametrize("package", ["windlass", "windlass_child"])
def test_imports_go_in_no_circle_not_for_types_nor_within_a_function_either(package: str) -> None:
    graph = grimp.build_graph(package, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(imports) > 50
    TopologicalSorter(imports).prepare()  # its error names the modules of a circle
