"""Projects as people write them: each is recognised, inspected and run without a change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from projects_for_tests.layouts import LAYOUTS, files_of
from projects_for_tests.making import Bench, Heard, written
from windlass.kickoffs.states import State
from windlass.projects import recognise
from windlass_child.process.messages import TaskEnded

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.xdist_group("crewai"), pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.parametrize("name", LAYOUTS)
async def test_a_layout_is_recognised_inspected_and_run(bench: Bench, tmp_path: Path, name: str) -> None:
    layout, heard = LAYOUTS[name], Heard()
    project = written(tmp_path / "project", files_of(layout)) / layout.named
    found = recognise(project)
    assert (found.project.kind, found.project.entrypoint, found.preload) == (layout.kind, layout.entrypoint, "crewai")
    manifest = await bench.inspect(project)
    assert [task.name for task in manifest.tasks] == list(layout.tasks)
    assert "topic" in manifest.inputs_schema["properties"]
    outcome = await bench.run(project, layout.inputs, heard=heard)
    assert outcome.state is State.SUCCESS, outcome.error
    assert outcome.output == "said"
    assert [one.state for one in heard.of(TaskEnded)][: len(layout.tasks)] == ["completed"] * len(layout.tasks)
