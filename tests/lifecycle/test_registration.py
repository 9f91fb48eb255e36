from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.deployments.registration import Registration, slug_of
from windlass.errors import ProjectError
from windlass.store.deployments import DeploymentStore

if TYPE_CHECKING:
    from pathlib import Path

    from lifecycle.running import World


@pytest.fixture
def store(world: World) -> DeploymentStore:
    return DeploymentStore(world.database)


async def test_a_project_is_registered_as_it_was_inspected(world: World) -> None:
    assert world.version.number == 1
    assert world.version.source == {
        "kind": "function",
        "root": str(world.project),
        "entrypoint": "work:run",
        "interpreter": str(world.registration.interpreter),
        "preload": None,
        "options": {},
    }
    assert [task.name for task in world.version.manifest.tasks] == ["run"]


async def test_a_project_that_has_not_changed_is_known_without_loading_it(world: World, store: DeploymentStore) -> None:
    assert await Registration.of(world.project).known(store) == world.deployment


async def test_a_project_that_has_changed_is_not_known_and_becomes_a_new_version(
    world: World, store: DeploymentStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "windlass")
    with (world.project / "work.py").open("a") as code:
        code.write("\n# changed\n")
    changed = Registration.of(world.project)
    assert await changed.known(store) is None
    deployment = await changed.inspect(store, world.runner, {})
    assert deployment.version is not None
    assert (deployment.id, deployment.version.number) == (world.deployment.id, 2)
    assert await changed.known(store) == deployment
    assert "deployment.registered" in [record.message for record in caplog.records]


async def test_a_project_that_moved_to_another_folder_is_not_known(world: World, store: DeploymentStore) -> None:
    moved = world.project.rename(world.project.parent / "moved")
    assert await Registration.of(moved).known(store) is None


async def test_a_project_that_cannot_be_loaded_is_not_registered(world: World, store: DeploymentStore) -> None:
    (world.project / "work.py").write_text("import nothing_like_that\n")
    with pytest.raises(ProjectError, match="nothing_like_that"):
        await Registration.of(world.project).inspect(store, world.runner, {})
    assert await store.get(world.deployment.slug) == world.deployment


async def test_a_project_that_nobody_registered_is_not_known(world: World, store: DeploymentStore) -> None:
    (world.project / "pyproject.toml").write_text(
        '[project]\nname = "Another One"\n[tool.windlass]\nentrypoint = "work:run"\n'
    )
    registration = Registration.of(world.project)
    assert registration.slug == "another-one"
    assert await registration.known(store) is None


def test_a_folder_that_is_no_project_is_told(tmp_path: Path) -> None:
    with pytest.raises(ProjectError):
        Registration.of(tmp_path)


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("Research Crew", "research-crew"),
        ("research_crew", "research-crew"),
        ("--x--", "x"),
        ("Ünï", "n"),
        ("***", "crew"),
        ("", "crew"),
        ("a" * 62 + "-b", "a" * 62),
        ("İ", "i"),
    ],
)
def test_a_name_becomes_an_address(name: str, slug: str) -> None:
    assert slug_of(name) == slug


@given(st.text())
def test_whatever_the_name_its_address_is_one_label_of_a_host_name(name: str) -> None:
    slug = slug_of(name)
    assert 1 <= len(slug) <= 63
    assert slug.strip("-") == slug
    assert set(slug) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert slug_of(slug) == slug
