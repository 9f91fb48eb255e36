"""docs/concepts/queue.md names every option of a project and every thing that a kickoff may wait for."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import get_args

from windlass.kickoffs.waiting import Code
from windlass.projects import Options
from windlass.projects.options import TABLES

PAGE = (Path(__file__).parents[2] / "docs" / "concepts" / "queue.md").read_text("utf-8")


def test_every_code_has_its_row() -> None:
    assert [code for code in get_args(Code) if f"| `{code}` |" not in PAGE] == []


def test_every_option_is_shown_with_its_default() -> None:
    usual = Options()
    for one in fields(Options):
        if one.name not in TABLES:  # which have pages of their own
            assert f"{one.name} = " in PAGE
    assert f'concurrency_strategy = "{usual.concurrency_strategy}"' in PAGE
    assert f'preload = "{usual.preload}"' in PAGE
    assert f'start = "{usual.start}"' in PAGE
