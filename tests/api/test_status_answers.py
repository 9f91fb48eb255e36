from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from api.runs import begin
from api.serving import TASKS, manifest, until
from windlass.kickoffs.events import StoredEvent
from windlass.kickoffs.states import Reason, State
from windlass.store import reading
from windlass.store.kickoffs import KickoffStore
from windlass.store.reporting import Batch

if TYPE_CHECKING:
    from api.serving import Crew

pytestmark = pytest.mark.asyncio(loop_scope="session")

USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 20,
    "total_tokens": 120,
    "cached_prompt_tokens": 5,
    "reasoning_tokens": 3,
    "successful_requests": 1,
}
ALWAYS = {
    "kickoff_id",
    "status",
    "state",
    "created_at",
    "started_at",
    "finished_at",
    "meta",
    "attempt",
    "tasks",
}
ON_THE_WAY = {"current_task", "progress", "waiting_for"}
AT_THE_END = {"token_usage", "execution_time"}
LIVE = {
    "usage_metrics",
    "progress",
    "last_executed_task",
    "last_step",
    "events_count",
    "triggered_by",
    "execution_origin",
}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


def states(status: dict[str, Any]) -> list[str]:
    return [task["state"] for task in status["tasks"]]


async def test_a_waiting_kickoff_is_running_in_the_public_words_with_its_tasks_to_come(crew: Crew) -> None:
    before = datetime.now(UTC)
    kickoff = await crew.kickoff(meta={"order": 7})
    status = await crew.status(kickoff)
    assert status.keys() == ALWAYS | ON_THE_WAY
    assert (status["kickoff_id"], status["status"], status["state"]) == (kickoff, "running", "PENDING")
    assert (status["started_at"], status["finished_at"], status["attempt"]) == (None, None, 0)
    assert status["meta"] == {"order": 7}
    assert abs(datetime.fromisoformat(status["created_at"]) - before) < timedelta(minutes=2)
    assert states(status) == ["pending_run", "pending_run"]
    assert [task["task_id"] for task in status["tasks"]] == ["research", TASKS[1]["key"]]
    assert (status["current_task"], status["progress"]) == (None, {"completed_tasks": 0, "total_tasks": 2})


async def test_a_running_kickoff_shows_its_task_and_its_progress(crew: Crew) -> None:
    run = await begin(crew, kickoff := await crew.kickoff())
    await run.start_task(0)
    first = await crew.status(kickoff)
    assert (first["status"], first["state"], first["attempt"]) == ("running", "STARTED", 1)
    assert (first["current_task"], first["progress"]) == ("research", {"completed_tasks": 0, "total_tasks": 2})
    assert states(first) == ["running", "pending_run"]
    await run.end_task(0)
    await run.start_task(1)
    second = await crew.status(kickoff)
    assert second.keys() == ALWAYS | ON_THE_WAY
    assert second["current_task"] == TASKS[1]["key"]
    assert second["progress"] == {"completed_tasks": 1, "total_tasks": 2}
    assert states(second) == ["completed", "running"]


async def test_times_are_utc_with_microseconds(crew: Crew) -> None:
    run = await begin(crew, kickoff := await crew.kickoff())
    await run.start_task(0)
    await run.end_task(0)
    await run.succeed()
    status = await crew.status(kickoff)
    times = [status[name] for name in ("created_at", "started_at", "finished_at")]
    times += [status["tasks"][0][name] for name in ("started_at", "finished_at")]
    assert all(TIME.fullmatch(at) for at in times), times
    assert times[:3] == sorted(times[:3])
    seconds = datetime.fromisoformat(times[2]) - datetime.fromisoformat(times[1])
    assert status["execution_time"] == pytest.approx(seconds.total_seconds())


async def completed(crew: Crew) -> str:
    run = await begin(crew, kickoff := await crew.kickoff())
    for position in (0, 1):
        await run.start_task(position)
        await run.end_task(position, f"output {position}")
    await run.succeed("It is done.", {"answer": [42]})
    return kickoff


async def test_a_completed_kickoff_gives_its_result_as_an_object_in_the_documented_profile(crew: Crew) -> None:
    status = await crew.status(await completed(crew))
    assert status.keys() == ALWAYS | AT_THE_END | {"result"}
    assert (status["status"], status["state"]) == ("completed", "SUCCESS")
    assert status["token_usage"] == USAGE
    assert states(status) == ["completed", "completed"]
    result = status["result"]
    assert (result["output"], result["json"]) == ("It is done.", {"answer": [42]})
    assert result["tasks"][0] == {
        "task_id": "research",
        "name": "research",
        "output": "output 0",
        "agent": "Researcher",
        "execution_time": 1.5,
    }
    assert [task["output"] for task in result["tasks"]] == ["output 0", "output 1"]


