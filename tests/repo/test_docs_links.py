"""Links lead to existing files and headings: between pages, from the source and from tests. Each decision is linked."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
DECISIONS = DOCS / "decisions"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
NAMING = sorted(
    path
    for folder in ("src", "tests", "bench", "examples")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in {".py", ".sql", ".html", ".js", ".toml", ".md"}
    and not {"build", "__pycache__", "node_modules"} & set(path.parts)
)
LINK = re.compile(r"\]\(([^()\s]+)\)")
NAMED = re.compile(r"(?<![\w/.-])docs/([\w/-]++\.md)(#[\w-]++)?")
OF_PROJECTS = {"style.md"}
"""Pages of projects that tests make."""
BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


@cache
def headings(page: Path) -> frozenset[str]:
    """Returns the anchors of a page, as they are made on GitHub."""
    text = BLOCK.sub("", page.read_text("utf-8"))
    return frozenset(anchor(title) for title in re.findall(r"^#{1,6} (.+)$", text, re.MULTILINE))


def anchor(title: str) -> str:
    words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title.strip().lower())
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


def leads_somewhere(target: Path, fragment: str) -> bool:
    if not target.exists():
        return False
    return not fragment or target.suffix != ".md" or fragment in headings(target.resolve())


def links(page: Path) -> list[str]:
    found = LINK.findall(BLOCK.sub("", page.read_text("utf-8")))
    return [link for link in found if not re.match(r"[a-z]+:|/", link)]


def target_of(page: Path, link: str) -> tuple[Path, str]:
    name, _, fragment = link.partition("#")
    return (page.parent / name if name else page), fragment


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_lead_to_files_and_headings(page: Path) -> None:
    assert [link for link in links(page) if not leads_somewhere(*target_of(page, link))] == []


def test_pages_that_files_name_exist() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: docs/{name}{fragment}"
        for path in (*NAMING, ROOT / "Makefile", ROOT / "pyproject.toml")
        for name, fragment in NAMED.findall(path.read_text("utf-8"))
        if name not in OF_PROJECTS and not leads_somewhere(DOCS / name, fragment[1:])
    ]
    assert wrong == []


def test_each_page_is_linked_from_an_index() -> None:
    indexes = sorted(DOCS.rglob("index.md"))
    listed = {target_of(index, link)[0].resolve() for index in indexes for link in links(index)}
    assert [
        str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if page not in {*listed, DOCS / "index.md"}
    ] == []


def test_the_files_that_the_pages_for_developers_name_exist() -> None:
    named = {
        f"{page.name}: {path}"
        for page in (DOCS / "development" / "index.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md")
        for path in re.findall(r"`((?:src|tests|docs)/[\w/.-]+)`", page.read_text("utf-8"))
    }
    assert len(named) > 40
    assert [path for path in sorted(named) if not (ROOT / path.partition(": ")[2]).exists()] == []


def test_the_architecture_names_each_package_and_module_of_the_top_level() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    listed = {
        name for row in re.findall(r"^\| (`[^|]+) \|", page, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    }
    there = {
        entry.stem
        for package in ("windlass", "windlass_child")
        for entry in (ROOT / "src" / package).iterdir()
        if (entry.suffix == ".py" or (entry / "__init__.py").exists()) and not entry.name.startswith("__")
    }
    assert there - listed == set()


def test_the_page_of_places_has_a_section_for_each_row_of_its_table() -> None:
    page = DOCS / "development" / "index.md"
    rows = re.findall(r"^\| \[([^]]+)\]\(#[\w-]+\) \|", page.read_text("utf-8"), re.MULTILINE)
    sections = re.findall(r"^### (.+)$", page.read_text("utf-8"), re.MULTILINE)
    assert [row.lower() for row in rows] == [section.lower() for section in sections]


def test_each_decision_is_linked_from_the_source_or_another_page() -> None:
    linked = {
        (DOCS / name, fragment[1:])
        for path in NAMING
        if path.is_relative_to(ROOT / "src")
        for name, fragment in NAMED.findall(path.read_text("utf-8"))
    }
    for page in PAGES:
        if not page.is_relative_to(DECISIONS):
            linked |= {
                (target.resolve(), fragment) for target, fragment in (target_of(page, one) for one in links(page))
            }
    decisions = {
        (page, anchor(title))
        for page in DECISIONS.glob("*.md")
        for title in re.findall(r"^## (.+)$", page.read_text("utf-8"), re.MULTILINE)
    }
    assert len(decisions) > 100
    assert sorted(f"{page.name}#{heading}" for page, heading in decisions - linked) == []
