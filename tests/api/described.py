"""Compares answers with what the OpenAPI document says of them."""

from __future__ import annotations

import copy
import json
import re
from typing import TYPE_CHECKING, Any

from jsonschema import Draft202012Validator

if TYPE_CHECKING:
    import httpx

ERROR = {"error", "message", "details"}


async def check_answer(response: httpx.Response) -> None:
    """An answer of a crew must be one that its document describes; any other error has the one form of errors.

    That a server is not ready is what was asked for, and no error. The dashboard answers with pages.
    """
    await response.aread()
    described, path = response.request.extensions, response.request.url.path
    is_page = path == "/ready" or path.startswith("/ui")
    if response.status_code >= 400 and response.request.method != "HEAD" and not is_page:
        check_error(response.status_code, dict(response.headers), response.content)
    if "document" in described:
        check_described(described["document"], described["path"], response)


def check_error(status: int, headers: dict[str, str], content: bytes) -> None:
    assert headers["content-type"] == "application/json"
    body = json.loads(content)
    assert body.keys() == ERROR, body
    assert isinstance(body["error"], str)
    assert isinstance(body["message"], str)
    assert isinstance(body["details"], dict)
    assert body["error"], status
    assert body["message"], status


def check_described(document: dict[str, Any], path: str, response: httpx.Response) -> None:
    operation = document["paths"].get(template_of(document, path), {}).get(response.request.method.lower())
    if operation is None:
        return
    described = operation["responses"].get(str(response.status_code))
    assert described, f"{path} answers {response.status_code}, which the document does not tell"
    described = resolved(document, described)
    if not response.content:
        assert not described.get("content"), f"{path} answers without a body"
        return
    for name, header in described.get("headers", {}).items():
        assert name in response.headers, f"{response.status_code} comes without {name}"
        if "const" in header["schema"]:
            assert response.headers[name] == header["schema"]["const"]
    kind = response.headers["content-type"].partition(";")[0]
    if kind not in {"application/json", "text/plain"}:
        assert {kind, "*/*"} & described["content"].keys(), f"{path} answers with {kind}"
        return
    value = response.text if kind == "text/plain" else json.loads(response.content, parse_constant=_refused)
    check_value(document, described["content"][kind]["schema"], value)


def check_value(document: dict[str, Any], schema: dict[str, Any], value: Any) -> None:
    """Members that the document does not name are refused here; clients must not refuse them."""
    strict = copy.deepcopy(document["components"])
    for name, component in strict["schemas"].items():
        if name not in {"Inputs", "KickoffRequest"} and component.get("type") == "object":
            component["additionalProperties"] = False
    validator = Draft202012Validator({**schema, "components": strict})
    assert not (found := [f"{error.json_path}: {error.message}" for error in validator.iter_errors(value)]), found


def resolved(document: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in node:
        found: Any = document
        for step in node["$ref"].removeprefix("#/").split("/"):
            found = found[step.replace("~1", "/").replace("~0", "~")]
        node = found
    return node


def template_of(document: dict[str, Any], path: str) -> str | None:
    """The path of the document that means `path`: the one with the fewest parameters, then the longest."""
    path = re.sub("/+", "/", path) or "/"
    for template in sorted(document["paths"], key=lambda template: (template.count("{"), -len(template))):
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path):
            return str(template)
    return None


def _refused(constant: str) -> Any:
    raise AssertionError(f"{constant} is no JSON")
