from __future__ import annotations

import hmac
from typing import NoReturn, Self, final

STARS = "********"


@final
class Secret:
    """A text that prints as stars everywhere: in logs, errors, format strings and the repr of its container.

    Only `reveal()` returns the text. An empty Secret is false, every other one is true. A Secret equals a Secret of the
    same text (compared in constant time), and never a plain str. JSON and pickle refuse it.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise TypeError(f"a Secret holds a str, not {type(text).__name__}")
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __str__(self) -> str:
        return STARS

    def __repr__(self) -> str:
        return f"Secret('{STARS}')"

    def __format__(self, spec: str) -> str:
        return format(STARS, spec)

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(_bytes_of(self), _bytes_of(other))

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self  # for dataclasses.asdict, which makes deep copies

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a Secret is not pickled: call reveal() only where the text is needed")


def _bytes_of(secret: Secret) -> bytes:
    return secret.reveal().encode("utf-8", "surrogatepass")
