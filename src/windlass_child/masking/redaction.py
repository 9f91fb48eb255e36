"""Masks the values of the crew's variables in all that leaves its process, and converts any value to plain JSON.

`SecretValues` masks the variables that are marked as secret, everywhere. `Redaction` masks in errors and events the
values of all other variables, too, unless they look harmless. docs/concepts/projects.md describes the coverage and the
bounds.
"""

# See docs/decisions/security.md#the-child-masks-what-it-sends-and-the-server-what-the-child-prints

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from windlass_child.masking.encodings import from_utf8, utf8
from windlass_child.masking.search import Search
from windlass_child.masking.secret_parts import SHORTEST, is_of_the_machine, secrets_in
from windlass_child.masking.secret_values import MASK, MASK_BYTES, SecretValues
from windlass_child.protocol.fields import LONGEST_NAME
from windlass_child.protocol.messages import Asked, Inspected, Succeeded, TaskEnded, TasksKnown, TaskStarted
from windlass_child.protocol.truncation import beginning

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from windlass_child.protocol.fields import KnownTask
    from windlass_child.protocol.messages import Message

DEEPEST = 64
MOST = 1000
"""The most values that are masked because they look like secrets, the longest first."""

PASSWORD_IN_URL = re.compile(r"(?<=://)([^\s/:@]*):([^\s/@]+)@")


class Redaction:
    """`environment` are all variables of the crew. `secrets` are the names of those that are marked as secret."""

    def __init__(self, environment: Mapping[str, str], secrets: Collection[str] = ()) -> None:
        self.secrets = secret_values(tuple((name, environment[name]) for name in secrets if name in environment))
        given = {name: value for name, value in environment.items() if not is_of_the_machine(name)}
        found = {form for name, value in given.items() for form in forms_in(name, value)}
        longest_first = sorted(found - self.secrets.forms.keys(), key=len, reverse=True)[:MOST]
        self._search = search_for(frozenset(utf8(value) for value in longest_first if len(value) >= SHORTEST))
        short = [value for value in longest_first if len(value) < SHORTEST]
        self._short = [(value, re.compile(rf"(?<!\w){re.escape(value)}(?!\w)")) for value in short]

    def text(self, text: str) -> str:
        text = self.secrets.masked(text)
        if self._search:
            data = utf8(text)
            found = self._search.masked(data, MASK_BYTES)
            text = text if found is data else from_utf8(found)
        for value, alone in self._short:
            if value in text:
                text = alone.sub(MASK, text)
        return PASSWORD_IN_URL.sub(rf"\1:{MASK}@", text) if "://" in text else text

    def plain(self, value: Any) -> Any:
        """Returns `value` as JSON with masked strings. A value that JSON can't hold becomes the name of its type."""
        return self.secrets.without_numbers(self._plain(value, 0))

    def _plain(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if value is None or isinstance(value, bool | int | float):
            return str(value) if isinstance(value, float) and not math.isfinite(value) else value
        if depth >= DEEPEST:
            return "…"
        if isinstance(value, dict):
            return {self.text(str(key)): self._plain(item, depth + 1) for key, item in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self._plain(item, depth + 1) for item in value]
        return nameless(value)

    def message(self, message: Message) -> Message:
        """Returns a message without the values of secret variables, with names of at most LONGEST_NAME characters.

        `Report` masks events, warnings and errors before it cuts them, and `Journal` its entries.
        """
        return replace(message, **self.masked_fields(message))

    def masked_fields(self, message: Message) -> dict[str, Any]:
        """Returns the fields of a message that change."""
        masked = self.secrets.masked
        fields: dict[str, Any] = {}
        match message:
            case TasksKnown():
                fields = {"tasks": [self._task(one) for one in message.tasks]}
            case TaskStarted():
                fields = {"name": self._name(message.name), "agent": self._name(message.agent)}
            case TaskEnded():
                fields = {"output": message.output and masked(message.output), "agent": self._name(message.agent)}
            case Asked():
                fields = {"question": masked(message.question), "draft": masked(message.draft)}
                fields |= {"method": self._name(message.method), "choices": [*map(masked, message.choices)]}
            case Succeeded():
                structured = message.structured and self.secrets.masked_json_text(message.structured)
                fields = {"output": masked(message.output), "structured": structured}
            case Inspected():
                manifest = self.secrets.masked_json(message.manifest)
                tasks = {"tasks": [self._task(one) for one in manifest["tasks"]]} if "tasks" in manifest else {}
                fields = {"manifest": {**manifest, **tasks}}
        return fields

    def _task(self, task: KnownTask) -> KnownTask:
        return {**task, "name": self._name(task["name"]), "agent": self._name(task["agent"])}

    def _name(self, name: str | None) -> str | None:
        """Masks a name before it is cut, so that no part of a value is left."""
        return name and beginning(self.secrets.masked(name), LONGEST_NAME)


@lru_cache(maxsize=1)
def secret_values(values: tuple[tuple[str, str], ...]) -> SecretValues:
    """Is cached, as the next two are: in a process that is reused, the next run has the same values."""
    return SecretValues(dict(values))


@lru_cache(maxsize=MOST)
def forms_in(name: str, value: str) -> frozenset[str]:
    return frozenset(form for secret in secrets_in(name, value) for form in forms(secret))


@lru_cache(maxsize=1)
def search_for(patterns: frozenset[bytes]) -> Search:
    return Search(patterns)


def nameless(value: object) -> str:
    """Returns a replacement for an object whose own text might contain a key."""
    return f"<{type(value).__name__}>"


def forms(secret: str) -> set[str]:
    """Returns the secret in its forms: unchanged, and as in JSON, in a Python literal and in a URL."""
    return {secret, json.dumps(secret)[1:-1], repr(secret)[1:-1], quote(secret, safe="")}
