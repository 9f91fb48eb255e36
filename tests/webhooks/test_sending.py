"""Where a webhook may go, and what becomes of each kind of receiver."""

from __future__ import annotations

import asyncio
import base64
import ssl
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import TYPE_CHECKING

import pytest

from secrets_managers.serving import certificates
from webhooks.receiver import OK, Got, Receiver, Reply
from windlass.ip_addresses import is_public
from windlass.webhooks.endpoints import Target
from windlass.webhooks.sending import LARGEST_ANSWER, LONGEST_WAIT, Answer, Sender

if TYPE_CHECKING:
    from pathlib import Path

LOCAL = ["127.0.0.0/8"]


async def post(url: str, sender: Sender | None = None) -> Answer:
    return await (sender or Sender(LOCAL)).post(Target(url), b"{}", {"webhook-id": "1"})


def leading_to(*addresses: str, asked: list[str] | None = None, allowed: list[str] | None = None) -> Sender:
    async def resolve(host: str, port: int) -> list[str]:
        if asked is not None:
            asked.append(host)
        return list(addresses)

    return Sender(LOCAL if allowed is None else allowed, resolve=resolve)


async def test_a_request_is_answered() -> None:
    async with Receiver() as receiver:
        answer = await post(receiver.url("/a?b=c"))
    assert (answer.status, answer.text, answer.error, answer.accepted) == (200, "ok", None, True)
    (got,) = receiver.got
    assert (got.path, got.headers["content-type"], got.headers["host"]) == (
        "/a?b=c",
        "application/json",
        f"127.0.0.1:{receiver.port}",
    )


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.0.0.1",
        "169.254.169.254",
        "192.168.1.1",
        "100.64.0.1",
        "0.0.0.0",
        "192.0.0.192",
        "224.0.0.1",
        "::1",
        "::",
        "fe80::1",
        "fd00:ec2::254",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "2002:7f00:1::",
        "2001:db8::1",
        "3fff::1",
        "5f00::1",
        "fec0::1",
    ],
)
async def test_an_address_that_is_not_public_is_refused_without_a_connection(address: str) -> None:
    assert not is_public(address)
    answer = await post("http://hooks.example.com/", leading_to(address, allowed=[]))
    assert answer.status is None
    assert "private network" in (answer.error or "")
    assert "WINDLASS_WEBHOOK_ALLOW" in (answer.error or "")
    assert address not in (answer.error or "")


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_a_public_address_is_public(address: str) -> None:
    assert is_public(address)


async def test_one_private_address_among_public_ones_refuses_all() -> None:
    assert "private network" in ((await post("http://x.example/", leading_to("8.8.8.8", "10.0.0.1"))).error or "")


async def test_only_the_permitted_network_is_open() -> None:
    async with Receiver() as receiver:
        assert (await post(receiver.url(), Sender(["127.0.0.1"]))).accepted
        assert not (await post(receiver.url(), Sender(["127.0.0.2", "10.0.0.0/8", "::/0"]))).accepted


async def test_a_name_is_resolved_once_and_the_checked_address_is_used() -> None:
    asked: list[str] = []
    async with Receiver() as receiver:
        answer = await post(receiver.url(host="changing.example.com"), leading_to("127.0.0.1", asked=asked))
    assert answer.accepted
    assert asked == ["changing.example.com"]
    assert receiver.got[0].headers["host"] == f"changing.example.com:{receiver.port}"


async def test_an_international_name_is_asked_for_in_its_ascii_form() -> None:
    asked: list[str] = []
    async with Receiver() as receiver:
        answer = await post(receiver.url(host="bücher.example"), leading_to("127.0.0.1", asked=asked))
    assert answer.accepted
    assert asked == ["xn--bcher-kva.example"]
    assert receiver.got[0].headers["host"].startswith("xn--bcher-kva.example")


async def test_a_name_that_is_not_known() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        raise OSError(f"{host}:{port}")

    answer = await Sender(resolve=resolve).post(Target("https://nowhere.example.com/s3cret"), b"", {})
    assert answer == Answer(error="the name nowhere.example.com can't be resolved")


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_no_redirect_is_followed(status: int) -> None:
    def reply(got: object) -> Reply:
        return Reply(status, headers={"Location": "/other"}) if len(receiver.got) == 1 else OK

    async with Receiver(reply) as receiver:
        answer = await post(receiver.url())
    assert (answer.status, answer.accepted, len(receiver.got)) == (status, False, 1)
    assert "redirects are not followed" in (answer.error or "")


async def test_a_receiver_that_hangs_is_left_in_time() -> None:
    async with Receiver(lambda _: None) as receiver:
        assert await post(receiver.url(), Sender(LOCAL, timeout=0.2)) == Answer(error="no answer within 0.2 s")


