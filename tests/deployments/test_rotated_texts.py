"""Texts of tasks that contain a rotating secret: refused at deploy, or reported on a kickoff that ends properly.

With a real crew, whose variable comes from a secret manager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from projects_for_tests.crews import PRELUDE, PYPROJECT
from store.whole import events_of, loaded
from windlass.kickoffs.states import Reason, State

if TYPE_CHECKING:
    from deployments.builds_of_tests import Server
    from windlass.store.builds import Build
    from windlass.store.reading import KickoffStatus

pytestmark = pytest.mark.xdist_group("crewai")

FIRST, SECOND = "tok-live-Xk29vQ7mT4", "tok-live-9zR8bLwPq3"
EMBEDS = """
token = os.environ["TOKEN"]
agent = worker()
tasks = [
    Task(name="log in", description=f"Log in with {token}", expected_output="Work", agent=agent),
    Task(name="report", description="Report", expected_output="Work", agent=agent),
]
crew = Crew(agents=[agent], tasks=tasks)
"""
NOT_WITH_OTHERS = 'if not os.environ["TOKEN"].startswith("tok-live-"):\n    raise ValueError("this is no token")\n'


async def built(server: Server, code: str) -> Build:
    return await server.build({"pyproject.toml": PYPROJECT, "work/__init__.py": "", "work/crew.py": PRELUDE + code})


async def ran(server: Server) -> KickoffStatus:
    kickoff = await server.kickoff()
    status = await server.result(kickoff)
    stored = repr([status, await events_of(server.kickoffs, kickoff)])
    assert FIRST not in stored
    assert SECOND not in stored
    return status


def codes(status: KickoffStatus) -> list[tuple[str, str | None]]:
    return [(one["code"], one.get("task_id")) for one in loaded(status.warnings)]


async def test_a_description_that_contains_a_rotating_secret(server: Server) -> None:
    server.managers.secrets["token"] = FIRST
    await server.take_from(await server.add_credential("rotating"), "TOKEN", "token")

    refused = await built(server, EMBEDS)
    assert refused.error == (
        "the task log in depends on the value of a secret variable (TOKEN): with another value it counts as another "
        "task."
    )

    unchecked = await built(server, NOT_WITH_OTHERS + EMBEDS)
    assert unchecked.state == "ready", unchecked.error
    log = "\n".join(await server.log(unchecked))
    assert "it was not checked whether its tasks depend on them" in log
    assert "The value of the secret variable TOKEN is in the description of the task log in" in log
    assert FIRST not in log
    version = await server.current()
    assert version is not None
    assert [one["code"] for one in version.manifest.warnings] == ["secret_in_prompt"]

    await server.worker()
    before = await ran(server)
    assert before.state is State.SUCCESS, before.error
    assert codes(before) == [("secret_in_prompt", "log in")]

    server.managers.secrets["token"] = SECOND
    after = await ran(server)
    assert after.state is State.SUCCESS, after.error
    assert codes(after) == [("secret_in_prompt", "log in"), ("unstable_task_description", "log in")]
    assert [(task["task_id"], task["state"], task["unregistered"]) for task in loaded(after.tasks)] == [
        ("log in", "completed", True),
        ("report", "completed", False),
    ]

    await server.database.execute("""UPDATE deployments SET settings = '{"secret_in_prompt": "refuse"}'""")
    ended = await ran(server)
    assert (ended.state, ended.reason) == (State.FAILED, Reason.SECRETS)
    assert "TOKEN is in the description of the task log in" in f"{ended.error}"
    assert {task["state"] for task in loaded(ended.tasks)} == {"skipped"}
