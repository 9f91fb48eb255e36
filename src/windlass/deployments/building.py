"""Does builds: the side job `build` turns the files of a deployment into its next version (docs/concepts/builds.md)."""

# See docs/decisions/secrets.md#a-value-that-is-read-at-deploy-is-published-with-the-version

from __future__ import annotations

import asyncio
import dataclasses
import shlex
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from windlass import config, log
from windlass.aio import cancelled
from windlass.deployments.build_log import BuildLog
from windlass.deployments.environment import names_model
from windlass.deployments.inspection import additional_findings
from windlass.deployments.task_identities import check_identities
from windlass.errors import DatabaseUnavailable, ProjectError, WindlassError
from windlass.kickoffs.manifest import changes
from windlass.lifecycle.background_tasks import until_the_database_answers
from windlass.projects import Interpreter
from windlass.projects.findings import Level, as_error
from windlass.projects.virtual_environments import pausing
from windlass.runner import Output
from windlass.runner.inspection import LoadFailed
from windlass.runner.run_spec import Boundary
from windlass.store.builds import NewVersion
from windlass_child.masking.server_paths import ServerPaths
from windlass_child.protocol.messages import Warned
from windlass_child.protocol.sizes import size_in_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from windlass.deployments.checkouts import Checkouts
    from windlass.deployments.environment import CrewEnvironments
    from windlass.deployments.resolution import Resolved, Resolver
    from windlass.deployments.sources import Sources
    from windlass.kickoffs.manifest import Manifest
    from windlass.projects import Options, Recognised
    from windlass.projects.bounded_reader import BoundedReader
    from windlass.projects.environments import Environments, Prepared
    from windlass.runner import Runner
    from windlass.store.builds import BuildStore, BuildTurn
    from windlass.store.crew_users import CrewUsers

BUILD_SECONDS = 1800.0
"""The time limit of a build."""
BETWEEN_LOOKS = 2.0
"""Seconds between two looks whether the deployment was removed."""
MOST_ATTEMPTS = 5
"""A build whose worker was lost is begun again so often."""
MOST_PRINTED = 10 << 20
"""Bytes that a project may print while it is loaded."""

