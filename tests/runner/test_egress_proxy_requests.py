"""Requests of crews to the proxy of their runs are read within bounds, whatever their bytes are."""

from __future__ import annotations

import base64
import random

import pytest

from windlass.runner.egress.proxy_requests import LONGEST_HEAD, BadRequest, ProxyRequest, RequestReader, refusal

pytestmark = pytest.mark.unit
CREDENTIALS = base64.b64encode(b"run:token").decode()


def request(line: str, *fields: str, token: bool = True) -> bytes:
    own = [f"Proxy-Authorization: Basic {CREDENTIALS}"] if token else []
    return "\r\n".join([line, *own, *fields, "", ""]).encode("latin-1")


def read(data: bytes, size: int = 1 << 20) -> ProxyRequest | None:
    """Reads bytes that arrive in parts of this size."""
    reader, found = RequestReader(), None
    for at in range(0, len(data), size):
        found = reader.feed(data[at : at + size])
        if found is not None:
            return found
    return found


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_connect_names_a_host_and_a_port(size: int) -> None:
    data = request("CONNECT API.Example.com.:443 HTTP/1.1", "Host: other.example")
    found = read(data, size)
    assert found is not None
    assert (found.host, found.port, found.token, found.first) == ("api.example.com", 443, "token", b"")
    assert found.answer.startswith(b"HTTP/1.1 200 ")
    assert read(request("CONNECT [fd00::5]:5432 HTTP/1.0")) is not None
    assert "token" not in repr(found).replace("token=", "")


def test_bytes_after_connect_are_for_the_host() -> None:
    found = read(request("CONNECT a.test:443 HTTP/1.1", "Host: a.test") + b"\x16\x03\x01")
    assert found is not None
    assert found.first == b"\x16\x03\x01"


def test_a_request_is_passed_on_without_what_is_for_the_proxy() -> None:
    fields = [
        "Host: evil.test",
        "Proxy-Connection: keep-alive",
        "Connection: keep-alive, X-Hop, Content-Length",
        "X-Hop: 1",
        "X-Own: 2",
        "Content-Length: 4",
    ]
    found = read(request("POST http://Api.test:8080/a%20b/?q=1#part HTTP/1.1", *fields) + b"body")
    assert found is not None
    assert (found.host, found.port, found.answer) == ("api.test", 8080, b"")
    expected = [
        "POST /a%20b/?q=1 HTTP/1.1",
        "Host: Api.test:8080",
        "X-Own: 2",
        "Content-Length: 4",
        "Connection: close",
    ]
    assert found.first == "\r\n".join([*expected, "", "body"]).encode()


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("http://a.test", "/"),
        ("http://a.test?q", "/?q"),
        ("http://a.test//b.test/c", "//b.test/c"),
        ("http://a.test/;x?", "/;x"),
        ("http://a.test:/x", "/x"),
    ],
)
def test_the_path_is_that_of_the_url(target: str, path: str) -> None:
    found = read(request(f"GET {target} HTTP/1.1", "Host: a.test"))
    assert found is not None
    assert (found.host, found.port) == ("a.test", 80)
    assert found.first.startswith(f"GET {path} HTTP/1.1\r\n".encode())


@pytest.mark.parametrize(
    "line",
    [
        "CONNECT a.test HTTP/1.1",
        "CONNECT a.test:0 HTTP/1.1",
        "CONNECT a.test:65536 HTTP/1.1",
        "CONNECT a.test:x HTTP/1.1",
        "CONNECT :443 HTTP/1.1",
        "CONNECT user@a.test:443 HTTP/1.1",
        "CONNECT a.test:443/x HTTP/1.1",
        "CONNECT http://a.test:443 HTTP/1.1",
        "CONNECT [fd00::5:443 HTTP/1.1",
        "GET / HTTP/1.1",
        "GET https://a.test/ HTTP/1.1",
        "GET ftp://a.test/ HTTP/1.1",
        "GET http:///x HTTP/1.1",
        "GET http://user:word@a.test/ HTTP/1.1",
        "OPTIONS * HTTP/1.1",
        "GET http://a.test/\x01 HTTP/1.1",
        "\x16\x03\x01",
        "PRI * HTTP/2.0",
    ],
)
def test_other_requests_are_refused(line: str) -> None:
    with pytest.raises(BadRequest):
        read(request(line, "Host: a.test"))


def test_a_head_without_an_end_is_refused() -> None:
    with pytest.raises(BadRequest):
        read(b"GET http://a.test/ HTTP/1.1\r\nX: " + b"a" * 2 * LONGEST_HEAD, 4096)
    reader = RequestReader()
    assert reader.feed(b"GET http") is None
    with pytest.raises(BadRequest):
        reader.feed(b"")


@pytest.mark.parametrize("value", ["Basic", "Basic !", "Bearer dG9rZW4=", "Basic gICA", "basic  "])
def test_without_a_password_the_token_is_empty(value: str) -> None:
    found = read(request("CONNECT a.test:1 HTTP/1.1", "Host: a", f"Proxy-Authorization: {value}", token=False))
    assert found is not None
    assert found.token == ""


def test_an_answer_has_one_line_of_status_whatever_its_words_are() -> None:
    answer = refusal(403, "a\r\nSet-Cookie: b\x00ü")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.split(b"\r\n")[0] == b"HTTP/1.1 403 a??Set-Cookie: b??"
    assert f"Content-Length: {len(body)}".encode() in head
    assert b"Proxy-Authenticate" in refusal(407, "x")


def test_bytes_at_random_are_a_request_or_refused() -> None:
    chance = random.Random(34)
    bases = [
        request("CONNECT api.test:443 HTTP/1.1", "Host: a") + b"rest",
        request("POST http://api.test:80/a?b HTTP/1.1", "Host: a", "Connection: x, y", "Content-Length: 4") + b"body",
        request("GET http://[fd00::1]/ HTTP/1.0", "Transfer-Encoding: chunked"),
    ]
    seen = 0
    for _ in range(20_000):
        data = bytearray(chance.choice(bases) if chance.random() < 0.9 else chance.randbytes(chance.randrange(200)))
        for _ in range(chance.randrange(6)):
            if data:
                at = chance.randrange(len(data))
                data[at : at + chance.randrange(2)] = chance.choice([b"\r\n", b":", b"@", b"/", b"[", b"]", b"%", b" "])
        try:
            found = read(bytes(data), chance.choice([1 << 20, 16]))
        except BadRequest:
            continue
        if found is not None:
            seen += 1
            check(found)
    assert seen > 1000


def check(found: ProxyRequest) -> None:
    """It has a host and a port. A head is one, with one host."""
    assert found.host
    assert 0 < found.port < 1 << 16
    if not found.answer:
        line, _, rest = found.first.partition(b"\r\n")
        assert line.split(b" ")[1].startswith(b"/")
        assert len(line.split(b" ")) == 3
        head = rest.partition(b"\r\n\r\n")[0].lower()
        names = [one.partition(b":")[0] for one in head.split(b"\r\n")]
        assert b"proxy-authorization" not in names
        assert names.count(b"host") == names.count(b"connection") == 1
