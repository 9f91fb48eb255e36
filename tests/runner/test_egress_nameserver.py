"""Questions of a run for other DNS records than addresses go to the nameserver of the machine."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TYPE_CHECKING

import pytest

from runner.test_egress_dns import question
from windlass.kickoffs.egress import Egress
from windlass.runner.egress.dns import NO_SUCH_NAME, SERVER_FAILURE
from windlass.runner.egress.outside import Outside
from windlass.runner.egress.run_network import RunNetwork

if TYPE_CHECKING:
    from pathlib import Path

SRV = 33


async def answered(data: bytes, egress: str, resolver: Path, port: int) -> bytes | None:
    network = RunNetwork(Egress.parse([egress]), Outside(resolver=resolver, port=port))
    return await network._answer_to(data)


async def test_questions_for_other_records_go_to_the_nameserver_of_the_machine(tmp_path: Path) -> None:
    asked, resolver = question("_mongodb._tcp.db.example.com", SRV), tmp_path / "resolv.conf"
    resolver.write_text("search example.com\nnameserver 127.0.0.1\nnameserver 192.0.2.1\n")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as nameserver:
        nameserver.bind(("127.0.0.1", 0))
        nameserver.setblocking(False)
        port, loop = nameserver.getsockname()[1], asyncio.get_running_loop()
        waiting = asyncio.create_task(answered(asked, "*.example.com", resolver, port))
        received, sender = await loop.sock_recvfrom(nameserver, 512)
        assert received == asked
        nameserver.sendto(b"\xff\xff of another question", sender)
        nameserver.sendto(asked[:2] + b" the answer", sender)
        assert await waiting == asked[:2] + b" the answer"
        refused = await answered(asked, "other.org", resolver, port)
        assert refused is not None
        assert struct.unpack_from("!HH", refused)[1] & 15 == NO_SUCH_NAME
        with pytest.raises(BlockingIOError):
            nameserver.recv(1)


async def test_without_a_nameserver_such_a_question_fails_at_once(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    answer = await answered(question(record=SRV), "open", tmp_path / "missing", port)
    assert answer is not None
    assert struct.unpack_from("!HH", answer)[1] & 15 == SERVER_FAILURE