logger = log.logger(__name__)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A project as a build has loaded it: with which options, on which interpreter, and in which environment, of which
    these variables are `secrets`.
    """

    recognised: Recognised
    options: Options
    prepared: Prepared
    environment: Mapping[str, str]
    secrets: frozenset[str]
    entrypoint: str | None
    """What the deployer chose, in place of what the project declares."""
    boundary: Boundary

    @property
    def root(self) -> Path:
        return Path(self.recognised.project.root)


class Building:
    """Does builds on this machine.

    `sources` fetches files from git, `reader` reads the files of projects, `environments` makes the environments of
    projects, and `crew_environments` has the variables that their crews get. `resolver` reads those from secret
    managers. `crew_users` has the users that they run as. `seconds` is the time limit of a build.
    """

    def __init__(
        self,
        store: BuildStore,
        *,
        sources: Sources,
        checkouts: Checkouts,
        environments: Environments,
        reader: BoundedReader,
        runner: Runner,
        crew_environments: CrewEnvironments,
        resolver: Resolver,
        crew_users: CrewUsers,
        seconds: float = BUILD_SECONDS,
    ) -> None:
        self._store = store
        self._sources = sources
        self._checkouts = checkouts
        self._environments = environments
        self._reader = reader
        self._runner = runner
        self._crew_environments = crew_environments
        self._resolver = resolver
        self._crew_users = crew_users
        self._seconds = seconds

    async def run(self, build: str) -> None:
        """Does the build. Raises DatabaseUnavailable: the side job is then repeated, and the build begins again."""
        turn = await self._store.begin(UUID(build))
        if turn is None:
            return
        logger.event("build.started", build=build, deployment=turn.slug, attempt=turn.attempt)
        lines = BuildLog(self._store, turn)
        async with lines.writing():
            try:
                async with asyncio.timeout(self._seconds) as limit:
                    pausing.set(partial(_paused, limit, asyncio.get_running_loop()))
                    await self._while_wanted(turn, lines)
            except DatabaseUnavailable:
                raise
            except WindlassError as error:
                await self._fail(turn, lines, error)
            except TimeoutError as error:
                await self._fail(turn, lines, self._too_late() if limit.expired() else _unexpected(error))
            except OSError as error:
                await self._fail(turn, lines, _unwritable(error))
            except Exception as error:  # noqa: BLE001 - the deployer must see that the build has ended
                logger.event("side_job.failed", job="build", exc=error)
                await self._fail(turn, lines, _unexpected(error))

    async def _while_wanted(self, turn: BuildTurn, lines: BuildLog) -> None:
        """Raises ProjectError when the deployment is removed meanwhile. The build then ends at once."""
        doing, watching = asyncio.create_task(self._do(turn, lines)), asyncio.create_task(self._until_unwanted(turn))
        try:
            await asyncio.wait({doing, watching}, return_when=asyncio.FIRST_COMPLETED)
            if not doing.done():
                raise _unwanted()
            await doing
        finally:
            await cancelled(doing, watching)

    async def _until_unwanted(self, turn: BuildTurn) -> None:
        while True:
            await asyncio.sleep(BETWEEN_LOOKS)
            with suppress(DatabaseUnavailable):
                if not await self._store.is_wanted(turn):
                    return

    async def _do(self, turn: BuildTurn, lines: BuildLog) -> None:
        if turn.attempt > MOST_ATTEMPTS:
            raise ProjectError(
                f"the worker of this build was lost {MOST_ATTEMPTS} times.",
                "Check the memory of the machine and the log of the server.",
            )
        if turn.attempt > 1:
            lines.add("the worker of this build was lost: the build begins again", "warning")
        resolved = await self._resolve(turn, lines)
        new = await self._version(turn, resolved.values, lines)
        await lines.flush()  # the log takes no lines after the end of the build
        number = await self._store.publish(turn, new, changes, resolved.read_at_deploy)
        if number is not None:
            logger.event("build.ready", build=turn.id, deployment=turn.slug, version=number)
        else:
            raise _unwanted()

    async def _resolve(self, turn: BuildTurn, lines: BuildLog) -> Resolved:
        """Reads the variables from secret managers. The log masks all values from now on."""
        managed = [one.name for one in turn.variables if one.secret_name is not None]
        if managed:
            lines.add(f"reading variables from secret managers: {', '.join(managed)}")
        resolved = await self._resolver.resolve(turn.deployment_id, turn.variables, at_deploy=True)
        lines.mask(resolved.values, {one.name for one in turn.variables if one.secret}, config.environment())
        return resolved

    async def _version(self, turn: BuildTurn, variables: Mapping[str, str], lines: BuildLog) -> NewVersion:
        snapshot = turn.snapshot or await self._fetch(turn, variables, lines)
        lines.add(f"the files have the digest {snapshot[:12]}")
        root = await self._checkouts.get(snapshot)
        lines.readable = partial(for_deployer, root, turn.origin, None)
        loaded = await self._prepare(turn, root, snapshot, variables, lines)
        lines.readable = partial(for_deployer, root, turn.origin, loaded.prepared.interpreter)
        lines.add("loading the project")
        manifest = await self._load(loaded, lines)
        await self._check_identities(loaded, manifest, variables, lines)
        project = loaded.recognised.project
        source = {
            "kind": project.kind,
            "entrypoint": project.entrypoint,
            "preload": loaded.recognised.preload,
            "options": loaded.recognised.options.to_json(),
            "snapshot": snapshot,
            "environment": loaded.prepared.key,
            "root": "",
        }
        if not names_model(loaded.environment):
            lines.add(f"no model key is set. If the crew calls a model: windlass env set {turn.slug} OPENAI_API_KEY")
        lines.add(f"the project is loaded: {_in_words(manifest)}")
        return NewVersion(snapshot, source, manifest)

    async def _fetch(self, turn: BuildTurn, variables: Mapping[str, str], lines: BuildLog) -> str:
        """Stores the files of a git repository, and returns their digest."""
        origin = turn.origin
        fetched = await self._sources.fetch(
            origin["url"], origin.get("ref"), origin.get("subfolder"), variables, lines.output_of_thread
        )
        await self._store.set_snapshot(turn, fetched.snapshot.digest, {**origin, "commit": fetched.commit})
        return fetched.snapshot.digest

    async def _prepare(
        self, turn: BuildTurn, root: Path, snapshot: str, variables: Mapping[str, str], lines: BuildLog
    ) -> Loaded:
        entrypoint = turn.origin.get("entrypoint")
        recognised = await self._reader.recognised(root, turn.slug, entrypoint)
        lines.add(f"the project is a {recognised.project.kind}: {recognised.project.entrypoint}")
        await self._check_files(recognised)
        options = recognised.options.replaced_by(turn.settings)
        prepared = await self._environments.prepare(
            root,
            snapshot,
            options.python,
            recognised.preload,
            variables,
            lines.output_of_thread,
            deployment=str(turn.deployment_id),
        )
        if prepared.key is None:
            lines.add("the project names no packages: it runs on the server's Python")
        else:
            lines.add(f"the environment of its packages is {prepared.key}")
        environment = self._crew_environments.of_deployment(variables)
        secrets = {one.name for one in turn.variables if one.secret} & environment.keys()
        egress = self._runner.egress_of(options.egress)
        boundary = Boundary(await self._crew_users.of(turn.deployment_id), egress=egress)
        return Loaded(recognised, options, prepared, environment, frozenset(secrets), entrypoint, boundary)

    async def _check_files(self, recognised: Recognised) -> None:
        """Raises ProjectError for errors in the project's files, which would fail the load after the installation."""
        found = await self._reader.findings(recognised.project, [])
        if errors := [one for one in found if one.level is Level.ERROR]:
            raise as_error(errors)

    async def _load(self, loaded: Loaded, lines: BuildLog) -> Manifest:
        """Raises ProjectError. If code of the project has failed, reports other faults first that may be the reason."""
        try:
            return await self._inspect(loaded, loaded.environment, lines)
        except LoadFailed:
            with suppress(WindlassError):  # the first error is the one to report
                await self._report_findings(loaded, lines)
            raise

    async def _report_findings(self, loaded: Loaded, lines: BuildLog) -> None:
        interpreter = Interpreter(loaded.prepared.interpreter, "of the build")
        found = await additional_findings(
            loaded.root,
            self._runner,
            loaded.environment,
            interpreter,
            self._reader,
            loaded.entrypoint,
            boundary=loaded.boundary,
        )
        for line in (line for one in found for line in one.lines()):
            lines.add(line)

    async def _check_identities(
        self, loaded: Loaded, manifest: Manifest, variables: Mapping[str, str], lines: BuildLog
    ) -> None:
        secret = loaded.secrets
        if not secret or not manifest.tasks:
            return
        lines.add(f"loading the project with made-up values of its secret variables ({', '.join(sorted(secret))})")

        async def load(others: Mapping[str, str]) -> Manifest:
            return await self._inspect(loaded, {**loaded.environment, **others}, None)

        if warning := await check_identities(manifest, {name: variables[name] for name in sorted(secret)}, load):
            lines.add(warning, "warning")

    async def _inspect(self, loaded: Loaded, environment: Mapping[str, str], lines: BuildLog | None) -> Manifest:
        """Reports what the project prints, and its warnings, to `lines` if it is given."""
        printed = 0

        async def report(message: object) -> None:
            nonlocal printed
            if isinstance(message, Output):
                printed += len(message.line) + 1
                if printed > MOST_PRINTED:
                    raise ProjectError(
                        f"the project printed more than {size_in_words(MOST_PRINTED)} while it was loaded.",
                        "Remove the prints from the code that runs when the project is imported.",
                    )
                if lines is not None:
                    lines.output(message.line)
            elif isinstance(message, Warned) and lines is not None:
                lines.add(message.message, "warning")

        project, preload = loaded.recognised.project, loaded.recognised.preload
        limits = dataclasses.replace(loaded.options.limits, output_limit=2 * MOST_PRINTED)
        return await self._runner.inspect(
            loaded.prepared.interpreter,
            preload,
            project,
            environment,
            report,
            limits,
            secrets=loaded.secrets,
            boundary=loaded.boundary,
        )

    async def _fail(self, turn: BuildTurn, lines: BuildLog, error: WindlassError) -> None:
        message, hint = lines.masked(error.message), lines.masked(error.hint)
        if isinstance(error, LoadFailed) and error.trace:
            lines.add(error.trace, "error")
        lines.add(f"{message} {hint}".strip(), "error")
        await lines.flush()
        if await until_the_database_answers(lambda: self._store.fail(turn, message, hint)):
            logger.event("build.failed", build=turn.id, deployment=turn.slug, error=message)

    def _too_late(self) -> ProjectError:
        return ProjectError(
            f"the build took longer than {self._seconds / 60:g} minutes.",
            "Reduce the packages of the project, or look in the log for the step that takes so long.",
        )


