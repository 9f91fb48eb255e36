from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windlass import log
from windlass.projects import Recognised, digest, interpreter_of, recognise
from windlass_crewside.messages import Warned

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from windlass.runner import Runner
    from windlass.store.deployments import Deployment, DeploymentStore

logger = log.logger(__name__)


@dataclass(frozen=True, slots=True)
class Registration:
    """A project on its way to being served: as it is now, before anything of it is loaded."""

    recognised: Recognised
    interpreter: Path
    digest: str

    @classmethod
    def of(cls, path: Path) -> Registration:
        """Raises ProjectError, in words, when this can't be a crew."""
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
        """The deployment, when its current version is of this very state of the project."""
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
        """Loads the project in a process of its own and registers what it found. `warn` hears what will not work in
        it. Raises ProjectError, in words.
        """

        async def report(told: object) -> None:
            if isinstance(told, Warned) and warn is not None:
                warn(told.message)

        project, preload = self.recognised.project, self.recognised.preload
        manifest = await runner.inspect(self.interpreter, preload, project, environment, report)
        deployment = await store.register(self.slug, digest=self.digest, source=self.source, manifest=manifest)
        version = deployment.version
        logger.event("deployment.registered", deployment=self.slug, version=version.number if version else None)
        return deployment


def slug_of(name: str) -> str:
    """A project's name as it stands in addresses: lower case, letters, digits and hyphens, at most 63 as in a host
    name.
    """
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:63].rstrip("-") or "crew"
