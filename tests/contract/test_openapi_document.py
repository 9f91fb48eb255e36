"""The OpenAPI document as such: it is whole, and its examples are what it says."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator

from api.described import resolved
from windlass import __version__
from windlass.api.crew_api.openapi import crew_document
from windlass.api.crew_api.routes import OPERATIONS
from windlass.api.crew_api.schemas import KickoffRequest, WebhookMembers
from windlass.api.crew_api.webhook_bodies import BODIES
from windlass.api.errors import TITLES
from windlass.kickoffs.declared_settings import BadSetting
from windlass.kickoffs.ids import new_id
from windlass.kickoffs.limits import Limits
from windlass.kickoffs.manifest import Manifest
from windlass.kickoffs.states import Reason, State, TaskState
from windlass.kickoffs.webhooks import (
    LARGEST_BODY,
    End,
    Event,
    body_of_end,
    body_of_events,
    body_of_question,
    body_of_step,
    body_of_task,
)
from windlass.rights import Scope

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.unit


NODE = {
    "type": "object",
    "properties": {"next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}, "$ref": {"type": "string"}},
    "required": ["next"],
    "examples": [{"$ref": "#/$defs/Node", "next": None}],
}
SCHEMAS: dict[str, dict[str, Any]] = {
    "none": {"type": "object"},
    "placeholders": {"type": "object", "properties": {"topic": {}, "audience": {}}, "required": ["topic", "audience"]},
    "types": {
        "type": "object",
        "properties": {
            "text": {"type": "string", "minLength": 3, "maxLength": 4},
            "count": {"type": "integer", "minimum": 7},
            "share": {"type": "number", "exclusiveMinimum": 0, "maximum": 0.5},
            "sure": {"type": "boolean"},
            "nothing": {"type": "null"},
            "list": {"type": "array", "items": {"type": "integer"}, "minItems": 2},
            "either": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "one": {"enum": ["red", "blue"]},
            "always": {"const": {"a": 1}},
            "given": {"type": "string", "examples": ["a good example"]},
            "day": {"type": "string", "format": "date"},
            "optional": {"type": "string", "default": "x"},
        },
        "required": ["text", "count", "share", "sure", "nothing", "list", "either", "one", "always", "given", "day"],
    },
    "references": {
        "type": "object",
        "title": "What a function takes",
        "properties": {"list": {"$ref": "#/$defs/Node"}, "pets": {"type": "array", "items": {"$ref": "#/$defs/Pet"}}},
        "required": ["list", "pets"],
        "$defs": {
            "Node": NODE,
            "Pet": {
                "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}],
                "discriminator": {"propertyName": "kind", "mapping": {"cat": "#/$defs/Cat", "dog": "#/$defs/Dog"}},
            },
            "Cat": {"type": "object", "properties": {"kind": {"const": "cat"}}, "required": ["kind"]},
            "Dog": {"type": "object", "properties": {"kind": {"const": "dog"}}, "required": ["kind"]},
        },
    },
}
EVERYWHERE = {"400", "401", "404", "405", "408", "421", "429", "431", "500", "503"}
SCOPED = EVERYWHERE | {"403"}
Document = dict[str, Any]


def document_of(inputs_schema: dict[str, Any]) -> Document:
    manifest = Manifest.from_json({"kind": "function", "name": "Work", "inputs_schema": inputs_schema, "tasks": []})
    document: Document = json.loads(
        json.dumps(crew_document("work", manifest, "https://example.com/crews/work", OPERATIONS))
    )
    return document


@pytest.fixture(params=list(SCHEMAS), scope="module")
def document(request: pytest.FixtureRequest) -> Document:
    return document_of(SCHEMAS[request.param])


def operations(document: Document) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def references(node: Any, *, data: bool = False) -> Iterator[str]:
    """Every $ref but those that are part of an example's data."""
    if isinstance(node, list):
        for one in node:
            yield from references(one, data=data)
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str) and not data:
            yield node["$ref"]
        yield from node.get("discriminator", {}).get("mapping", {}).values()
        for name, one in node.items():
            yield from references(one, data=data or name in {"example", "examples", "default"})


