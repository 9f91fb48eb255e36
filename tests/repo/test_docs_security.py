"""docs/concepts/security.md: what it says to be encrypted is what the code seals, and the tests that it names exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from windlass.secrets.key_ring import Sealed

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.unit


ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
PAGE = (ROOT / "docs" / "concepts" / "security.md").read_text("utf-8")
SECTIONS = {part.partition("\n")[0]: part for part in re.split(r"^## ", PAGE, flags=re.MULTILINE)}
ENCRYPTED, ASSETS = SECTIONS["What is encrypted"], SECTIONS["Assets"]
KEY_RING = SOURCE / "windlass" / "secrets" / "key_ring.py"


def rows(section: str) -> list[list[str]]:
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def seals() -> Iterator[tuple[str, ast.expr]]:
    """Where a value is sealed, and its context."""
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            called = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "seal"
            if called and path != KEY_RING:
                assert isinstance(node, ast.Call)
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node.args[1]


def place(context: ast.expr) -> str | None:
    """PLACE of `Sealed.PLACE` or `Sealed.PLACE.of(...)`."""
    found = re.fullmatch(r"Sealed\.(\w+)(\.of\(.*\))?", ast.unparse(context))
    return found[1] if found else None


def test_the_page_lists_every_place_of_sealed_values_and_no_other() -> None:
    assert sorted(row[1].strip("`") for row in rows(ENCRYPTED)) == sorted(Sealed)


def test_every_value_is_sealed_for_a_place_of_the_list_and_every_place_is_used() -> None:
    found = {where: place(context) for where, context in seals()}
    assert not [where for where, name in found.items() if name is None]
    assert set(found.values()) == {one.name for one in Sealed}


def test_columns_of_sealed_values_exist() -> None:
    tables = "".join(path.read_text("utf-8") for path in sorted((SOURCE / "windlass/store/migrations").glob("*.sql")))
    for one in set(Sealed) - {Sealed.TOKEN_PEPPER, Sealed.BACKUP_PROBE}:  # a row of `settings`, a member of a file
        table, column = one.split(".")
        assert re.search(
            rf"CREATE TABLE {table} \([^;]*\b{column} |ALTER TABLE {table} ADD COLUMN {column} ", tables
        ), one


def test_each_asset_has_what_protects_it_what_does_not_and_a_test() -> None:
    found = rows(ASSETS)
    assert len(found) > 20
    assert not [row for row in found if len(row) != 4 or not all(row)]


def test_every_test_that_the_page_names_exists() -> None:
    named = re.findall(r"tests/[\w/]+\.py", PAGE)
    assert len(named) > 20
    assert not [path for path in named if not (ROOT / path).is_file()]
    assert not [row for row in rows(ASSETS) if not re.fullmatch(r"(`tests/[\w/]+\.py`(, )?)+", row[3])]


def test_every_attack_that_is_tested_is_on_the_page() -> None:
    attacks = {f"tests/attacks/{path.name}" for path in (ROOT / "tests" / "attacks").glob("test_*.py")}
    assert not attacks - set(re.findall(r"tests/[\w/]+\.py", PAGE))
