from __future__ import annotations

import asyncio
import json
import socket
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from api.serving import GOOD, LARGEST_BODY, answer_of, raw
from patience import DEADLINE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from api.serving import Crew, Server

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def refused(crew: Crew, body: Any) -> str:
    """The message of the 400 that a body gets; nothing was accepted."""
    answer = await crew.post(body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"] == "Bad Request"
    assert await kickoffs_of(crew) == 0
    message: str = answer.json()["message"]
    return message


async def kickoffs_of(crew: Crew) -> int:
    query = "SELECT count(*) AS number FROM kickoffs WHERE deployment_id = %(id)s"
    row = await crew.server.database.row(query, {"id": crew.deployment.id})
    assert row is not None
    return int(row["number"])


def with_audience(text: str) -> bytes:
    """A good body whose audience, which may be anything, is this JSON, written by hand."""
    return b'{"inputs": {"topic": "tides", "audience": %s}}' % text.encode("utf-8", "surrogatepass")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "The body is empty."),
        (b" \r\n\t", "The body is empty."),
        (b"topic=tides", "The body is not JSON: expecting value at line 1, column 1."),
        (b'{"inputs": {},}', "The body is not JSON: "),
        (b'{"inputs": {"topic": "a\nb"}}', "The body is not JSON: invalid control character at line 1, column 24."),
        (b"{'inputs': {}}", "The body is not JSON: "),
        (b'{"inputs', "The body is not JSON: unterminated string starting at line 1, column 2."),
        (b'{"inputs": {}} {}', "The body is not JSON: extra data at line 1, column 16."),
        (b"[]", "The body must be a JSON object such as"),
        (b'[{"inputs": {}}]', "not an array"),
        (b'"inputs"', "not a string"),
        (b"7", "not a number"),
        (b"1.5", "not a number"),
        (b"true", "not a boolean"),
        (b"null", "not null"),
        (b'{"inputs": ["tides"]}', "The member `inputs` is not an object"),
        (b'{"inputs": false}', "The member `inputs` is not an object"),
        (b'{"inputs": "tides"}', "The member `inputs` is not an object"),
    ],
)
async def test_what_is_no_object_with_inputs_is_refused_in_words(crew: Crew, body: bytes, words: str) -> None:
    assert words in await refused(crew, body)


NO_INPUTS: list[dict[str, Any]] = [{}, {"inputs": None}, {"inputs": {}}, {"input": {"topic": "tides"}}]


@pytest.mark.parametrize("body", NO_INPUTS)
async def test_no_inputs_or_null_is_an_object_without_inputs(crew: Crew, body: dict[str, Any]) -> None:
    answer = await crew.post(body)
    assert (answer.status_code, answer.json()["details"]) == (422, {"missing_inputs": ["topic", "audience"]})
    undemanding = await crew.server.crew(inputs_schema={"type": "object", "properties": {"topic": {}}})
    accepted = await undemanding.post({**body, "idempotencyKey": "k", "taskWebhookUrl": None})
    assert accepted.status_code == 200, accepted.text
    assert (await undemanding.row(accepted.json()["kickoff_id"]))["inputs"] == {}


async def test_every_form_of_no_inputs_is_the_same_request(crew: Crew) -> None:
    undemanding = await crew.server.crew(inputs_schema={"type": "object"})
    answers = [await undemanding.post({**body, "idempotencyKey": "k"}) for body in NO_INPUTS[:3]]
    assert len({answer.text for answer in answers}) == 1, answers


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
async def test_what_is_no_json_number_is_refused(crew: Crew, number: str) -> None:
    assert f"{number} is not a JSON number" in await refused(crew, with_audience(number))


@pytest.mark.parametrize("number", ["1e999", "-1e999", "1" + "0" * 400 + ".0"])
async def test_a_number_too_large_for_any_reader_is_refused(crew: Crew, number: str) -> None:
    message = await refused(crew, with_audience(number))
    assert "is too large. Send it as a string." in message
    assert len(message) < 120


@pytest.mark.parametrize("sign", ["", "-"])
async def test_a_whole_number_of_more_digits_than_python_reads_is_refused(crew: Crew, sign: str) -> None:
    message = await refused(crew, with_audience(sign + "9" * 4301))
    assert message == "A whole number in the body has more than 4300 digits. Send it as a string."


