"""What the models of all providers' configurations have in common."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, SecretStr

from windlass.secrets.installing import install_command
from windlass.secrets.provider import MissingPackage

LARGEST_SECRET = 32 * 1024


class Configuration(BaseModel):
    """A model whose errors quote no value, because the value may be a secret in the wrong member."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, str_strip_whitespace=True)

    destinations: ClassVar[frozenset[str]] = frozenset()
    """The members that decide where the secret ones are sent. Whoever changes one gives the secret ones again."""


def form(pattern: str, words: str) -> AfterValidator:
    """Returns a validator of texts with this form. The error describes it in words: "must be ..."."""
    compiled = re.compile(pattern, re.ASCII)

    def check(value: str) -> str:
        if not compiled.fullmatch(value):
            raise ValueError(f"must be {words}")
        return value

    return AfterValidator(check)


def _usable(value: SecretStr) -> SecretStr:
    text = value.get_secret_value().strip()
    if not text:
        raise ValueError("must not be empty")
    if len(text) > LARGEST_SECRET:
        raise ValueError(f"must not be longer than {LARGEST_SECRET >> 10} KB")
    return SecretStr(text)


SecretText = Annotated[SecretStr, AfterValidator(_usable)]
"""A secret that is not blank. A client that gets a blank one would use the identity of the server itself."""

Text = Annotated[str, form(r"[^\x00-\x1f\x7f]{1,1000}", "one line of at most 1,000 characters, and not empty")]


def missing(title: str, extra: str) -> MissingPackage:
    return MissingPackage(
        f"The client of {title} is not installed in the environment of the server.",
        f"Install it, and start the server again: {install_command(extra)}",
    )
