"""The page of absent features agrees with the code, and README does not promise more."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from windlass.api.crew_api import routes

pytestmark = pytest.mark.unit


ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/start/not-in-this-release.md").read_text("utf-8")
README = (ROOT / "README.md").read_text("utf-8")


def test_the_page_leaves_out_what_is_served() -> None:
    source = Path(routes.__file__ or "").read_text("utf-8")
    assert ("`POST /resume`" in PAGE) == ('"/resume"' not in source)


def test_each_promise_of_the_readme_to_work_without_changes_names_the_page() -> None:
    promises = [part for part in re.split(r"\n\n|\n- ", README) if "without changes" in part]
    assert len(promises) == 2
    assert all("docs/start/not-in-this-release.md" in part for part in promises)
