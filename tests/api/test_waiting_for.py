from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from api.runs import begin

if TYPE_CHECKING:
    from api.serving import Crew

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def waits_for(crew: Crew, kickoff: str) -> dict[str, Any]:
    found: dict[str, Any] = (await crew.status(kickoff))["waiting_for"]
    assert found.keys() == {"code", "message", "place"}
    assert found["message"]
    return found


@pytest.fixture
def asked(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kickoffs of which it was asked what they wait for."""
    seen: list[str] = []
    ask = crew.server.kickoffs.facts_of_waiting

    async def facts(kickoffs: Any) -> Any:
        seen.extend(map(str, kickoffs))
        return await ask(kickoffs)

    monkeypatch.setattr(crew.server.kickoffs, "facts_of_waiting", facts)
    return seen


async def test_a_kickoff_without_a_worker_waits_for_one(crew: Crew) -> None:
    assert (await waits_for(crew, await crew.kickoff()))["code"] == "worker"


async def test_a_kickoff_of_a_paused_crew_waits_for_it_to_be_resumed(crew: Crew) -> None:
    await crew.server.deployments.pause(crew.deployment.slug)
    assert (await waits_for(crew, await crew.kickoff()))["code"] == "paused"


async def test_a_kickoff_waits_for_its_time(crew: Crew) -> None:
    at = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    assert (await waits_for(crew, await crew.kickoff(runAt=at)))["code"] == "time"


async def test_a_kickoff_waits_for_the_one_that_has_its_key(crew: Crew) -> None:
    await begin(crew, first := await crew.kickoff(concurrencyKey="a"))
    found = await waits_for(crew, await crew.kickoff(concurrencyKey="a"))
    assert found["code"] == "key"
    assert first in found["message"]


async def test_a_running_kickoff_waits_for_nothing_and_costs_no_second_question(crew: Crew, asked: list[str]) -> None:
    await begin(crew, kickoff := await crew.kickoff())
    assert (await crew.status(kickoff))["waiting_for"] is None
    assert asked == []


async def test_a_kickoff_whose_process_is_being_started_says_so(crew: Crew) -> None:
    await begin(crew, kickoff := await crew.kickoff())
    says = "UPDATE kickoffs SET waiting_for = 'zygote' WHERE id = %(id)s::uuid"
    await crew.server.database.execute(says, {"id": kickoff})
    assert (await waits_for(crew, kickoff))["code"] == "zygote"


async def test_a_kickoff_that_has_ended_has_no_such_member_and_is_not_asked_for(crew: Crew, asked: list[str]) -> None:
    await crew.stop(kickoff := await crew.kickoff())
    assert "waiting_for" not in await crew.status(kickoff)
    assert asked == []


async def test_the_words_are_the_same_at_the_path_of_old_clients(crew: Crew) -> None:
    kickoff = await crew.kickoff()
    old = (await crew.get(f"/{kickoff}/status")).json()
    assert old["waiting_for"] == await waits_for(crew, kickoff)
