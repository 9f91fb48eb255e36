"""People answer the questions of all crews over the control API."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from api.control import Person
from api.runs import begin
from windlass.rights import Role

if TYPE_CHECKING:
    from api.serving import Crew

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def asking(crew: Crew, **fields: Any) -> tuple[str, str]:
    """The ids of a kickoff and of the question that it waits for."""
    run = await begin(crew, kickoff := await crew.kickoff())
    await run.start_task(0)
    return kickoff, str(await run.ask(**fields))


async def test_what_waits_is_listed_in_pages_and_shown_with_its_draft(crew: Crew) -> None:
    ann = await Person.of(crew.server, Role.VIEWER)
    asked = [await asking(crew, seconds=60.0) for _ in range(3)]
    slug = crew.deployment.slug
    first = await ann.value("GET", f"/approvals?deployment={slug}&limit=2")
    second = await ann.value("GET", f"/approvals?deployment={slug}&limit=2&cursor={first['next_cursor']}")
    items = first["items"] + second["items"]
    assert [(one["kickoff_id"], one["id"]) for one in items] == asked
    assert second["next_cursor"] is None
    kickoff, question = asked[0]
    for given in (question, kickoff):
        found = await ann.value("GET", f"/approvals/{given}")
        assert (found["id"], found["state"], found["deployment"]) == (question, "waiting", slug)
        assert (found["draft"], found["draft_length"], found["task"]) == ("# A draft", 9, "research")
    await ann.refused("GET", "/approvals?deployment=no-such-crew", status=404)
    await ann.refused("GET", "/approvals/none", status=404)
    await ann.refused("GET", f"/approvals/{crew.deployment.id}", status=404)


async def test_one_answer_counts_and_says_who_gave_it(crew: Crew) -> None:
    ann = await Person.of(crew.server, Role.DEVELOPER)
    kickoff, question = await asking(crew)
    body = {"approve": False, "feedback": "shorter"}
    answers = await asyncio.gather(
        *(ann.request("POST", f"/approvals/{given}/answer", json=body) for given in (question, kickoff))
    )
    assert sorted(answer.status_code for answer in answers) == [200, 409]
    found = await ann.value("GET", f"/approvals/{question}")
    assert (found["state"], found["approved"], found["feedback"]) == ("answered", False, "shorter")
    assert found["answered_by"].startswith(ann.name)
    (entry,) = await crew.server.database.rows(
        "SELECT * FROM audit_log WHERE action = 'kickoff.answer' AND target = %(kickoff)s", {"kickoff": kickoff}
    )
    assert entry["user"] == ann.name
    assert "shorter" not in str(entry)


async def test_a_choice_needs_no_approval_and_without_choices_the_approval_is_missing(crew: Crew) -> None:
    ann = await Person.of(crew.server, Role.DEVELOPER)
    _, question = await asking(crew, choices=["good", "bad"])
    answered = await ann.value("POST", f"/approvals/{question}/answer", json={"feedback": "bad"})
    assert (answered["approved"], answered["feedback"]) == (True, "bad")
    kickoff, question = await asking(crew)
    await ann.refused("POST", f"/approvals/{question}/answer", status=400, json={"feedback": "fine"})
    await crew.stop(kickoff)
    refused = await ann.refused("POST", f"/approvals/{question}/answer", status=400, json={"approve": True})
    assert "has ended" in refused["message"]
    assert (await ann.value("GET", f"/approvals/{question}"))["state"] == "closed"


async def test_a_viewer_answers_only_where_the_setting_names_the_viewer(crew: Crew) -> None:
    ann, bob = await Person.of(crew.server, Role.VIEWER), await Person.of(crew.server, Role.DEVELOPER)
    _, question = await asking(crew)
    await ann.refused("POST", f"/approvals/{question}/answer", status=403, json={"approve": True})
    settings = {"approvers": [ann.name]}
    await bob.value("PATCH", f"/deployments/{crew.deployment.slug}/settings", json=settings)
    await bob.refused("POST", f"/approvals/{question}/answer", status=403, json={"approve": True})
    await ann.value("POST", f"/approvals/{question}/answer", json={"approve": True})


async def test_an_approver_whom_the_server_does_not_know_is_a_warning(crew: Crew) -> None:
    ann, bob = await Person.of(crew.server, Role.VIEWER), await Person.of(crew.server, Role.DEVELOPER)
    path, names = f"/deployments/{crew.deployment.slug}/settings", [ann.name, "owner", "webhook", "Develper", "eve"]
    changed = await bob.value("PATCH", path, json={"approvers": names})
    assert changed["settings"]["approvers"] == names, "a user may be added later"
    assert [one["setting"] for one in changed["warnings"]] == ["approvers", "approvers"]
    typo, stranger = (one["message"] for one in changed["warnings"])
    assert typo.startswith("There is no user 'Develper'. Did you mean developer? The roles are users, viewer, ")
    assert stranger.startswith("There is no user 'eve'. The roles are ")
    assert (await bob.value("GET", path))["warnings"] == changed["warnings"]
    await crew.server.tokens.add_user("eve")
    assert [one["message"] for one in (await bob.value("GET", path))["warnings"]] == [typo]


@pytest.mark.parametrize("name", ["a" * 101, "a\nb", "a\u202eb"])
async def test_what_can_be_no_name_of_a_user_is_refused_by_its_name(crew: Crew, name: str) -> None:
    bob = await Person.of(crew.server, Role.DEVELOPER)
    path = f"/deployments/{crew.deployment.slug}/settings"
    refused = await bob.refused("PATCH", path, status=400, json={"approvers": ["owner", name]})
    assert f"{name[:100]!r} is no role and can't be the name of a user" in refused["details"]["invalid"]["approvers"]


@pytest.mark.parametrize(
    "settings",
    [
        {"approval_timeout": 0},
        {"approval_on_timeout": ""},
        {"approvers": 1},
        {"approvers": [""]},
        {"approvers": [1]},
    ],
)
async def test_a_wrong_setting_is_refused(crew: Crew, settings: dict[str, Any]) -> None:
    bob = await Person.of(crew.server, Role.DEVELOPER)
    await bob.refused("PATCH", f"/deployments/{crew.deployment.slug}/settings", status=400, json=settings)
