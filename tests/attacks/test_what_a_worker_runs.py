"""Who can write to a shared PostgreSQL chooses neither the program nor the folder that a worker runs. A worker's own
variables don't reach a crew.
"""

from __future__ import annotations

import base64
import os
import secrets
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from faults.node import Node
from lifecycle.running import World
from projects_for_tests.making import function_project
from store.whole import loaded
from windlass.errors import ProjectError
from windlass.kickoffs.states import Reason, State
from windlass.projects import TrustedProjects

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from windlass.store.reading import KickoffStatus

STRANGER = 54_321
CODE = "import os\n\ndef run() -> dict:\n    return dict(os.environ)\n"

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder to another user, which takes root")


@pytest.fixture
async def world(emptied_url: str, open_folder: Path) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        world = World(emptied_url, open_folder, stack)
        function_project(world.folder / "project", CODE)
        async with world:
            yield world


async def run_by_a_worker(world: World, **variables: str) -> KickoffStatus:
    key = base64.b64encode(secrets.token_bytes(32)).decode()
    own = {"WINDLASS_DATABASE_URL": world.url, "WINDLASS_MASTER_KEY": key, "WINDLASS_SLOTS": "1"}
    worker = Node(world.folder / "worker", ["worker"], {**own, **variables})
    kickoff = await world.accept()
    worker.start()
    try:
        return await world.ended(kickoff)
    finally:
        worker.kill()


async def rewrite(world: World, **members: Any) -> None:
    """As somebody who may write to the database."""
    for name, value in members.items():
        await world.database.rows(
            "UPDATE versions SET source = jsonb_set(source::jsonb, %(path)s, to_jsonb(%(value)s::text)) RETURNING id",
            {"path": [name], "value": value},
        )


async def test_an_interpreter_that_a_row_names_is_not_executed(world: World) -> None:
    evil, trace = world.folder / "evil", world.folder / "trace"
    trace.mkdir()
    trace.chmod(0o777)
    evil.write_text(f"#!/bin/sh\nid -u > {trace}/was-here\nexit 1\n")
    evil.chmod(0o755)
    await rewrite(world, interpreter=str(evil))
    ended = await run_by_a_worker(world)
    assert list(trace.iterdir()) == []
    assert ended.state is State.SUCCESS, ended


@as_root
async def test_a_folder_of_a_stranger_that_a_row_names_is_not_run(world: World) -> None:
    theirs = function_project(world.folder / "theirs", CODE)
    os.chown(theirs, STRANGER, STRANGER)
    await rewrite(world, root=str(theirs))
    ended = await run_by_a_worker(world)
    assert (ended.state, ended.reason) == (State.FAILED, Reason.ERROR)
    assert f"{theirs} belongs to another user (number {STRANGER})" in str(ended.error)
    assert "WINDLASS_PROJECT_OWNERS" in str(ended.error)


@as_root
async def test_an_interpreter_that_a_stranger_could_replace_is_not_executed(world: World) -> None:
    binaries = world.project / ".venv" / "bin"
    binaries.mkdir(parents=True)
    (binaries / "python").symlink_to("/usr/bin/python3")
    os.chown(binaries, STRANGER, STRANGER)
    ended = await run_by_a_worker(world)
    assert (ended.state, ended.reason) == (State.FAILED, Reason.ERROR)
    assert f"{binaries} belongs to another user" in str(ended.error)


def test_a_folder_that_everyone_can_write_to_is_not_trusted(open_folder: Path) -> None:
    project, trusted = function_project(open_folder / "project", CODE), TrustedProjects.of(())
    project.chmod(0o777)
    with pytest.raises(ProjectError, match=f"{project} can be written by everyone"):
        trusted.checked(project)
    for mode in (0o755, 0o1777):
        project.chmod(mode)
        assert trusted.checked(project) == project


@as_root
async def test_projects_of_named_users_are_run(world: World) -> None:
    os.chown(world.project, STRANGER, STRANGER)
    ended = await run_by_a_worker(world, WINDLASS_PROJECT_OWNERS=str(STRANGER))
    assert ended.state is State.SUCCESS, ended


async def test_a_crew_gets_nothing_of_its_workers_environment_that_is_not_listed(world: World) -> None:
    (world.project / ".env").write_text("OF_THE_PROJECT=1\n")
    closed = ("PGPASSWORD", "PGHOST", "AWS_SECRET_ACCESS_KEY", "DATABASE_URL", "SENTRY_DSN", "WINDLASS_TOKEN")
    passed = {"OPENAI_API_KEY": "key", "MODEL": "gpt", "CITY": "Bergen", "MAP_SERVER": "maps"}
    ended = await run_by_a_worker(world, **dict.fromkeys(closed, "secret"), **passed, WINDLASS_CREW_ENV="CITY, MAP_*")
    assert ended.state is State.SUCCESS, ended
    found = loaded(ended.structured)
    assert not set(closed) & found.keys()
    assert found.keys() >= {*passed, "OF_THE_PROJECT", "PATH"}
    assert "secret" not in found.values()
