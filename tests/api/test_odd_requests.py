"""No parameter of a list, and no part of a path, makes an answer of 500. The OpenAPI documents name all of them."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
import pytest_asyncio

from api.control import Person, document
from api.serving import unknown_id
from windlass.rights import Role

if TYPE_CHECKING:
    from collections.abc import Iterator

    from api.serving import Crew, Server

pytestmark = pytest.mark.asyncio(loop_scope="session")

METHODS = {"get", "post", "put", "patch", "delete"}
ODD = (
    "", " ", "\x00", "0", "-1", "1", "1e9", "9" * 30, str(1 << 63), "NaN", "true", "null", "\u00e9\U0001f600", "%", "_",
    "a" * 600, "\u0661", unknown_id(), unknown_id().upper(), "-created_at", "2026-01-01", "2026-01-01T00:00:00",
    "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "1e400", "[]", "{}", "a,b",
)  # fmt: skip


@pytest_asyncio.fixture(loop_scope="session")
async def owner(server: Server) -> Person:
    return await Person.of(server, Role.OWNER)


def lists(described: dict[str, Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yields (path, parameters in the query) of each GET that has such parameters."""
    for path, operations in described["paths"].items():
        operation = operations.get("get", {})
        found = [
            referred(described, one) for one in [*operations.get("parameters", []), *operation.get("parameters", [])]
        ]
        if query := [one for one in found if one["in"] == "query"]:
            yield path, query


def referred(described: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    found: Any = described
    for step in node.get("$ref", "#").split("/")[1:]:
        found = found[step]
    return found if "$ref" in node else node


def values_of(parameter: dict[str, Any]) -> list[str]:
    """Returns the values of an enumeration, and a value that fits others."""
    schema = parameter["schema"]
    choices = [schema, *schema.get("anyOf", []), schema.get("items", {})]
    named = [str(value) for one in choices for value in one.get("enum", [])]
    if any(one.get("type") in {"integer", "number"} for one in choices):
        return [*named, "1"]
    fits = "2026-01-01T00:00:00Z" if any(one.get("format") == "date-time" for one in choices) else unknown_id()
    return [*named, fits]


def queries(parameters: list[dict[str, Any]]) -> Iterator[str]:
    """Yields queries with each odd value, and with each two parameters of which one is empty or fits."""
    for one in parameters:
        yield from (f"{one['name']}={quote(value)}" for value in ODD)
        yield f"{one['name']}=1&{one['name']}=2"
        yield f"{one['name']}=%ED%A0%80"
    for one, other in itertools.permutations(parameters, 2):
        yield from (f"{one['name']}=&{other['name']}={quote(value)}" for value in values_of(other))
    for one, other in itertools.combinations(parameters, 2):
        for mine, value in itertools.product(values_of(one), values_of(other)):
            yield f"{one['name']}={quote(mine)}&{other['name']}={quote(value)}"
    yield "nothing=1"


async def failures(ask: Any, described: dict[str, Any], ids: dict[str, str]) -> list[str]:
    failed, asked = [], 0
    for template, parameters in lists(described):
        path = re.sub(r"{(\w+)}", lambda found: ids.get(found[1], unknown_id()), template)
        for query in dict.fromkeys(queries(parameters)):
            answer, asked = await ask(f"{path}?{query}"), asked + 1
            if answer.status_code >= 500:
                failed.append(f"{answer.status_code} {path}?{query}")
    assert asked > 100
    return failed


async def test_no_query_of_the_control_api_is_an_error_of_the_server(crew: Crew, owner: Person) -> None:
    ids = {"slug": crew.deployment.slug, "name": owner.name}
    assert await failures(owner.get, document(), ids) == []


async def test_no_query_of_a_crew_is_an_error_of_the_server(crew: Crew) -> None:
    kickoff = await crew.kickoff()
    assert await failures(crew.get, crew.document, {"kickoff_id": kickoff, "kickoffId": kickoff}) == []


@pytest.mark.parametrize("of", ["control", "crew"])
async def test_no_part_of_a_path_is_an_error_of_the_server(crew: Crew, owner: Person, of: str) -> None:
    described, ask = (document(), owner.get) if of == "control" else (crew.document, crew.get)
    failed = []
    for template, operations in described["paths"].items():
        for value in ODD if "get" in operations and "{" in template else ():
            path = re.sub(r"{\w+}", quote(value, safe=""), template)
            if (answer := await ask(path)).status_code >= 500:
                failed.append(f"{answer.status_code} {path}")
    assert failed == []


async def test_a_wrong_method_names_each_right_one_once(owner: Person) -> None:
    for template, operations in document()["paths"].items():
        right = {name.upper() for name in operations.keys() & METHODS}
        path = re.sub(r"{\w+}", "x", template)
        for method in {"PUT", "PATCH", "DELETE", "POST", "OPTIONS"} - right:
            answer = await owner.request(method, path)
            if answer.status_code == 405:  # the path of another operation may fit this one too
                allowed = answer.headers["allow"].split(", ")
                assert len(allowed) == len(set(allowed)), (path, allowed)
                assert right <= set(allowed), (path, allowed)


async def test_an_empty_cursor_is_that_of_the_first_page(server: Server, crew: Crew, owner: Person) -> None:
    for order in ("slug", "-slug", "created_at", "-created_at"):
        query = {"order": order, "limit": 1}
        first = await owner.value("GET", "/deployments", params=query)
        assert (await owner.value("GET", "/deployments", params={**query, "cursor": ""})) == first
