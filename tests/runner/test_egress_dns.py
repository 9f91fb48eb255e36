"""Questions of DNS from code of crews are read within bounds, whatever their bytes are."""

from __future__ import annotations

import ipaddress
import random
import struct

import pytest

from windlass.runner.egress.dns import NO_ERROR, NO_SUCH_NAME, BadQuestion, Question, read_question

pytestmark = pytest.mark.unit
A, AAAA, MX = 1, 28, 15


def question(name: str = "api.example.com", record: int = A, *, number: int = 7, flags: int = 0x0100) -> bytes:
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split(".") if label)
    return struct.pack("!HHHHHH", number, flags, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!HH", record, 1)


def test_an_answer_has_the_addresses_of_the_version_that_was_asked_for() -> None:
    asked = read_question(question("API.Example.com"))
    assert (asked.name, asked.record) == ("api.example.com", A)
    four, six = ipaddress.ip_address("93.184.216.34"), ipaddress.ip_address("2606::1")
    answer = asked.answer(NO_ERROR, [four, six])
    number, flags, questions, answers, _, _ = struct.unpack_from("!HHHHHH", answer)
    assert (number, flags & 0x8000, flags & 15, questions, answers) == (7, 0x8000, 0, 1, 1)
    assert answer.endswith(struct.pack("!HHHIH", 0xC00C, A, 1, 30, 4) + four.packed)
    assert answer[12 : 12 + len(question()) - 12] == question("API.Example.com")[12:]
    assert read_question(question(record=AAAA)).answer(NO_ERROR, [four, six]).endswith(six.packed)
    assert struct.unpack_from("!HHHH", read_question(question(record=MX)).answer(NO_ERROR, [four]))[3] == 0


def test_an_answer_fits_into_a_datagram() -> None:
    many = [ipaddress.ip_address(number + (1 << 100)) for number in range(100)]
    name = ".".join(["a" * 60] * 4)
    assert len(read_question(question(name, AAAA)).answer(NO_ERROR, many)) <= 512


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 11,
        question(flags=0x8180),
    ],
)
def test_what_is_no_question_gets_no_answer(data: bytes) -> None:
    with pytest.raises(BadQuestion) as bad:
        read_question(data)
    assert bad.value.answer is None


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (question()[:-1], 1),
        (question()[:14], 1),
        (question()[:12] + b"\xc0\x0c\0\1\0\1", 1),
        (question()[:12] + b"\x3f" + b"a" * 10, 1),
        (question()[:12] + (b"\x3f" + b"a" * 63) * 5 + b"\0\0\1\0\1", 1),
        (question()[:4] + b"\0\2" + question()[6:], 1),
        (question(flags=0x2800), 4),
        (question()[:-2] + b"\0\3", 4),
    ],
)
def test_a_faulty_question_gets_an_error(data: bytes, code: int) -> None:
    with pytest.raises(BadQuestion) as bad:
        read_question(data)
    answer = bad.value.answer
    assert answer is not None
    number, flags, *counts = struct.unpack("!HHHHHH", answer)
    assert (number, flags & 0x800F, counts) == (7, 0x8000 | code, [0, 0, 0, 0])


def test_bytes_at_random_are_a_question_or_refused() -> None:
    chance = random.Random(34)
    base = question()
    for _ in range(20_000):
        data = bytearray(base if chance.random() < 0.7 else chance.randbytes(chance.randrange(80)))
        for _ in range(chance.randrange(6)):
            if data:
                data[chance.randrange(len(data))] = chance.randrange(256)
        data = data[: chance.randrange(len(data) + 1)] if chance.random() < 0.3 else data
        found = answer_or_question(bytes(data))
        if isinstance(found, Question):
            assert len(found.name) <= 1100
            assert found.answer(NO_SUCH_NAME).endswith(found.section)
        else:
            assert found is None or len(found) == 12


def answer_or_question(data: bytes) -> Question | bytes | None:
    try:
        return read_question(data)
    except BadQuestion as bad:
        return bad.answer
