"""The faults that end processes, where these run several kickoffs, one after the other (`reuse`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from faults import test_faults as suite
from faults.cluster import Cluster
from projects_for_tests.places import folder_for_all

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = suite.pytestmark
cluster = suite.cluster

test_child_killed = suite.test_a_child_that_is_killed_fails_its_kickoff_and_no_other
test_child_followed = suite.test_a_child_that_is_killed_is_followed_by_another_where_its_project_wants_that
test_zygote_killed = suite.test_kickoffs_of_a_zygote_that_is_killed_run_again_from_the_task_that_was_in_flight
test_worker_stood_still = suite.test_a_worker_that_stood_still_has_lost_its_kickoffs_to_another


@pytest.fixture(params=["crew"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


test_worker_killed = suite.test_kickoffs_of_a_worker_that_is_killed_go_on_elsewhere


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def the_cluster() -> AsyncIterator[Cluster]:
    with folder_for_all() as place:
        async with Cluster(place, settings=suite.SETTINGS, reuse=20, forked=True) as cluster:
            for kind in cluster.kinds:
                before = []
                for _ in range(3 * len(cluster.workers)):
                    before.append(await cluster.kickoff(kind))
                    await cluster.ended(before[-1])
                pids = {call.pid for started in before for call in cluster.witness.calls(started.run)}
                assert 0 < len(pids) < len(before), f"processes of {kind} are used again"
            yield cluster
