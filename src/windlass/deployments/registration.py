from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windlass import log
from windlass.projects import Recognised, digest, interpreter_of, recognise
from windlass_child.process.messages import Warned

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from windlass.runner import Runner
    from windlass.store.deployments import Deployment, DeploymentStore

logger = log.logger(__name__)


@dataclass(frozen=True, slots=True)
class Registration:
    """Describes a project before it is loaded: how it was recognised, its interpreter, and the digest of its files."""

    recognised: Recognised
    interpreter: Path
    digest: str

    @classmethod
    def of(cls, path: Path) -> Registration:
        """Raises ProjectError, with a message for a person, when `path` holds no crew."""
        recognised = recognise(path)
        root = Path(recognised.project.root)
        return cls(recognised, interpreter_of(root), digest(root, recognised.options.ignore))

    @property
    def slug(self) -> str:
        return slug_of(self.recognised.name)

    @property
    def root(self) -> Path:
        return Path(self.recognised.project.root)

    @property
    def source(self) -> dict[str, Any]:
        project = self.recognised.project
        return {
            "kind": project.kind,
            "root": project.root,
            "entrypoint": project.entrypoint,
            "interpreter": str(self.interpreter),
            "preload": self.recognised.preload,
            "options": self.recognised.options.to_json(),
        }

    async def known(self, store: DeploymentStore) -> Deployment | None:
        """Returns the deployment if its current version has the same files and the same source, else None."""
        found = await store.get(self.slug)
        if found is None or found.version is None:
            return None
        same = (found.version.digest, found.version.source) == (self.digest, self.source)
        return found if same else None

    async def inspect(
        self,
        store: DeploymentStore,
        runner: Runner,
        environment: Mapping[str, str],
        warn: Callable[[str], None] | None = None,
    ) -> Deployment:
        """Loads the project in a process of its own, and registers its manifest as a version.

        Calls `warn` with a message for each part of the project that will not work. Raises ProjectError, with a message
        for a person.
        """

        async def report(message: object) -> None:
            if isinstance(message, Warned) and warn is not None:
                warn(message.message)

        project, preload = self.recognised.project, self.recognised.preload
        limits = self.recognised.options.limits
        manifest = await runner.inspect(self.interpreter, preload, project, environment, report, limits)
        deployment = await store.register(self.slug, digest=self.digest, source=self.source, manifest=manifest)
        version = deployment.version
        logger.event("deployment.registered", deployment=self.slug, version=version.number if version else None)
        return deployment


def slug_of(name: str) -> str:
    """Returns the form of a project's name in URLs: lower-case letters, digits and hyphens. It has at most 63
    characters, as a label of a host name.
    """
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:63].rstrip("-") or "crew"