def contents(document: Document, operation: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each media type of an operation, with what has it: the request, or the response's status."""
    for kind in operation.get("requestBody", {}).get("content", {}).values():
        yield "request", kind
    for status, response in operation["responses"].items():
        for kind in resolved(document, response).get("content", {}).values():
            yield status, kind


def examples(kind: dict[str, Any]) -> list[Any]:
    return [
        *([kind["example"]] if "example" in kind else []),
        *(one["value"] for one in kind.get("examples", {}).values()),
    ]


def test_it_says_what_it_is(document: Document) -> None:
    assert document["openapi"] == "3.1.0"
    assert document["info"]["title"] == "work", "the name by which the server knows the crew"
    assert document["info"]["version"] == __version__
    assert document["servers"] == [{"url": "https://example.com/crews/work"}]
    scheme = document["components"]["securitySchemes"]["bearer"]
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    assert all(f"`{scope}`" in scheme["description"] for scope in Scope)
    assert document["security"] == [{"bearer": []}]


def test_every_reference_leads_to_something(document: Document) -> None:
    found = list(references(document))
    assert found
    for reference in found:
        assert reference.startswith("#/components/")
        assert resolved(document, {"$ref": reference}), reference


def test_every_schema_is_a_json_schema(document: Document) -> None:
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    for _, _, operation in operations(document):
        for parameter in operation.get("parameters", ()):
            Draft202012Validator.check_schema(parameter["schema"])
        for _, kind in contents(document, operation):
            Draft202012Validator.check_schema(kind["schema"])


def test_every_operation_has_a_name_of_its_own_and_names_its_parameters(document: Document) -> None:
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(set(names)) == len(names)
    for path, _, operation in operations(document):
        assert operation["summary"]
        given = {parameter["name"]: parameter for parameter in operation.get("parameters", ())}
        in_path = set(re.findall(r"\{(\w+)\}", path))
        assert {name for name, parameter in given.items() if parameter["in"] == "path"} == in_path
        assert all(given[name]["required"] is True for name in in_path)


def test_every_operation_of_the_contract_is_there_with_its_errors(document: Document) -> None:
    found = {(method, path): set(operation["responses"]) for path, method, operation in operations(document)}
    assert found == {
        ("get", "/"): EVERYWHERE | {"200"},
        ("get", "/inputs"): SCOPED | {"200"},
        ("post", "/kickoffs"): SCOPED | {"200", "413"},
        ("post", "/kickoff"): SCOPED | {"200", "409", "413", "422"},
        ("delete", "/kickoffs/{kickoff_id}"): SCOPED | {"200", "409"},
        ("get", "/status/{kickoff_id}"): SCOPED | {"200"},
        ("get", "/{kickoff_id}/status"): SCOPED | {"200"},
        ("get", "/attempts/{kickoff_id}"): SCOPED | {"200"},
        ("get", "/kickoffs"): SCOPED | {"200"},
        ("get", "/events/{kickoff_id}"): SCOPED | {"200", "204"},
        ("post", "/stream-tickets"): SCOPED | {"200"},
        ("get", "/files/{kickoff_id}"): SCOPED | {"200"},
        ("get", "/files/{kickoff_id}.zip"): SCOPED | {"200"},
        ("get", "/files/{kickoff_id}/{path}"): SCOPED | {"200", "206", "304", "416"},
        ("post", "/resume"): SCOPED | {"200", "409", "413"},
        ("post", "/stop"): SCOPED | {"200", "413"},
        ("post", "/stop/{kickoff_id}"): SCOPED | {"200"},
    }


def test_every_operation_that_needs_a_scope_names_it_and_its_403(document: Document) -> None:
    for path, _, operation in operations(document):
        (needed,) = operation["security"]
        assert ("403" in operation["responses"]) is bool(needed["bearer"]), path
        assert set(needed["bearer"]) <= set(Scope)


def test_every_answer_has_an_example_and_every_example_fits_its_schema(document: Document) -> None:
    for path, _, operation in operations(document):
        for where, kind in contents(document, operation):
            assert examples(kind), (path, where)
            validator = Draft202012Validator({**kind["schema"], "components": document["components"]})
            for example in examples(kind):
                assert not (found := [error.message for error in validator.iter_errors(example)]), (path, where, found)


def test_every_error_has_its_title_and_the_one_form(document: Document) -> None:
    for status, response in document["components"]["responses"].items():
        (kind,) = response["content"].values()
        assert kind["schema"] == {"$ref": "#/components/schemas/ErrorBody"}
        assert kind["example"]["error"] == TITLES[int(status)]
        assert response["description"]


def test_the_headers_of_errors_are_told(document: Document) -> None:
    told = {status: set(found.get("headers", {})) for status, found in document["components"]["responses"].items()}
    wanted = {"401": {"WWW-Authenticate"}, "405": {"Allow"}, "416": {"Content-Range"}}
    wanted |= {status: {"Retry-After"} for status in ("429", "503")}
    assert told == {status: wanted.get(status, set()) for status in told}


def test_the_crews_own_inputs_are_in_it() -> None:
    document = document_of(SCHEMAS["types"])
    inputs = document["components"]["schemas"]["Inputs"]
    assert inputs["properties"] == SCHEMAS["types"]["properties"]
    assert inputs["required"] == SCHEMAS["types"]["required"]
    kickoff = document["components"]["schemas"]["KickoffRequest"]
    assert kickoff["properties"]["inputs"] == {"$ref": "#/components/schemas/Inputs"}
    assert kickoff["required"] == ["inputs"]


def test_references_inside_the_crews_inputs_are_followed_and_data_is_left_alone() -> None:
    inputs = document_of(SCHEMAS["references"])["components"]["schemas"]["Inputs"]
    place = "#/components/schemas/Inputs/$defs"
    assert inputs["title"] == "What a function takes"
    assert inputs["properties"]["list"] == {"$ref": f"{place}/Node"}
    assert inputs["$defs"]["Node"]["examples"] == NODE["examples"]
    assert inputs["$defs"]["Node"]["properties"]["$ref"] == {"type": "string"}
    assert inputs["$defs"]["Pet"]["discriminator"]["mapping"] == {"cat": f"{place}/Cat", "dog": f"{place}/Dog"}


@pytest.mark.parametrize(
    ("inputs", "fits"),
    [
        ({"list": {"next": {"next": None}}, "pets": [{"kind": "dog"}]}, True),
        ({"list": {"next": {"next": 7}}, "pets": []}, False),
        ({"list": {"next": None}, "pets": [{"kind": "cow"}]}, False),
    ],
)
def test_a_reader_of_the_document_alone_can_check_inputs(inputs: dict[str, Any], fits: bool) -> None:
    document = document_of(SCHEMAS["references"])
    schema = {"$ref": "#/components/schemas/KickoffRequest", "components": document["components"]}
    assert Draft202012Validator(schema).is_valid({"inputs": inputs}) is fits


def test_the_words_of_a_status_are_those_that_clients_know(document: Document) -> None:
    status = document["components"]["schemas"]["StatusAnswer"]["properties"]
    of_state, of_live = status["state"]["anyOf"]
    assert set(of_state["enum"]) == {state.state_on_the_wire for state in State}
    assert set(of_live["enum"]) == {"PENDING", "STARTED", "RUNNING", "PAUSED", "SUCCESS", "FAILED"}
    assert set(status["status"]["anyOf"][0]["enum"]) == {state.status_on_the_wire for state in State}
    assert set(status["reason"]["anyOf"][0]["enum"]) == set(Reason)
    task = document["components"]["schemas"]["TaskRecordBody"]["properties"]
    assert set(task["state"]["enum"]) == set(TaskState)


def test_every_member_of_a_kickoff_is_there(document: Document) -> None:
    members = document["components"]["schemas"]["KickoffRequest"]["properties"]
    assert members.keys() == KickoffRequest.model_fields.keys()


def test_the_limits_of_a_kickoff_are_told_by_their_names_and_forms(document: Document) -> None:
    limits, _ = document["components"]["schemas"]["KickoffRequest"]["properties"]["limits"]["anyOf"]
    assert set(limits["properties"]) == {field.name for field in fields(Limits)}
    takes = Draft202012Validator(limits).is_valid
    for good in ({}, {"memory_limit": "512 MB", "timeout": 0.5}, {"memory_limit": 1, "token_limit": 7}):
        assert takes(good)
        assert Limits.parse(good)
    for bad in ({"memory_limit": "much"}, {"timeout": "5"}, {"token_limit": 1.5}, {"stall_after": 0}, {"speed": 1}):
        assert not takes(bad)
        with pytest.raises(BadSetting):
            Limits.parse(bad)


def test_the_titles_of_errors_are_the_standards_but_where_the_crew_api_has_its_own() -> None:
    own = {422: "Validation Error", 500: "Server Error"}
    # Python 3.11 and 3.12 have the names of an older RFC
    standard = {413: "Content Too Large", 416: "Range Not Satisfiable"}
    for status, title in TITLES.items():
        assert title == (own | standard).get(status, HTTPStatus(status).phrase)


def test_each_webhook_of_a_kickoff_has_a_body_with_an_example(document: Document) -> None:
    of_kickoff = set(WebhookMembers.model_fields) - {"humanInputWebhookUrl"}
    assert set(document["webhooks"]) == of_kickoff
    for one in document["webhooks"].values():
        content = one["post"]["requestBody"]["content"]["application/json"]
        Draft202012Validator({**content["schema"], "components": document["components"]}).validate(content["example"])


@pytest.mark.parametrize("is_large", [False, True], ids=["small", "large"])
def test_the_bodies_of_webhooks_are_as_the_document_has_them(is_large: bool) -> None:
    document, kickoff, at = document_of({"type": "object"}), new_id(), datetime.now(UTC)
    value, url, meta = "x" * (LARGEST_BODY if is_large else 10), "https://example.com/status", '{"a": 1}'

    def event(kind: str, **data: Any) -> Event:
        return Event(7, kind, at, json.dumps(data))

    output = {"raw": value, "description": "d", "agent": "a", "summary": "s", "name": None, "expected_output": "e"}
    ends = [
        End(State.SUCCESS, None, None, json.dumps(value), "[1]", "{}", meta),
        End(State.TIMED_OUT, "timed_out", value, None, None, '{"total_tokens": 7}', None),
    ]
    bodies = {
        "taskWebhookUrl": [body_of_task(kickoff, event("task_completed", output=output), None, meta, url)],
        "stepWebhookUrl": [
            body_of_step(
                kickoff, event("tool_usage_finished", tool_name="t", tool_args={}, output=value), [], meta, url
            ),
            body_of_step(kickoff, event("agent_execution_completed", output=value), [], None, url),
        ],
        "crewWebhookUrl": [body_of_end(kickoff, one, url) for one in ends],
        "webhooks": [body_of_events(kickoff, [event("task_completed", output=output)])],
        "humanInputWebhook": [
            body_of_question(kickoff, event("human_input_requested", task_id="t", draft=value), meta, url)
        ],
    }
    assert bodies.keys() == document["webhooks"].keys()
    for name, made in bodies.items():
        content = document["webhooks"][name]["post"]["requestBody"]["content"]["application/json"]
        model = BODIES[name][1]
        for body in map(json.loads, made):
            Draft202012Validator({**content["schema"], "components": document["components"]}).validate(body)
            assert body.keys() <= model.model_fields.keys()
