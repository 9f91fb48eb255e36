"""Registers a project as a version of a deployment, and reports the errors that are found in the project."""

# See docs/decisions/deployments.md#an-unchanged-project-is-served-at-once

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windlass import log
from windlass.deployments.inspection import additional_findings
from windlass.errors import ProjectError
from windlass.projects import Interpreter, Interpreters, Recognised, digest, recognise
from windlass.projects.checks import declared_project
from windlass.projects.findings import Level, counts
from windlass.projects.reader import DirectReader
from windlass_child.protocol.messages import Warned

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    Notify = Callable[[str], None]

    from windlass.lifecycle.worker_config import CrewEnvironment
    from windlass.projects.findings import Finding
    from windlass.runner import Runner
    from windlass.store.deployments import Deployment, DeploymentStore

LONGEST_SLUG = 63

logger = log.logger(__name__)


@dataclass(frozen=True, slots=True)
class Registration:
    """Describes a project before it is loaded: how it was recognised, its interpreter, and the digest of its files.

    `path` is what the person named: the folder, or a file or an object in it.
    """

    recognised: Recognised
    chosen: Interpreter
    digest: str
    path: Path
    suffix: str = ""
    """The end of its slug, where another project has the same name, or where it is one of several of a folder."""

    @classmethod
    def of(cls, path: Path, interpreters: Interpreters = Interpreters()) -> Registration:  # noqa: B008 - it is immutable
        """Raises ProjectError, with a message for a person, when `path` holds no crew."""
        recognised = recognise(path)
        root = Path(recognised.project.root)
        chosen = interpreters.of(root, recognised.options.python).supported(root)
        return cls(recognised, chosen, digest(root, recognised.options.ignore), path)

    @property
    def interpreter(self) -> Path:
        return self.chosen.path

    @property
    def slug(self) -> str:
        name = slug_of(self.recognised.name)
        return f"{name[: LONGEST_SLUG - len(self.suffix)].rstrip('-')}{self.suffix}"

    def named_apart(self, others: Collection[str]) -> Registration:
        """Returns the registration with a slug that is none of these, if possible its own one."""
        first = self.suffix if self.suffix == self._suffix_of_object else ""
        suffixes = itertools.chain([first], (f"{first}-{number}" for number in itertools.count(2)))
        return next(one for suffix in suffixes if (one := replace(self, suffix=suffix)).slug not in others)

    def named_by_object(self) -> Registration:
        """Returns the registration with the name of the object, such as build_crew of crew.py:build_crew, in its slug.

        A registration of a whole folder or file stays as it is.
        """
        return replace(self, suffix=self._suffix_of_object)

    @property
    def _suffix_of_object(self) -> str:
        _, colon, name = self.path.name.rpartition(":")
        return f"-{slug_of(name)}" if colon else ""

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
        warn: Notify | None = None,
        *,
        secrets: Collection[str] = (),
    ) -> Deployment:
        """Loads the project in a process of its own, and registers its manifest as a version.

        Calls `warn` with a message for each part of the project that will not work. `secrets` are the names of the
        variables whose values are masked in the manifest and in messages. Raises ProjectError, with a message for a
        person.
        """

        async def report(message: object) -> None:
            if isinstance(message, Warned) and warn is not None:
                warn(message.message)

        project, preload = self.recognised.project, self.recognised.preload
        limits = self.recognised.options.limits
        manifest = await runner.inspect(
            self.interpreter, preload, project, environment, report, limits, secrets=secrets
        )
        deployment = await store.register(self.slug, digest=self.digest, source=self.source, manifest=manifest)
        version = deployment.version
        logger.event("deployment.registered", deployment=self.slug, version=version.number if version else None)
        return deployment


def slug_of(name: str) -> str:
    """Returns the form of a project's name in URLs: lower-case letters, digits and hyphens. It has at most 63
    characters, as a label of a host name.
    """
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:LONGEST_SLUG].rstrip("-") or "crew"


def read_project(path: Path, notify: Notify, interpreters: Interpreters) -> Registration:
    """Reads the project's pyproject.toml. Reports all errors in it before it raises ProjectError."""
    try:
        return Registration.of(path, interpreters)
    except ProjectError:
        _, found = declared_project(path)
        notify_errors(found, notify)
        raise


async def loaded(
    registration: Registration,
    store: DeploymentStore,
    runner: Runner,
    environment: CrewEnvironment,
    notify: Notify,
) -> Deployment:
    """Loads the project and registers it as a deployment. Raises ProjectError when the project can't be loaded.

    In both cases, reports the packages, variables and files that the project needs and that are missing.
    """

    def warn(message: str) -> None:
        notify(f"warning: {message}")

    async def findings(*, is_loaded: bool) -> list[Finding]:
        chosen, variables = registration.chosen, environment.variables
        return await additional_findings(
            registration.path, runner, variables, chosen, DirectReader(), is_loaded=is_loaded
        )

    try:
        deployment = await registration.inspect(
            store, runner, environment.variables, warn, secrets=environment.secrets & environment.variables.keys()
        )
    except ProjectError:
        notify_errors(await findings(is_loaded=False), notify)
        raise
    notify_findings(await findings(is_loaded=True), notify)
    return deployment


def notify_errors(found: list[Finding], notify: Notify) -> None:
    """Reports findings with two or more errors. The exception of the failed load already reports a single error."""
    errors = [one for one in found if one.level is Level.ERROR]
    if len(errors) < 2:  # noqa: PLR2004 - more than one
        return
    notify_findings(found, notify)
    notify(counts(found))


def notify_findings(found: list[Finding], notify: Notify) -> None:
    for one in found:
        for line in one.lines():
            notify(line)
