"""What every provider of a secret manager offers, and the errors that it raises.

WindlassError
└── SecretError                 a secret can't be read
    ├── SecretNotFound          the secret manager has no such secret
    ├── AccessDenied            the credential is accepted, and may not read this secret
    ├── CredentialRefused       the provider refuses the credential itself
    ├── KeyNotFound             the secret is no JSON object, or has no such key
    ├── UnusableSecret          no variable can hold the value: it is no text, too large, or has a NUL character
    ├── ProviderUnavailable     the provider does not answer, or is overloaded; the call may be repeated
    ├── BadCredential           the configuration of a credential is invalid
    ├── NoIssuer                this server has no address or no key with which it can prove its identity
    ├── NoCredential            no credential has this name, or the provider has no default one
    └── MissingPackage          the client of the provider is not installed
"""

# See docs/decisions/secrets.md#errors-of-secret-managers-come-from-tables

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from windlass.errors import WindlassError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pydantic import BaseModel

    from windlass.secrets.providers.endpoints import Endpoints

WORKLOAD_IDENTITY = "workload_identity"
"""The method of each provider by which values are read at each kickoff. With the other methods they are read at deploy.
"""

LARGEST_VALUE = 64 * 1024
"""Bytes of the largest value, as of every variable."""

LONGEST_ANSWER = 20_000
"""The characters of an answer in which a meaning is searched."""

Subject = Callable[[str], str]
"""Returns the token that identifies this server to an audience: a JWT, signed by its OIDC issuer."""


class SecretError(WindlassError):
    """The message never has a value, nor text of a provider that may quote one."""

    code: ClassVar[str] = "secret_error"


class SecretNotFound(SecretError):  # noqa: N818 - describes the secret
    code = "not_found"


class AccessDenied(SecretError):  # noqa: N818 - the term of the providers
    code = "access_denied"


class CredentialRefused(SecretError):  # noqa: N818 - describes the credential
    code = "credential_refused"


class KeyNotFound(SecretError):  # noqa: N818 - describes the key
    code = "json_key_not_found"


class UnusableSecret(SecretError):  # noqa: N818 - describes the secret
    code = "unusable_secret"


class ProviderUnavailable(SecretError):  # noqa: N818 - describes the provider
    code = "provider_unavailable"


class BadCredential(SecretError):  # noqa: N818 - describes the credential
    code = "bad_credential"


class NoCredential(SecretError):  # noqa: N818 - describes the credential
    code = "no_credential"


class CredentialNotPermitted(SecretError):  # noqa: N818 - describes the credential
    """Reports a deployment, or the role of a person, that may not use the credential."""

    code = "credential_not_permitted"


class NoIssuer(SecretError):  # noqa: N818 - describes the issuer
    code = "no_issuer"


class MissingPackage(SecretError):  # noqa: N818 - describes the package
    code = "missing_package"


@dataclass(frozen=True, slots=True)
class IdentityValues:
    """What a person enters at a provider, so that it trusts the tokens of this server.

    `values` maps the label of each value, in the provider's words, to the value. `commands` are an example: commands of
    a shell that enter them, with names in capital letters to replace.
    """

    audience: str
    values: Mapping[str, str]
    commands: str


class Manager(Protocol):
    """A secret manager, as one credential may use it.

    Its methods block, are safe from any thread, and raise SecretError. Each sends a request once, and some 20 seconds
    is the longest that it takes; after ProviderUnavailable the caller may repeat it. It keeps tokens of the provider
    and connections, and no value of a secret.
    """

    def read(self, name: str) -> str:
        """Returns the newest value of a secret, as text."""

    def names(self, prefix: str, limit: int) -> list[str]:
        """Returns names of secrets that begin with `prefix`, for completion."""

    def check(self) -> str:
        """Proves to the provider who the server is, and returns as whom it is known there. Reads no secret."""

    def close(self) -> None: ...


class Provider(ABC):
    """A kind of secret manager. `methods` maps each method to the model of its configuration, whose secret members are
    SecretStr. `extra` is the extra of the package windlass with its client, None if it needs none.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    extra: ClassVar[str | None] = None
    methods: ClassVar[Mapping[str, type[BaseModel]]]

    def __init__(self, endpoints: Endpoints) -> None:
        self._endpoints = endpoints

    @abstractmethod
    def connect(self, configuration: Any, subject: Subject) -> Manager:
        """Takes a configuration of one of the models. Raises BadCredential and MissingPackage. Sends nothing yet.

        Imports the client when it is needed first, which takes up to 0.2 s: it is called in a thread.
        """

    @abstractmethod
    def check_name(self, name: str) -> None:
        """Raises BadCredential for a name that no secret of this provider can have."""

    @abstractmethod
    def identity_values(self, issuer: str, subject: str) -> IdentityValues:
        """Returns the values for the method `workload_identity`. `subject` is the `sub` of the server's tokens."""


def parse_reference(reference: str) -> tuple[str, str | None]:
    """Splits a secret name `name` or `name#json_key` at the first `#`. Raises BadCredential."""
    name, sign, key = reference.partition("#")
    if not name.strip() or (sign and not key):
        raise BadCredential(f"{reference[:200]!r} is no name of a secret.", "Give a name, or name#json_key.")
    return name, key if sign else None


def extract(value: str, key: str | None) -> str:
    """Returns the value, or that of a member of the JSON object that it is: a text as it is, everything else as JSON.

    Raises KeyNotFound and UnusableSecret. The message names no other member.
    """
    if key is not None:
        value = _member(value, key)
    if "\0" in value:
        raise UnusableSecret("The value contains a NUL character, which no variable can hold.", "Store it as base64.")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise UnusableSecret("The value is no valid text.", "Store it as base64.") from None
    if size > LARGEST_VALUE:
        raise UnusableSecret(
            f"The value is larger than {LARGEST_VALUE >> 10} KB, the most that a variable can hold.",
            "Name one JSON key of it with name#json_key, or let a tool of the crew read it.",
        )
    return value


def _member(value: str, key: str) -> str:
    try:
        document = json.loads(value)
        if not isinstance(document, dict):
            raise KeyNotFound("The secret is no JSON object, so it has no keys.", "Leave out `#` and what follows it.")
        if key not in document:
            raise KeyNotFound(f"The secret has no JSON key {key[:200]!r}.", "Keys are compared exactly.")
        member = document[key]
        return member if isinstance(member, str) else json.dumps(member, ensure_ascii=False, separators=(",", ":"))
    except (ValueError, RecursionError):
        raise KeyNotFound(
            "The secret is no JSON object, so it has no keys.", "Leave out `#` and what follows it."
        ) from None


class Meaning(NamedTuple):
    """A meaning of a provider's answer. `pattern` is searched in the code and the text of the answer."""

    pattern: str
    kind: type[SecretError]
    message: str
    hint: str


def first_meaning(table: Sequence[Meaning], answer: str) -> SecretError | None:
    """Returns the error with the words of the first meaning that fits. The text of the answer is never quoted."""
    beginning = answer[:LONGEST_ANSWER]
    for meaning in table:
        if re.search(meaning.pattern, beginning, re.IGNORECASE):
            return meaning.kind(meaning.message, meaning.hint)
    return None
