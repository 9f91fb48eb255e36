from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from api.serving import INPUTS_SCHEMA, unknown_id

if TYPE_CHECKING:
    from api.serving import Crew, Server

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_the_inputs_are_the_required_names_in_the_crews_order_with_the_schema(crew: Crew) -> None:
    answer = await crew.get("/inputs")
    assert answer.json() == {"inputs": ["topic", "audience"], "schema": INPUTS_SCHEMA}
    assert answer.headers["content-type"] == "application/json"


async def test_a_crew_without_inputs_has_none_and_takes_an_empty_object(server: Server) -> None:
    crew = await server.crew(inputs_schema={"type": "object"})
    assert (await crew.get("/inputs")).json() == {"inputs": [], "schema": {"type": "object"}}
    assert (await crew.post({"inputs": {}})).status_code == 200


async def test_the_inputs_come_with_what_the_crew_can_not_do(server: Server) -> None:
    warning = {"code": "crewai_without_events", "message": "crewai 0.80.0 has no events"}
    crew = await server.crew(inputs_schema={"type": "object"}, warnings=[warning])
    assert (await crew.get("/inputs")).json()["warnings"] == [warning]


@pytest.mark.parametrize("path", ["", "/", "//"])
async def test_the_base_url_says_healthy_to_a_valid_token_alone(crew: Crew, path: str) -> None:
    healthy = await crew.get(path)
    assert (healthy.status_code, healthy.text) == (200, "Healthy")
    assert healthy.headers["content-type"].startswith("text/plain")
    assert (await crew.get(path, token="")).status_code == 401


async def test_a_kickoff_is_answered_with_its_id_alone(crew: Crew) -> None:
    answer = await crew.post({"inputs": {"topic": "tides", "audience": "sailors"}})
    assert answer.status_code == 200
    assert answer.json().keys() == {"kickoff_id"}
    assert answer.headers["content-type"] == "application/json"


async def test_a_kickoff_that_was_answered_is_a_row_with_the_crews_current_version(crew: Crew) -> None:
    row = await crew.row(await crew.kickoff({"topic": "tides", "audience": ["sailors", 7, None]}))
    version = crew.deployment.version
    assert version is not None
    assert row["inputs"] == {"topic": "tides", "audience": ["sailors", 7, None]}
    assert (row["state"], row["version_id"], row["user_id"]) == ("PENDING", version.id, None)


async def test_a_kickoff_with_a_user_token_belongs_to_its_user(crew: Crew) -> None:
    token = await crew.token_of(f"ada of {crew.path}")
    row = await crew.row(await crew.kickoff(token=token))
    assert row["user_id"] == await crew.server.tokens.enabled_user(f"ada of {crew.path}")


async def test_the_status_is_the_same_at_the_path_of_old_clients(crew: Crew) -> None:
    kickoff = await crew.kickoff()
    assert (await crew.get(f"/{kickoff}/status")).json() == await crew.status(kickoff)


@pytest.mark.parametrize("path", ["/", "/inputs", "/status/{id}", "/{id}/status", "/openapi.json", "/docs"])
async def test_head_answers_as_get_does_without_a_body(crew: Crew, path: str) -> None:
    path = path.format(id=await crew.kickoff())
    got, head = await crew.get(path), await crew.request("HEAD", path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"] == got.headers["content-type"]
    assert head.headers["content-length"] == got.headers["content-length"]


async def test_head_of_an_error_has_no_body_either(crew: Crew) -> None:
    answer = await crew.request("HEAD", f"/status/{unknown_id()}")
    assert (answer.status_code, answer.content) == (404, b"")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/kickoff", "POST"),
        ("POST", "/inputs", "GET, HEAD"),
        ("DELETE", "/status/x", "GET, HEAD"),
        ("OPTIONS", "/kickoff", "POST"),
        ("PUT", "/", "GET, HEAD"),
    ],
)
async def test_a_wrong_method_is_told_the_right_ones(crew: Crew, method: str, path: str, allowed: str) -> None:
    answer = await crew.request(method, path)
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
    assert answer.json() == {"error": "Method Not Allowed", "message": f"This path takes {allowed}.", "details": {}}


@pytest.mark.parametrize("path", ["/nothing", "/kickoff/", "/status", "/status/", "/a/b/c/d", "/docs/other.js", "/%00"])
async def test_an_unknown_path_is_404_in_the_one_form(crew: Crew, path: str) -> None:
    answer = await crew.get(path)
    assert answer.status_code == 404
    assert answer.json()["error"] == "Not Found"
    assert "openapi.json" in answer.json()["message"]


@pytest.mark.parametrize(
    "slug", ["no-such-crew", "Upper", "%00", "a%0Ab", "\N{LATIN SMALL LETTER E WITH ACUTE}", "x" * 5000]
)
async def test_an_unknown_crew_is_404_whatever_its_name(crew: Crew, slug: str) -> None:
    answer = await crew.server.http.get(
        f"{crew.server.url}/crews/{slug}/inputs", headers={"Authorization": f"Bearer {crew.token}"}
    )
    assert answer.status_code == 404
    assert "There is no crew" in answer.json()["message"]
    assert len(answer.json()["message"]) < 200