def for_deployer(root: Path, origin: Mapping[str, Any], interpreter: Path | None, text: str) -> str:
    """Returns a text about the files in `root` for people who deploy them from `origin`, maybe from another machine:
    without the server's paths, and with commands that name the origin.
    """
    text = text.replace(f"windlass deploy {root} ", f"windlass deploy {_place(origin)} ")
    return ServerPaths(str(root), str(interpreter or sys.executable)).out_of(text)


def _place(origin: Mapping[str, Any]) -> str:
    """Returns the arguments of `windlass deploy` for an origin. For a folder, the command is run in that folder."""
    if origin.get("type") != "git":
        return "."
    options = [(f"--{name}", str(origin[name])) for name in ("ref", "subfolder") if origin.get(name)]
    return shlex.join([str(origin["url"]), *(word for option in options for word in option)])


@contextmanager
def _paused(limit: asyncio.Timeout, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Stops the time limit inside of the block, which may be in another thread."""
    left = 0.0

    def stop() -> None:
        nonlocal left
        if (ends := limit.when()) is not None and not limit.expired():
            left = ends - loop.time()
            limit.reschedule(None)

    def go_on() -> None:
        if left:
            with suppress(RuntimeError):  # the build has ended meanwhile
                limit.reschedule(loop.time() + left)

    loop.call_soon_threadsafe(stop)
    try:
        yield
    finally:
        loop.call_soon_threadsafe(go_on)


def _unwanted() -> ProjectError:
    return ProjectError("the deployment was removed, or another worker has taken over the build.")


def _unwritable(error: OSError) -> ProjectError:
    logger.event("side_job.failed", job="build", exc=error)
    return ProjectError(f"the server can't do the build: {error.strerror or error}.", "Check the disk of the server.")


def _unexpected(error: BaseException) -> ProjectError:
    return ProjectError(
        f"the server could not do the build ({type(error).__name__}).", "The log of the server has the cause."
    )


def _in_words(manifest: Manifest) -> str:
    inputs = ", ".join(manifest.inputs_schema.get("properties", {})) or "none"
    return f"{len(manifest.tasks)} task{'' if len(manifest.tasks) == 1 else 's'}, inputs: {inputs}"
