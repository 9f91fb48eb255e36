from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from bench.figures import Figure
from bench.results import Results, difference

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.unit


FIGURES = [
    Figure("accepted, per second", "6,000 (5,000 to 7,000)"),
    Figure("  Starlette, per second", "5,000"),
    Figure("  ratio to it", "1.20"),
    Figure("  FastAPI, per second", "1,000"),
    Figure("  ratio to it", "6.00"),
]


def test_the_change_compares_with_the_figure_of_the_same_place_in_the_last_run(tmp_path: Path) -> None:
    first = Results(quick=False, folder=tmp_path)
    assert [first.change(figure) for figure in FIGURES] == [""] * 5
    first.write()
    second = Results(quick=False, folder=tmp_path)
    later = [*FIGURES[:2], Figure("  ratio to it", "1.26"), FIGURES[3], Figure("  ratio to it", "3.00")]
    assert [second.change(figure) for figure in later] == ["same", "same", "+5 %", "same", "-50 %"]
    assert Results(quick=True, folder=tmp_path).change(FIGURES[0]) == ""


def test_a_damaged_file_counts_as_no_last_run(tmp_path: Path) -> None:
    (tmp_path / "full.json").write_text('{"accepted')
    assert Results(quick=False, folder=tmp_path).change(FIGURES[0]) == ""


@pytest.mark.parametrize(
    ("earlier", "now", "change"), [("0", "3", "was 0"), ("12.5 / 80", "10 / 90", "-20 %"), ("none", "3", "")]
)
def test_changes(earlier: str, now: str, change: str) -> None:
    assert difference(earlier, now) == change
