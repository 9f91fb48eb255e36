"""Both clients answer the question of a kickoff."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from api.runs import begin
from api.serving import GOOD
from patience import DEADLINE
from windlass.client import AsyncCrew, Conflict, Crew, InvalidRequest, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from api.serving import Crew as Served

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture(params=["sync", "async"])
def ask(request: pytest.FixtureRequest, served: Served) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Calls the method of this name, of the one client or of the other."""

    def in_thread(method: str, *given: Any, **more: Any) -> Any:
        with Crew(served.base_url, served.token, patience=DEADLINE) as crew:
            return getattr(crew, method)(*given, **more)

    async def in_loop(method: str, *given: Any, **more: Any) -> Any:
        async with AsyncCrew(served.base_url, served.token, patience=DEADLINE) as crew:
            return await getattr(crew, method)(*given, **more)

    async def threaded(method: str, *given: Any, **more: Any) -> Any:
        return await asyncio.to_thread(in_thread, method, *given, **more)

    return threaded if request.param == "sync" else in_loop


async def test_what_is_asked_is_read_and_answered(ask: Any, served: Served) -> None:
    run = await begin(served, kickoff := await served.kickoff(GOOD))
    question = await run.ask(choices=["good", "bad"], seconds=60.0)
    status = await ask("status", kickoff, wait=DEADLINE)
    found = status.human_input
    assert (found.task_id, found.task, found.question, found.draft) == (
        str(question),
        "research",
        "Is it good?",
        "# A draft",
    )
    assert (found.choices, found.asked_at < found.expires_at) == (["good", "bad"], True)
    resumed = await ask("resume", kickoff, feedback="good")
    assert (resumed.kickoff_id, resumed.status) == (kickoff, "resumed")
    assert (await ask("status", kickoff)).human_input is None


async def test_a_task_is_named_and_runs_again_with_feedback(ask: Any, served: Served) -> None:
    run = await begin(served, kickoff := await served.kickoff(GOOD))
    await run.ask()
    resumed = await ask("resume", kickoff, "research", approve=False, feedback="shorter", idempotency_key="once")
    assert resumed.status == "retrying"
    again = await ask("resume", kickoff, "research", approve=False, feedback="shorter", idempotency_key="once")
    assert again == resumed
    with pytest.raises(Conflict):
        await ask("resume", kickoff, "research", approve=True)
    with pytest.raises(NotFound):
        await ask("resume", kickoff, "nothing", approve=True)
    with pytest.raises(InvalidRequest, match="does not wait for an answer: its state is PENDING"):
        await ask("resume", kickoff, approve=True)


async def test_a_wait_goes_on_over_a_question(ask: Any, served: Served) -> None:
    run = await begin(served, kickoff := await served.kickoff(GOOD))
    await run.ask()
    waiting = asyncio.create_task(ask("wait", kickoff))
    await ask("resume", kickoff, approve=True)
    await (await begin(served, kickoff)).succeed()
    assert (await waiting).state == "SUCCESS"