async def test_a_whole_number_of_4300_digits_is_kept(crew: Crew) -> None:
    kickoff = await crew.kickoff({**GOOD, "number": 10**4299})
    assert (await crew.row(kickoff))["inputs"]["number"] == 10**4299


@pytest.mark.parametrize("raw_bytes", [b"\xff", b"\xc3", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf5\x80\x80\x80"])
async def test_what_is_not_utf_8_is_refused_with_its_place(crew: Crew, raw_bytes: bytes) -> None:
    body = b'{"inputs": {"topic": "' + raw_bytes + b'", "audience": "sailors"}}'
    assert await refused(crew, body) == "The body is not UTF-8: see byte 22."


async def test_utf_16_is_refused(crew: Crew) -> None:
    await refused(crew, json.dumps({"inputs": GOOD}).encode("utf-16"))


async def test_a_byte_order_mark_is_passed_over(crew: Crew) -> None:
    answer = await crew.post(b"\xef\xbb\xbf" + json.dumps({"inputs": GOOD}).encode())
    assert (await crew.row(answer.json()["kickoff_id"]))["inputs"] == GOOD


@pytest.mark.parametrize(
    "text", [r'"\ud800"', r'"\uD800"', r'"a\uDfFfb"', r'"\udc00\ud800"', r'["x", {"y": "\ud83d"}]', r'{"\uDEAD": 1}']
)
async def test_half_of_a_surrogate_pair_is_refused_in_words(crew: Crew, text: str) -> None:
    message = await refused(crew, with_audience(text))
    assert message.startswith("The body holds half of a surrogate pair (\\ud")
    assert "can't be sent to a model" in message


async def test_half_of_a_surrogate_pair_is_refused_in_a_members_name_too(crew: Crew) -> None:
    assert "half of a surrogate pair" in await refused(crew, rb'{"inputs": {"topic": "", "audience": ""}, "\ud800": 1}')


@pytest.mark.parametrize(
    "text", [r'"\ud83d\ude00"', r'"\uD83D\uDE00"', '"\N{GRINNING FACE}"', r'"\\ud800"', r'"\ud7ff"']
)
async def test_a_whole_pair_and_what_only_looks_like_a_half_are_taken(crew: Crew, text: str) -> None:
    answer = await crew.post(with_audience(text))
    assert (await crew.row(answer.json()["kickoff_id"]))["inputs"]["audience"] == json.loads(text)


async def test_nul_in_a_string_reaches_the_row_unchanged(crew: Crew) -> None:
    inputs = {"topic": "a\x00b", "audience": {"\x00": ["\x00", "\\u0000"]}}
    assert (await crew.row(await crew.kickoff(inputs)))["inputs"] == inputs


async def test_nul_in_meta_comes_back_in_the_status(crew: Crew) -> None:
    meta = {"a\x00": "\x00"}
    assert (await crew.status(await crew.kickoff(meta=meta)))["meta"] == meta


async def test_of_a_name_that_stands_twice_the_last_counts(crew: Crew) -> None:
    answer = await crew.post(b'{"inputs": {}, "inputs": {"topic": "a", "audience": "b", "topic": "c"}}')
    assert (await crew.row(answer.json()["kickoff_id"]))["inputs"] == {"topic": "c", "audience": "b"}


def nested(levels: int, opening: str = "[", closing: str = "]") -> bytes:
    """A good body that is nested so many levels deep in all; it begins with two."""
    return with_audience(opening * (levels - 2) + "1" * (opening != "[") + closing * (levels - 2))


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
async def test_100_levels_are_taken_and_101_are_not(crew: Crew, opening: str, closing: str) -> None:
    assert await refused(crew, nested(101, opening, closing)) == "The body is nested more than 100 levels deep."
    assert (await crew.post(nested(100, opening, closing))).status_code == 200


@pytest.mark.parametrize("levels", [1_000, 100_000, 500_000])
async def test_nesting_beyond_what_a_reader_can_follow_is_refused_like_any(crew: Crew, levels: int) -> None:
    assert await refused(crew, nested(levels)) == "The body is nested more than 100 levels deep."


async def test_nesting_that_never_closes_is_refused(crew: Crew) -> None:
    await refused(crew, b'{"inputs":' + b"[" * 500_000)


async def test_many_brackets_side_by_side_are_not_deep(crew: Crew) -> None:
    kickoff = await crew.kickoff({**GOOD, "rows": [[] for _ in range(1000)]})
    assert len((await crew.row(kickoff))["inputs"]["rows"]) == 1000


async def test_ten_thousand_inputs_are_kept(crew: Crew) -> None:
    inputs = {**GOOD, **{f"input {number}": number for number in range(10_000)}}
    assert (await crew.row(await crew.kickoff(inputs)))["inputs"] == inputs


def of_size(size: int) -> bytes:
    empty = json.dumps({"inputs": {**GOOD, "more": ""}})
    return json.dumps({"inputs": {**GOOD, "more": "x" * (size - len(empty))}}).encode()


async def in_parts(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), 100_000):
        yield body[start : start + 100_000]


async def test_a_body_of_the_limit_is_taken(crew: Crew) -> None:
    assert (await crew.post(of_size(LARGEST_BODY))).status_code == 200


@pytest.mark.parametrize("chunked", [False, True])
async def test_one_byte_more_is_413(crew: Crew, chunked: bool) -> None:
    body = of_size(LARGEST_BODY + 1)
    content = in_parts(body) if chunked else body
    answer = await crew.request("POST", "/kickoff", content=content)
    assert answer.status_code == 413
    assert answer.json()["details"] == {"limit": LARGEST_BODY}
    assert ("content-length" in answer.request.headers) is not chunked
    assert await kickoffs_of(crew) == 0


async def test_a_body_that_is_declared_too_large_is_refused_before_it_is_sent(crew: Crew) -> None:
    head = f"POST {crew.path}/kickoff HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {crew.token}\r\n"
    status, _, _ = await raw(crew.server.port, f"{head}Content-Length: 99999999999999999999\r\n\r\n".encode())
    assert status in {400, 413}  # so long a number is no number for the HTTP parser
    status, _, _ = await raw(crew.server.port, f"{head}Content-Length: {LARGEST_BODY + 1}\r\n\r\n".encode())
    assert status == 413


@pytest.mark.parametrize(
    "content_type", [None, "text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1", "?"]
)
async def test_json_is_read_whatever_its_content_type(crew: Crew, content_type: str | None) -> None:
    headers = {"Content-Type": content_type} if content_type else {}
    body = json.dumps({"inputs": GOOD}).encode()
    assert (await crew.request("POST", "/kickoff", content=body, headers=headers)).status_code == 200


async def test_all_missing_inputs_are_named_at_once(crew: Crew) -> None:
    answer = await crew.post({"inputs": {"length": 3}})
    assert answer.status_code == 422
    assert answer.json() == {
        "error": "Validation Error",
        "message": "Required inputs are missing: topic, audience. GET /inputs describes them.",
        "details": {"missing_inputs": ["topic", "audience"]},
    }


async def test_missing_inputs_are_told_before_wrong_forms(crew: Crew) -> None:
    answer = await crew.post({"inputs": {"topic": 7, "length": "long"}, "priority": "high", "taskWebhookUrl": "?"})
    assert (answer.status_code, answer.json()["details"]) == (422, {"missing_inputs": ["audience"]})


async def test_an_input_that_is_null_is_there(crew: Crew) -> None:
    assert (await crew.row(await crew.kickoff({"topic": "tides", "audience": None})))["inputs"]["audience"] is None


async def test_inputs_that_break_the_schema_are_all_told_with_why(crew: Crew) -> None:
    answer = await crew.post({"inputs": {"topic": 7, "audience": "sailors", "length": 0}})
    assert answer.status_code == 400
    assert answer.json()["details"] == {
        "invalid_inputs": {"topic": "7 is not of type 'string'", "length": "0 is less than the minimum of 1"}
    }


async def test_why_an_input_breaks_the_schema_is_told_briefly(crew: Crew) -> None:
    answer = await crew.post({"inputs": {**GOOD, "length": "x" * 100_000}})
    assert answer.status_code == 400
    assert len(answer.content) < 1000


async def test_inputs_that_nobody_asked_for_are_taken_along(crew: Crew) -> None:
    inputs = {**GOOD, "crew": {"own": [True]}, "": 0}
    assert (await crew.row(await crew.kickoff(inputs)))["inputs"] == inputs


async def test_an_input_without_a_type_takes_any_json(crew: Crew) -> None:
    for value in (None, True, 7, 7.5, "x", [1], {"a": 1}):
        assert (await crew.row(await crew.kickoff({**GOOD, "anything": value})))["inputs"]["anything"] == value


async def test_a_nested_input_is_checked_and_the_place_is_told(server: Server) -> None:
    point = {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}
    crew = await server.crew(
        inputs_schema={
            "type": "object",
            "properties": {"points": {"type": "array", "items": {"$ref": "#/$defs/Point"}}},
            "required": ["points"],
            "$defs": {"Point": point},
        }
    )
    answer = await crew.post({"inputs": {"points": [{"x": 1}, {"x": "left"}]}})
    assert answer.json()["details"]["invalid_inputs"] == {"points": "[1]['x']: 'left' is not of type 'number'"}
    assert (await crew.post({"inputs": {"points": [{"x": 1}]}})).status_code == 200


async def test_multiples_are_those_of_the_numbers_as_they_are_written(server: Server) -> None:
    schema = {"type": "object", "properties": {"price": {"type": "number", "multipleOf": 0.01}}}
    crew = await server.crew(inputs_schema=schema)
    for price in (1.5, 19.99, 10**400):
        assert (await crew.post({"inputs": {"price": price}})).status_code == 200
    assert (await crew.post({"inputs": {"price": 19.999}})).status_code == 400


async def test_a_body_that_is_refused_leaves_the_connection_fit_for_the_next_request(crew: Crew) -> None:
    head = f"POST {crew.path}/kickoff HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {crew.token}\r\n"
    large, good = "x" * (LARGEST_BODY + 1), json.dumps({"inputs": GOOD})
    reader, writer = await asyncio.open_connection("127.0.0.1", crew.server.port)
    statuses = []
    for body in (large, good):
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        statuses.append((await answer_of(reader))[0])
    writer.close()
    assert statuses == [413, 200]


def sends_first(port: int, request: bytes) -> bytes:
    """Returns the whole answer for a client that reads nothing before its whole request is sent."""
    with socket.create_connection(("127.0.0.1", port), DEADLINE) as client:
        client.sendall(request)
        return b"".join(iter(lambda: client.recv(1 << 16), b""))


LARGE = 8 * LARGEST_BODY
"""More than the buffers of both sides hold."""


@pytest.mark.parametrize(
    ("lines", "body", "status"),
    [
        ([f"Content-Length: {LARGE}"], b"x" * LARGE, 413),
        (["Transfer-Encoding: chunked"], b"%x\r\n%s\r\n0\r\n\r\n" % (LARGE, b"x" * LARGE), 413),
        (["Host: y", f"Content-Length: {LARGE}"], b"x" * LARGE, 400),
        (["X: " + "x" * LARGE], b"", 431),
        (["Transfer-Encoding: chunked"], b"no number\r\n" + b"x" * LARGE, 400),
    ],
    ids=["declared", "chunked", "two hosts", "head", "no chunks"],
)
async def test_a_client_that_sends_its_whole_request_first_reads_the_refusal(
    crew: Crew, lines: list[str], body: bytes, status: int
) -> None:
    first = [f"POST {crew.path}/kickoff HTTP/1.1", "Host: x", f"Authorization: Bearer {crew.token}"]
    head = "\r\n".join([*first, "Connection: close", *lines, "", ""]).encode()
    answer = await asyncio.to_thread(sends_first, crew.server.port, head + body)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer[:200]
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]


async def test_the_client_of_the_standard_library_reads_the_refusal(crew: Crew) -> None:
    address = f"http://127.0.0.1:{crew.server.port}{crew.path}/kickoff"
    request = urllib.request.Request(address, b"x" * LARGE, {"Authorization": f"Bearer {crew.token}"})
    with pytest.raises(urllib.error.HTTPError) as caught:  # this client sends `Connection: close`
        await asyncio.to_thread(urllib.request.urlopen, request, timeout=DEADLINE)
    with caught.value as answer:
        assert (answer.code, json.load(answer)["details"]) == (413, {"limit": LARGEST_BODY})
