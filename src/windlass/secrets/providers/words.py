"""Errors of providers in words: tables of the meanings of their answers. The text of an answer is never quoted."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windlass.secrets.provider import SecretError


class Meaning(NamedTuple):
    """`pattern` is searched in the code and the text of an answer."""

    pattern: str
    kind: type[SecretError]
    message: str
    hint: str


def first_meaning(table: Sequence[Meaning], answer: str) -> SecretError | None:
    for meaning in table:
        if re.search(meaning.pattern, answer, re.IGNORECASE):
            return meaning.kind(meaning.message, meaning.hint)
    return None
