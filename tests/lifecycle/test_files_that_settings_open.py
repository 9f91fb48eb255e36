"""The setting `files` opens files of the machine to the runs of a deployment, in place of those of the server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from lifecycle.running import Place
from windlass.kickoffs.states import State
from windlass_child.process.hardening import CONFINES, landlock_version

if TYPE_CHECKING:
    from pathlib import Path

    from lifecycle.running import World

pytestmark = pytest.mark.skipif(landlock_version() < CONFINES, reason="needs Landlock")


async def test_runs_use_the_files_that_the_settings_name_and_no_others(world: World, tmp_path: Path) -> None:
    place, other = Place(tmp_path / "opened"), Place(tmp_path / "other")
    files = [f"{place.folder}:rw", f"{tmp_path}/missing:ro"]
    await world.database.execute(f"UPDATE deployments SET settings = '{json.dumps({'files': files})}'")
    await world.worker()
    place.let_go()
    held = await world.ended(await world.accept(**place.inputs()))
    assert held.state is State.SUCCESS, held.error
    assert "file_not_opened" in str(held.warnings)
    assert "missing, which is not there" in str(held.warnings)
    refused = await world.ended(await world.accept(**other.inputs()))
    assert refused.state is State.FAILED
    assert "Permission denied" in str(refused.error)
