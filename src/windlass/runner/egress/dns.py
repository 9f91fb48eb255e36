"""Reads questions of DNS (RFC 1035) and writes answers with addresses. The questions come from code of crews."""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from windlass.ip_addresses import Address

A, AAAA = 1, 28
INTERNET = 1
NO_ERROR, FORMAT_ERROR, SERVER_FAILURE, NO_SUCH_NAME, NOT_IMPLEMENTED = range(5)
HEADER = struct.Struct("!HHHHHH")
QUESTION_END = struct.Struct("!HH")
RECORD = struct.Struct("!HHHIH")
IS_ANSWER, OPCODE, RECURSION_WANTED, RECURSION_OFFERED = 0x8000, 0x7800, 0x0100, 0x0080
NAME_OF_QUESTION = 0xC000 | HEADER.size
"""A pointer to the name of the question, as the name of a record."""
TTL = 30
"""Seconds that an answer holds."""
LONGEST_LABEL, LONGEST_NAME = 63, 255
MOST_RECORDS = 8
"""Addresses in an answer: it fits into 512 bytes, which each resolver accepts."""


class BadQuestion(Exception):  # noqa: N818 - describes the question
    """Reports bytes that are no question. `answer` is the answer to them, None for bytes that get none."""

    def __init__(self, answer: bytes | None) -> None:
        super().__init__("no question of DNS")
        self.answer = answer


@dataclass(frozen=True, slots=True)
class Question:
    """`name` is in lower case, without the last dot. `record` is the type of record that is asked for."""

    number: int
    flags: int
    name: str
    record: int
    section: bytes
    """The question as it was received. The answer repeats it."""

    def answer(self, code: int, addresses: Iterable[Address] = ()) -> bytes:
        """Returns an answer with this code. Of the addresses it has those of the version that is asked for."""
        version = {A: 4, AAAA: 6}.get(self.record)
        packed = [one.packed for one in addresses if one.version == version][:MOST_RECORDS]
        records = b"".join(RECORD.pack(NAME_OF_QUESTION, self.record, INTERNET, TTL, len(one)) + one for one in packed)
        flags = IS_ANSWER | self.flags & RECURSION_WANTED | RECURSION_OFFERED | code
        return HEADER.pack(self.number, flags, 1, len(packed), 0, 0) + self.section + records


def read_question(data: bytes) -> Question:
    """Raises BadQuestion."""
    if len(data) < HEADER.size:
        raise BadQuestion(None)
    number, flags, questions, _, _, _ = HEADER.unpack_from(data)
    if flags & IS_ANSWER:
        raise BadQuestion(None)
    if flags & OPCODE:
        raise BadQuestion(_refusal(number, flags, NOT_IMPLEMENTED))
    name, end = _name(data)
    if questions != 1 or name is None or len(data) < end + QUESTION_END.size:
        raise BadQuestion(_refusal(number, flags, FORMAT_ERROR))
    record, kind = QUESTION_END.unpack_from(data, end)
    if kind != INTERNET:
        raise BadQuestion(_refusal(number, flags, NOT_IMPLEMENTED))
    return Question(number, flags, name, record, data[HEADER.size : end + QUESTION_END.size])


def _refusal(number: int, flags: int, code: int) -> bytes:
    return HEADER.pack(number, IS_ANSWER | flags & (OPCODE | RECURSION_WANTED) | code, 0, 0, 0, 0)


def _name(data: bytes) -> tuple[str | None, int]:
    """Returns the name of the question and the offset after it. The name is None if it is none, or compressed."""
    labels, at = [], HEADER.size
    while at < len(data) and (length := data[at]):
        label = data[at + 1 : at + 1 + length]
        at += 1 + length
        if length > LONGEST_LABEL or at - HEADER.size >= LONGEST_NAME or len(label) < length:
            return None, at
        labels.append(label.decode("ascii", "backslashreplace").lower())
    return (".".join(labels) if at < len(data) else None), at + 1


def addresses_in(texts: Iterable[str]) -> list[Address]:
    """Returns each address once, in the same order. Addresses with a zone are left out: they have no form in DNS."""
    return [ipaddress.ip_address(one) for one in dict.fromkeys(texts) if "%" not in one]