async def test_a_receiver_that_sends_a_byte_at_a_time_is_left_in_time() -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while not writer.is_closing():
                writer.write(b"H")
                await writer.drain()
                await asyncio.sleep(0.02)
        except ConnectionError:
            pass
        finally:
            writer.close()
            ended.set()

    ended = asyncio.Event()
    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    answer = await post(f"http://127.0.0.1:{port}/", Sender(LOCAL, timeout=0.5))
    await ended.wait()
    server.close()
    await server.wait_closed()
    assert answer.status is None
    assert answer.error is not None


async def test_only_the_beginning_of_an_answer_is_read() -> None:
    async def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Sends a part of the body that it announces, and waits until the sender hangs up."""
        writer.write(b"HTTP/1.1 500 Error\r\nContent-Length: 5000000\r\n\r\n" + b"x" * 2 * LARGEST_ANSWER)
        with suppress(ConnectionError):
            while await reader.read(65536):
                pass
        writer.close()
        ended.set()

    ended = asyncio.Event()
    server = await asyncio.start_server(begin, "127.0.0.1", 0)
    answer = await post(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
    await ended.wait()
    server.close()
    await server.wait_closed()
    assert (answer.status, len(answer.text), answer.error) == (500, LARGEST_ANSWER, "it answered 500")


async def test_an_answer_that_repeats_the_request_shows_no_secret_of_it() -> None:
    def echo(got: Got) -> Reply:
        return Reply(200, f"{got.path} {got.headers['authorization']} {got.raw.decode()} and more".encode())

    basic = {"authorization": "Basic " + base64.b64encode(b"ann:pass-phrase").decode()}
    async with Receiver(echo) as receiver:
        target = Target(receiver.url("/services/T0/B0?key=a1"), basic)
        body = b'{"callback": "https://x.example/1?signature=abcdefgh", "password": "pass-phrase"}'
        answer = await Sender(LOCAL).post(target, body, {}, {"signature": "abcdefgh"})
    assert answer.text == (
        '[secret] Basic [secret] {"callback": "https://x.example/1?signature=[secret]", '
        '"password": "[secret]"} and more'
    )


async def test_no_half_of_a_secret_is_left_where_an_answer_is_cut() -> None:
    token = "0123456789" * 4
    async with Receiver(lambda _: Reply(200, b"x" * (LARGEST_ANSWER - 20) + token.encode())) as receiver:
        answer = await Sender(LOCAL).post(Target(receiver.url(), {"authorization": f"Bearer {token}"}), b"{}", {})
    assert answer.text == "x" * (LARGEST_ANSWER - 20)


async def test_no_connection() -> None:
    async with Receiver() as receiver:
        url = receiver.url("/s3cret")
    answer = await post(url)
    assert (answer.status, answer.error) == (None, "no connection")


@pytest.mark.parametrize("url", ["ftp://a.example/", "http:///x", "file:///etc/passwd", "http://u:p@127.0.0.1/"])
async def test_an_address_of_another_form_is_refused(url: str) -> None:
    answer = await post(url)
    assert answer.status is None
    assert "https://" in (answer.error or "")


async def test_a_wrong_certificate_is_refused(tmp_path: Path) -> None:
    ca, (certificate, key) = certificates(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    trusting = ssl.create_default_context(cafile=str(ca))

    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    async with Receiver(tls=tls) as receiver:
        good, other = receiver.url(host="localhost"), receiver.url(host="other.example.com")
        knows, strange = (Sender(LOCAL, resolve=resolve, verify=one) for one in (trusting, None))
        answers = [await post(good, knows), await post(other, knows), await post(good, strange)]
    wrong = Answer(error="its certificate is not valid for the name")
    assert [one.accepted for one in answers] == [True, False, False]
    assert answers[1:] == [wrong, wrong]


@pytest.mark.parametrize(
    ("given", "least", "most"),
    [
        ("7", 7, 7),
        ("0", 0, 0),
        ("999999999999", LONGEST_WAIT, LONGEST_WAIT),
        ("in an hour", 3000, 3600),
        ("an hour ago", 0, 0),
    ],
)
async def test_the_receiver_may_ask_for_a_pause(given: str, least: float, most: float) -> None:
    hour = {"in an hour": 1, "an hour ago": -1}.get(given)
    header = format_datetime(datetime.now(UTC) + timedelta(hours=hour)) if hour else given
    async with Receiver(lambda _: Reply(503, headers={"Retry-After": header})) as receiver:
        answer = await post(receiver.url())
    assert answer.retry_after is not None
    assert least <= answer.retry_after <= most


@pytest.mark.parametrize("given", ["-1", "soon", "1e9", "٣", "9" * 30])
async def test_a_pause_of_a_wrong_form_counts_for_nothing(given: str) -> None:
    async with Receiver(lambda _: Reply(503, headers={"Retry-After": given})) as receiver:
        answer = await post(receiver.url())
    assert (answer.status, answer.retry_after) == (503, None)
