"""A release of a framework that is too old is refused by its version, before anything imports it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from windlass_child import kinds
from windlass_child.crewai import adapter
from windlass_child.process import preload
from windlass_child.process.error_text import ProjectFault
from windlass_child.protocol.messages import Project, Unready

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.unit


WORDS = r"^crewai 0\.76\.9 in .* is too old: Windlass runs crewai 0\.80 and newer"


@pytest.fixture(autouse=True)
def _an_old_crewai(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "version", lambda _: "0.76.9")


@pytest.mark.parametrize("kind", [name for name, kind in kinds.KINDS.items() if kind.framework])
def test_no_project_is_loaded_by_it(tmp_path: Path, kind: str) -> None:
    with pytest.raises(ProjectFault, match=WORDS) as caught:
        kinds.load(Project(kind, str(tmp_path), "crew"))
    assert caught.value.code == "interpreter"


def test_no_zygote_is_ready_with_it() -> None:
    answer = preload.warmed("crewai")
    assert isinstance(answer, Unready)
    assert answer.message.endswith("Require such a release, and install it in the project's environment.")


@pytest.mark.parametrize("version", ["0.80.0", "0.100.1", "1.0", "1.15.30", "2.0.0a1"])
def test_newer_ones_are_not_too_old(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(adapter, "version", lambda _: version)
    assert adapter.too_old() == ""