async def test_a_token_of_profile_live_gets_the_output_as_a_string(crew: Crew) -> None:
    kickoff = await completed(crew)
    status = await crew.status(kickoff, token=await crew.organization_token(profile="live"))
    assert status.keys() == ALWAYS | AT_THE_END | LIVE | {"result", "result_json", "tasks_output"}
    assert (status["result"], status["result_json"]) == ("It is done.", {"answer": [42]})
    assert (status["status"], status["state"], status["usage_metrics"]) == (None, "SUCCESS", USAGE)
    progress = status["progress"]
    assert (progress["completed"], progress["total"], progress["remaining"], progress["unit"]) == (2, 2, 0, "task")
    assert (progress["completed_tasks"], progress["total_tasks"]) == (2, 2)
    assert progress["duration_seconds"] == status["execution_time"]
    assert (status["last_executed_task"]["task_id"], status["last_step"]) == (status["tasks"][1]["task_id"], None)
    assert (status["triggered_by"], status["execution_origin"]) == ({"type": "organization", "id": None}, "api")
    assert [task["output"] for task in status["tasks_output"]] == ["output 0", "output 1"]


async def test_a_kickoff_on_its_way_in_the_profile_live(crew: Crew) -> None:
    live = await crew.organization_token(profile="live")
    kickoff = await crew.kickoff()
    waiting = await crew.status(kickoff, token=live)
    assert (waiting["state"], waiting["progress"]["remaining"], waiting["events_count"]) == ("PENDING", 2, 0)
    assert waiting["status"].startswith("The kickoff waits for ")
    run = await begin(crew, kickoff)
    await run.start_task(0)
    events = [
        StoredEvent(1, "tool_usage_finished", 1.0, '{"tool_name":"look"}'),
        StoredEvent(2, "llm_call_started", 1.0, "{}"),
    ]
    await KickoffStore(crew.server.database).write_reports(UUID(kickoff), 1, Batch(events=events))
    running = await crew.status(kickoff, token=live)
    assert (running["state"], running["status"]) == ("RUNNING", "The task research runs.")
    assert (running["progress"]["current"], running["progress"]["current_agent"]) == ("research", "Researcher")
    assert (running["last_step"]["type"], running["last_step"]["data"]) == (
        "tool_usage_finished",
        {"tool_name": "look"},
    )
    assert running["events_count"] == 2
    await run.fail(Reason.ERROR, "it could not be done")
    failed = await crew.status(kickoff, token=live)
    assert (failed["state"], failed["status"], failed["error"]) == ("FAILED", *["it could not be done"] * 2)


async def test_a_deployment_of_profile_live_gives_it_to_all_but_tokens_with_a_profile_of_their_own(crew: Crew) -> None:
    kickoff = await completed(crew)
    documented = await crew.organization_token(profile="documented")
    version = crew.deployment.version
    assert version is not None
    source = {**version.source, "options": {"profile": "live"}}
    await crew.server.deployments.register(
        crew.deployment.slug, digest=version.digest, source=source, manifest=version.manifest
    )

    async def live() -> bool:
        return bool((await crew.status(kickoff))["result"] == "It is done.")

    await until(live, "the server hears of the deployment's new profile")
    assert (await crew.status(kickoff, token=documented))["result"]["output"] == "It is done."


@pytest.mark.parametrize("most_together", [reading.MOST_TOGETHER, 1], ids=["small", "large"])
async def test_a_status_is_written_without_spaces_also_in_the_parts_of_the_database(
    crew: Crew, monkeypatch: pytest.MonkeyPatch, most_together: int
) -> None:
    kickoff = await completed(crew)
    monkeypatch.setattr(reading, "MOST_TOGETHER", most_together)
    text = (await crew.get(f"/status/{kickoff}")).text
    assert text == json.dumps(json.loads(text), separators=(",", ":"))


@pytest.mark.parametrize("profile", ["documented", "live"])
async def test_a_crew_without_structured_output_has_null_there(crew: Crew, profile: str) -> None:
    run = await begin(crew, kickoff := await crew.kickoff())
    await run.succeed("")
    status = await crew.status(kickoff, token=await crew.organization_token(profile=profile))
    found = status["result"]["json"] if profile == "documented" else status["result_json"]
    assert found is None


