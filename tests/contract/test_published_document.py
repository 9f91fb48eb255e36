"""Requests that are made from the published OpenAPI document, good and bad ones, are answered as it says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import Case
from schemathesis.config import SchemathesisConfig

from cli.the_command import ForkedCommand
from projects_for_tests.making import written
from projects_for_tests.places import folder_for_all

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.xdist_group("served_crews"), pytest.mark.timeout(900)]  # hundreds of requests

EXAMPLES = 10
FLOW = """
schema: crewai.flow/v1
name: Tides
state:
  type: json_schema
  json_schema:
    type: object
    properties: {place: {type: string}, hours: {type: integer, minimum: 0}}
    required: [place]
methods:
  begin: {start: true, do: {call: expression, expr: state.place}}
"""
PROJECT = {
    "pyproject.toml": '[project]\nname = "tides"\n[tool.crewai]\ntype = "flow"\ndefinition = "flow.yaml"\n',
    "flow.yaml": FLOW,
}


@pytest.fixture(scope="module")
def published() -> Iterator[Any]:
    """The document of a served flow, whose inputs have types. It is paused: kickoffs are accepted, and wait."""
    with folder_for_all() as folder:
        project, windlass = written(folder / "tides", PROJECT), ForkedCommand(folder)
        with windlass.started("dev", str(project), "--port", "0") as server:
            url = server.wait_for("Base URL").split()[-1]
            token = windlass("tokens", "show", "--kind", "organization").out.strip()
            assert windlass("deployments", "pause", "tides").code == 0
            config = SchemathesisConfig.from_dict({"auth": {"openapi": {"bearer": {"bearer": token}}}})
            yield schemathesis.openapi.from_url(f"{url}/openapi.json", config=config)
            server.interrupt()
            assert server.end() == 0


schema = schemathesis.pytest.from_fixture("published")


@schema.parametrize()
@settings(max_examples=EXAMPLES, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
def test_answers_are_those_that_the_document_tells_of(case: Case[Any]) -> None:
    if "wait" in (case.query or {}):
        case.query["wait"] = 0  # paused, it would wait to the end
    without_what_a_schema_has_no_words_for(case)
    case.call_and_validate()


def without_what_a_schema_has_no_words_for(case: Case[Any]) -> None:
    """A header that must be as a member is, and a time that must not be more than a year ahead."""
    if not isinstance(case.body, dict) or (case.meta and not case.meta.generation.mode.is_positive):
        return
    if case.body.get("idempotencyKey") is not None and case.headers:
        case.headers.pop("Idempotency-Key", None)
    if isinstance(case.body.get("runAt"), str):
        case.body["runAt"] = None
