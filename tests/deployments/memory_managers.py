"""Secret managers in memory, which answer as their secrets say. Tests of providers use real servers instead."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from windlass.secrets.provider import SecretNotFound

if TYPE_CHECKING:
    from windlass.store.credentials import CredentialRow


@dataclass
class MemoryManagers:
    """`secrets` maps the name of each secret to its value, or to the error that a read of it raises.

    Reads of a secret in `held` wait until its event is set. `reads` counts the reads of each secret, and `made` and
    `closed` have the names of credentials.
    """

    secrets: dict[str, str | Exception] = field(default_factory=dict)
    held: dict[str, threading.Event] = field(default_factory=dict)
    reads: Counter[str] = field(default_factory=Counter)
    made: list[str] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)

    def connect(self, credential: CredentialRow) -> MemoryManager:
        self.made.append(credential.name)
        return MemoryManager(self, credential.name)

    def hold(self, secret: str) -> threading.Event:
        return self.held.setdefault(secret, threading.Event())


@dataclass
class MemoryManager:
    managers: MemoryManagers
    credential: str

    def read(self, name: str) -> str:
        self.managers.reads[name] += 1
        if event := self.managers.held.get(name):
            event.wait(20)
        found = self.managers.secrets.get(name, SecretNotFound("There is no such secret.", "Check its name."))
        if isinstance(found, Exception):
            raise found
        return found

    def names(self, prefix: str, limit: int) -> list[str]:
        return sorted(name for name in self.managers.secrets if name.startswith(prefix))[:limit]

    def check(self) -> str:
        return self.credential

    def close(self) -> None:
        self.managers.closed.append(self.credential)