async def test_any_text_and_any_json_come_back_as_the_crew_gave_them(crew: Crew) -> None:
    odd = 'NUL \x00, quote ", tab \t, pair \N{GRINNING FACE}, half \ud800, separator \u2028'
    run = await begin(crew, kickoff := await crew.kickoff())
    await run.start_task(0)
    await run.end_task(0, odd)
    await run.succeed(odd, {odd: [1.5, odd, None, -0.0, 10**30]})
    result = (await crew.status(kickoff))["result"]
    assert result["output"] == odd
    assert result["json"] == {odd: [1.5, odd, None, 0.0, 10**30]}
    assert result["tasks"][0]["output"] == odd


async def test_a_failed_kickoff_says_why_and_leaves_no_task_open(crew: Crew) -> None:
    run = await begin(crew, kickoff := await crew.kickoff())
    await run.start_task(0)
    await run.fail(Reason.CRASHED, "the crew's process was killed by SIGKILL.")
    status = await crew.status(kickoff)
    assert status.keys() == ALWAYS | AT_THE_END | {"reason", "error"}
    assert (status["status"], status["state"]) == ("error", "FAILED")
    assert (status["reason"], status["error"]) == ("crashed", "the crew's process was killed by SIGKILL.")
    assert states(status) == ["failed", "skipped"]
    assert status["token_usage"] == USAGE


@pytest.mark.parametrize("profile", ["documented", "live"])
async def test_a_failed_kickoff_has_no_result_in_any_profile(crew: Crew, profile: str) -> None:
    run = await begin(crew, kickoff := await crew.kickoff())
    await run.fail()
    status = await crew.status(kickoff, token=await crew.organization_token(profile=profile))
    assert not status.keys() & {"result", "result_json", "tasks_output"}


@pytest.mark.parametrize("reason", list(Reason))
async def test_every_reason_of_a_bad_end_is_told(crew: Crew, reason: Reason) -> None:
    run = await begin(crew, kickoff := await crew.kickoff())
    await run.fail(reason)
    assert (await crew.status(kickoff))["reason"] == reason


@pytest.mark.parametrize(
    ("state", "reason"), [(State.TIMED_OUT, Reason.TIMED_OUT), (State.CANCELLED, Reason.CANCELLED)]
)
async def test_a_cancelled_or_timed_out_kickoff_has_failed_in_the_public_words(
    crew: Crew, state: State, reason: Reason
) -> None:
    run = await begin(crew, kickoff := await crew.kickoff())
    await run.end(state, reason)
    status = await crew.status(kickoff)
    assert (status["status"], status["state"], status["reason"]) == ("error", "FAILED", reason)


async def test_a_kickoff_that_waits_for_a_human_is_told_so(crew: Crew) -> None:
    await begin(crew, kickoff := await crew.kickoff())
    waits = "UPDATE kickoffs SET state = 'PENDING_HUMAN_INPUT' WHERE id = %(id)s::uuid"
    await crew.server.database.execute(waits, {"id": kickoff})
    status = await crew.status(kickoff)
    assert status.keys() == ALWAYS | ON_THE_WAY
    assert (status["status"], status["state"]) == ("pending_human_input", "PENDING_HUMAN_INPUT")


async def test_a_kickoff_that_waits_again_after_a_loss_shows_its_tasks_to_come(crew: Crew) -> None:
    run = await begin(crew, kickoff := await crew.kickoff())
    await run.start_task(0)
    await run.requeue()
    status = await crew.status(kickoff)
    assert (status["state"], status["attempt"]) == ("PENDING", 1)
    assert status["started_at"] is not None
    assert (status["current_task"], states(status)) == (None, ["pending_run", "pending_run"])


async def test_a_task_that_was_not_registered_is_marked_and_warned_of(crew: Crew) -> None:
    run = await begin(crew, kickoff := await crew.kickoff())
    await run.find_tasks("c" * 32, str(TASKS[1]["key"]))
    await run.succeed()
    status = await crew.status(kickoff)
    assert [task["unregistered"] for task in status["tasks"]] == [True, False]
    (warning,) = status["warnings"]
    assert (warning["code"], warning["task_id"]) == ("unstable_task_description", "c" * 32)


async def test_a_waiting_kickoff_keeps_the_tasks_of_the_version_it_was_accepted_for(crew: Crew) -> None:
    kickoff = await crew.kickoff()
    before = await crew.status(kickoff)
    other = replace(manifest({"type": "object"}), tasks=())
    await crew.server.deployments.register(crew.deployment.slug, digest="1" * 64, source={}, manifest=other)

    async def heard() -> bool:
        return bool((await crew.get("/inputs")).json()["inputs"] == [])

    await until(heard, "the server serves the new version")
    assert await crew.status(kickoff) == before
    assert len(before["tasks"]) == 2
