from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from store.kickoff_rows import TASKS, Rows, manifest
from windlass.kickoffs.ids import new_id
from windlass.store.deployments import Deployment, DeploymentStore
from windlass.store.overview import DeploymentFilter, OverviewStore

if TYPE_CHECKING:
    from windlass.kickoffs.manifest import Manifest

SOURCE: dict[str, Any] = {"kind": "function", "root": "/x"}


class Registry:
    def __init__(self, rows: Rows) -> None:
        self.store = DeploymentStore(rows.database)

    async def register(
        self, digest: str = "d", source: dict[str, Any] | None = None, found: Manifest | None = None, slug: str = "crew"
    ) -> Deployment:
        return await self.store.register(slug, digest=digest, source=source or SOURCE, manifest=found or manifest())


async def test_a_crew_is_registered_with_its_first_version(rows: Rows) -> None:
    deployment = await Registry(rows).register()
    assert (deployment.slug, deployment.profile) == ("crew", "documented")
    assert deployment.version is not None
    assert (deployment.version.number, deployment.version.digest) == (1, "d")
    assert (deployment.version.source, deployment.version.manifest) == (SOURCE, manifest())
    assert await Registry(rows).store.get("crew") == deployment


async def test_the_same_again_is_the_same_version(rows: Rows) -> None:
    registry = Registry(rows)
    assert await registry.register() == await registry.register()


async def test_another_digest_source_or_manifest_is_a_new_version(rows: Rows) -> None:
    registry = Registry(rows)
    first = await registry.register()
    found = [
        await registry.register(digest="e"),
        await registry.register(digest="e", source={"kind": "function", "root": "/y"}),
        await registry.register(digest="e", source={"kind": "function", "root": "/y"}, found=manifest(TASKS[:1])),
    ]
    assert [deployment.version.number for deployment in found if deployment.version] == [2, 3, 4]
    assert {deployment.id for deployment in found} == {first.id}


async def test_going_back_is_a_new_version_too(rows: Rows) -> None:
    registry = Registry(rows)
    await registry.register("a")
    await registry.register("b")
    again = await registry.register("a")
    assert again.version is not None
    assert again.version.number == 3


async def test_servers_that_register_at_once_make_one(rows: Rows) -> None:
    registry = Registry(rows)
    found = await asyncio.gather(*(registry.register() for _ in range(8)))
    assert len({deployment.id for deployment in found}) == 1
    assert {deployment.version.number for deployment in found if deployment.version} == {1}


async def test_names_that_text_cannot_hold_do_not_make_a_version_at_each_start(rows: Rows) -> None:
    registry = Registry(rows)
    strange = manifest([{"key": "k", "name": "a\x00\ud800", "agent": "\ud800"}])
    first, again = await registry.register(found=strange), await registry.register(found=strange)
    assert first == again
    assert first.version is not None
    assert first.version.manifest.tasks[0].task_id == "a\ufffd\ufffd"


async def test_the_manifest_of_a_version_can_be_read_by_itself(rows: Rows) -> None:
    registry = Registry(rows)
    deployment = await registry.register()
    assert deployment.version is not None
    assert await registry.store.manifest(deployment.version.id) == manifest()
    assert await registry.store.manifest(new_id()) is None


async def test_the_profile_is_the_option_of_the_latest_version(rows: Rows) -> None:
    registry = Registry(rows)
    deployment = await registry.register(source={**SOURCE, "options": {"profile": "live"}})
    assert deployment.profile == "live"
    assert await registry.store.get("crew") == deployment
    assert (await registry.register()).profile == "documented"


async def test_crews_are_listed_by_name(rows: Rows) -> None:
    registry = Registry(rows)
    for slug in ("b", "a"):
        await registry.register(slug=slug)
    assert [row["slug"] for row in await registry.store.all()] == ["a", "b", "work"]
    assert len(await registry.store.all(limit=2)) == 2


async def test_a_crew_that_nobody_registered_is_none(rows: Rows) -> None:
    assert await Registry(rows).store.get("nobody") is None


async def test_the_options_of_the_newest_version_rule_the_queue(rows: Rows) -> None:
    registry = Registry(rows)
    options = {"concurrency": 3, "weight": 0.5, "max_waiting": 9, "concurrency_strategy": "reject"}
    await registry.register("a", source=SOURCE | {"options": options})
    assert await queue_of(rows) == options
    await registry.register("b", source=SOURCE | {"options": {"weight": 2}})
    assert await queue_of(rows) == {
        "concurrency": None,
        "weight": 2,
        "max_waiting": None,
        "concurrency_strategy": "enqueue",
    }


async def test_a_pause_outlasts_a_new_version(rows: Rows) -> None:
    registry = Registry(rows)
    await registry.register("a")
    await registry.store.pause("crew")
    await registry.register("b")
    assert [
        one.slug for one in await OverviewStore(rows.database).deployments(DeploymentFilter(state="paused"), limit=9)
    ] == ["crew"]


async def queue_of(rows: Rows) -> dict[str, Any]:
    query = "SELECT concurrency, weight, max_waiting, concurrency_strategy FROM deployments WHERE slug = 'crew'"
    (row,) = await rows.database.rows(query)
    return row
