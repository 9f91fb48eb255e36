"""The tree of errors that a person can act on. Each has a message, and a hint with the next step.

WindlassError
├── SettingsError            a WINDLASS_* variable can't be used
├── DatabaseUnavailable      PostgreSQL does not answer; the call may be repeated
│   └── StatementGivenUp     PostgreSQL answers, but one statement took too long or found no disk space or memory
├── Unstorable               PostgreSQL refuses a value permanently
├── MigrationError           (store.migrate) the tables of the database don't match this release
├── ProjectError             a project can't be served; with file and line where they are known
│   └── Unrecognised         (projects.kinds) no kind of project fits, or its entrypoint can't be found
├── ChildLost                a process for crew code ended unexpectedly, or did not start
├── IdempotencyKeyReused     (lifecycle.accept) the same key was used with another request
├── QueueFull                (lifecycle.accept) the queue of the crew is full
├── KeyInUse                 (lifecycle.accept) another kickoff holds the concurrency key of a kickoff that may not wait
├── NoSuchToken, NoSuchUser, UserExists, UserCanNot, TooManyTokens, LastOwner  (access.tokens)
├── NoSuchDeployment         (deployments.management)
├── BadSettings              (deployments.settings) a member of the settings of a deployment is invalid
├── BadVariable, NoSuchVariable  (deployments.variables)
├── NoSuchWebhook, NoSuchDelivery, TooManyTests  (deployments.webhooks)
├── BadEnvFile               (deployments.env_files) a line of a .env file is invalid
├── TooManyVariables         (store.variables)
├── CredentialExists, CredentialInUse, TooManyCredentials  (store.credentials)
├── NoSuchCredential         (deployments.credentials)
├── SecretError              (secrets.provider) a secret can't be read
├── KickoffsStillOpen        (lifecycle.deletion) a user's kickoffs can't be deleted before they have ended
├── UnreadableSecrets        (lifecycle.worker_config) values of variables can't be read from their secret managers
├── BadSigningKey            (secrets.oidc) a key of OIDC_PRIVATE_KEY can't sign tokens
├── KeyWaits, KeysAreFixed   (store.signing_keys, deployments.identity) the signing key can't be rotated now
├── NotRotated, KeysInUse    (wiring.master_keys, store.sealed_values) the master key can't be rotated now
├── MasterKeyError           (secrets.key_file) the key file or variable can't be used
├── UnknownKey, Damaged      (secrets.key_ring) a sealed value can't be opened
├── CrewError                (client.errors) the base class of the errors of a crew's client
├── BackupError              (embedded_postgres.backup_file) a backup can't be made or used
└── EmbeddedPostgresError    (embedded_postgres.errors) the embedded PostgreSQL failed
    └── HomeInUse            another running server uses its folder
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
        # Exception.__reduce__ passes `args` to __init__ when unpickled; most of these classes have another signature.
        return _anew, (type(self), self.args), self.__dict__


class SettingsError(WindlassError):
    pass


class DatabaseUnavailable(WindlassError):  # noqa: N818 - describes the database, in standard terms
    pass


class StatementGivenUp(DatabaseUnavailable):
    """One statement failed; smaller statements may succeed."""


class Unstorable(WindlassError):  # noqa: N818 - describes the value
    pass


class ProjectError(WindlassError):
    pass


class ChildLost(WindlassError):  # noqa: N818 - describes the child
    pass


def _anew(kind: type[WindlassError], args: tuple[Any, ...]) -> WindlassError:
    return kind.__new__(kind, *args)
