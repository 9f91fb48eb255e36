"""
WindlassError                what a person can act on: a message, and a hint that says what to do next
├── SettingsError            a WINDLASS_* variable that can't be used
├── DatabaseUnavailable      PostgreSQL does not answer; what was asked may be asked again
├── MigrationError           (store.migrate) the database's tables and this release don't fit
├── ProjectError             a crew's project that can't be served, with file and line where they are known
├── ChildLost                a process that was to run crew code is gone, or never came
├── IdempotencyKeyReused     (lifecycle.accept) the same key came with another request
├── QueueFull                (lifecycle.accept) as many kickoffs of the crew wait as may
├── KeyInUse                 (lifecycle.accept) another kickoff has the concurrency key, and it was not to wait for it
├── NoSuchToken, NoSuchUser  (lifecycle.tokens)
├── MasterKeyError           (vault.key_ring) the key file or variable can't be used
├── UnknownKey, Damaged      (vault.key_ring) a sealed value that can't be opened
├── CrewError                (client.errors) what a client of a crew is told
├── BackupError              (embedded.backup_file) a backup that can't be made, or can't be used
└── EmbeddedPostgresError    (embedded.postgres_errors) the database that comes with Windlass
    └── HomeInUse            another living server has its folder
"""

from __future__ import annotations

from typing import Any


class WindlassError(Exception):
    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception's own gives `args` to __init__ when it is unpickled, which in most classes takes something else.
        return _anew, (type(self), self.args), self.__dict__


class SettingsError(WindlassError):
    pass


class DatabaseUnavailable(WindlassError):  # noqa: N818 - said of the database, as the field says it
    pass


class ProjectError(WindlassError):
    pass


class ChildLost(WindlassError):  # noqa: N818 - said of the child
    pass


def _anew(kind: type[WindlassError], args: tuple[Any, ...]) -> WindlassError:
    return kind.__new__(kind, *args)
