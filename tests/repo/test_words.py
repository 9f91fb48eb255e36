"""Source and documentation use standard terms, and none of these words, each of which stood for several things."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit


ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("docs/**/*.md"), *ROOT.glob("*.md")]
SOURCES = [path for path in ROOT.glob("src/**/*") if path.suffix in {".py", ".sql"}]

BANNED = (
    "told",
    "tell",
    "tells",
    "hear",
    "hears",
    "heard",
    "unheard",
    "by itself",
    "give back",
    "gives back",
    "lacks",
    "whatever",
)
BANNED_IN_PROSE = ("say", "says", "said")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
PROSE = re.compile(r'"""(?:.|\n)*?"""|#[^\n]*|--[^\n]*')


def words(*phrases: str) -> re.Pattern[str]:
    return re.compile(rf"\b({'|'.join(phrases)})\b", re.IGNORECASE)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_pages_use_none_of_the_banned_words(path: Path) -> None:
    prose = CODE.sub("", path.read_text("utf-8"))
    assert words(*BANNED, *BANNED_IN_PROSE).findall(prose) == []


def test_the_source_uses_none_of_the_banned_words() -> None:
    found = [(path.name, word) for path in SOURCES for word in words(*BANNED).findall(path.read_text("utf-8"))]
    assert found == []


def test_docstrings_and_comments_use_none_of_the_banned_words() -> None:
    found = [
        (path.name, word)
        for path in SOURCES
        for part in PROSE.finditer(path.read_text("utf-8"))
        for word in words(*BANNED_IN_PROSE).findall(part[0])
    ]
    assert found == []
