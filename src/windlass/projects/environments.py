"""The environments of deployed projects: one on this machine for each content of the files that name packages.

An environment is made when a build or a run needs it first, and is removed when it was not used for a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import re
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from windlass.aio import abortable, shielded
from windlass.errors import ProjectError
from windlass.projects.bounded_reader import BoundedReader
from windlass.projects.environment_keys import absolute, key_of
from windlass.projects.interpreter import VERSION, python_named, version_of
from windlass.projects.virtual_environments import FORM, base_interpreter, built, pausing, try_to_lock, write_new
from windlass.removal import remove

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from contextlib import AbstractContextManager

    from windlass.projects.packages import Packages
    from windlass.projects.uv import Builder

    Report = Callable[[str], None]

STAMP = "windlass-environment.json"
KEY = re.compile(r"[0-9a-f]{32}-py3\.\d+")
NAME = re.compile(r"[0-9a-f]{32}-py3\.\d+(-[0-9a-f]{16})?")
"""The name of an environment's folder: its key, and the digest of the machine's settings of uv, if there are any."""
LOCK_SECONDS = 0.2
UNUSED_SECONDS = 7 * 24 * 3600.0
BY = "python under [tool.windlass]"
OF_INDEXES = re.compile(
    r"UV_(INDEX|DEFAULT_INDEX|EXTRA_INDEX_URL|INDEX_URL|INDEX_STRATEGY|INDEX_\w+_(USERNAME|PASSWORD))"
)
"""Variables of a deployment that uv gets: package indexes, and their user names and passwords."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """An environment that a project needs. `key` identifies its content, and the minor version of its Python.

    `framework` is the package that the project's kind needs. `indexes` are the deployment's variables for uv.
    """

    key: str
    base: Path
    packages: Packages
    framework: str | None
    indexes: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Prepared:
    """An interpreter for a project, and the key of its environment. The key is None for one without packages."""

    interpreter: Path
    key: str | None


class Environments:
    """Makes environments in `folder`. `builder` opens the builder of one environment. `reader` reads the files of
    projects, by default as this process's own user.

    `machine` is a digest of the machine's own settings of uv that decide on packages, such as its package index. They
    are in the names of folders and not in keys: a version that was built on one machine runs on others.
    """

    def __init__(
        self,
        folder: Path,
        builder: Callable[[], AbstractContextManager[Builder]],
        reader: BoundedReader | None = None,
        machine: str = "",
    ) -> None:
        self._folder = folder
        self._machine = f"-{machine}" if machine else ""
        self._builder = builder
        self._reader = reader or BoundedReader()
        self._making: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def interpreter(self, key: str) -> Path | None:
        """Returns the interpreter of an environment that is on this machine, and counts it as used now."""
        place = self._place(key)
        if not is_complete(place):
            return None
        with contextlib.suppress(OSError):  # only its age depends on it
            os.utime(place)
        return place / "bin" / "python"

    async def prepare(
        self,
        root: Path,
        snapshot: str,
        python: str | None,
        framework: str | None,
        variables: Mapping[str, str],
        report: Report,
        *,
        deployment: str,
    ) -> Prepared:
        """Returns the interpreter for the project in this folder. Makes its environment if need be.

        A project that names no packages has none: it runs on Windlass's own interpreter, or on the version that it
        names. The arguments are those of `wanted` and `get`. Raises ProjectError.
        """
        wanted = await self.wanted(root, snapshot, python, framework, variables, deployment=deployment)
        if wanted is not None:
            return Prepared(self.interpreter(wanted.key) or await self.get(wanted, report), wanted.key)
        return Prepared(await asyncio.to_thread(self.own, python), None)

    def own(self, python: str | None) -> Path:
        """Returns the interpreter of a project that names no packages: Windlass's own, or one of this version."""
        check_python(python)
        return python_named(python, self._folder, BY) if python else Path(sys.executable)

    async def wanted(
        self,
        root: Path,
        snapshot: str,
        python: str | None,
        framework: str | None,
        variables: Mapping[str, str],
        *,
        deployment: str,
    ) -> Wanted | None:
        """Returns the environment that the project in this folder needs, None when it names no packages.

        `snapshot` identifies all files of the project. `python` is a version, None for any that fits. `variables` are
        those of the deployment, and `deployment` its id. Raises ProjectError.
        """
        check_python(python)
        packages = await self._reader.packages(root)
        if packages is None:
            return None
        indexes = {name: value for name, value in variables.items() if OF_INDEXES.fullmatch(name)}
        return await asyncio.to_thread(
            self._wanted, packages, snapshot, python, framework, indexes, deployment=deployment
        )

    def _wanted(
        self,
        packages: Packages,
        snapshot: str,
        python: str | None,
        framework: str | None,
        indexes: Mapping[str, str],
        *,
        deployment: str,
    ) -> Wanted:
        with self._builder() as builder:
            base = base_interpreter(python, packages, builder, BY)
        version = version_of(base) if base else None
        if base is None or version is None:
            raise ProjectError(f"the version of {base or 'Python'} is not known.", "Name another Python.")
        check_places(packages)
        key = key_of(
            packages, snapshot=snapshot, deployment=deployment, python=python, version=version, indexes=indexes
        )
        return Wanted(key, base, packages, framework, absolute(packages.root, indexes))

    async def get(self, wanted: Wanted, report: Report) -> Path:
        """Returns the interpreter of the environment. Makes the environment if it is not on this machine.

        Several callers and processes that want the same one wait for one build. `report` gets lines, in another
        thread. Raises ProjectError. A caller that is cancelled ends the build.
        """
        async with contextlib.AsyncExitStack() as turn:
            with pausing.get()():
                await turn.enter_async_context(self._making[wanted.key])
            if found := self.interpreter(wanted.key):
                return found
            with contextlib.ExitStack() as stack:
                builder = await shielded(asyncio.to_thread(stack.enter_context, self._builder()))
                return await abortable(partial(self._make, wanted, builder, report), builder.abort.ask)

    def _make(self, wanted: Wanted, builder: Builder, report: Report) -> Path:
        try:
            return self._locked_and_made(wanted, builder, report)
        except OSError as error:
            raise ProjectError(
                f"the environment of the project can't be made: {error.strerror or error}.",
                "Make room on the disk of the server, then build again.",
            ) from error

    def _locked_and_made(self, wanted: Wanted, builder: Builder, report: Report) -> Path:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._folder.chmod(0o711)  # crews reach their own environment by its path, and can't list those of others
        place = self._place(wanted.key)
        with opened_lock(self._lock_file(place.name)) as lock:
            if not try_to_lock(lock):
                report("waits for another build of the same environment")
                with pausing.get()():
                    while not try_to_lock(lock):
                        builder.abort.check()
                        time.sleep(LOCK_SECONDS)
            if found := self.interpreter(wanted.key):
                return found
            for leftover in self._folder.glob(f".{place.name}.*"):
                remove(leftover)
            version = version_of(wanted.base) if wanted.base else None
            on = f" on Python {version[0]}.{version[1]}" if version else ""
            report(f"making an environment from {wanted.packages.file}{on}")
            with built(
                wanted.base,
                wanted.packages,
                builder=with_indexes(builder, wanted.indexes),
                report=self._without_places(report),
                framework=wanted.framework,
                beside=str(self._folder / f".{place.name}."),
            ) as environment:
                (environment / STAMP).unlink(missing_ok=True)
                write_new(environment / STAMP, json.dumps({"form": FORM, "file": wanted.packages.file}))
                if os.path.lexists(place):  # its Python was removed
                    place.rename(environment.with_name("former"))
                environment.rename(place)
        return place / "bin" / "python"

    def _without_places(self, report: Report) -> Report:
        """Returns a report that leaves out the lines in which uv names folders of this machine."""
        beginning = str(self._folder / ".")
        return lambda line: None if beginning in line or " interpreter at: " in line else report(line)

    async def remove_unused(self, in_use: Collection[str], *, older_than: float = UNUSED_SECONDS) -> list[str]:
        """Removes the environments that are not in `in_use` and that were not used for `older_than` seconds, and what
        builds left whose process was killed. Returns the names of their folders.
        """
        return await asyncio.to_thread(self._remove_unused, in_use, older_than)

    def _remove_unused(self, in_use: Collection[str], older_than: float) -> list[str]:
        before, used = time.time() - older_than, {key + self._machine for key in in_use}
        found = [path.name for path in self._folder.iterdir()] if self._folder.is_dir() else []
        for one in found:
            if one.startswith(".") and NAME.fullmatch(name := one[1:].rpartition(".")[0]):
                self._remove_leftover(self._folder / one, name)
        named = [name for name in sorted(found) if NAME.fullmatch(name) and name not in used]
        return [name for name in named if self._removed(name, before)]

    def _remove_leftover(self, folder: Path, name: str) -> None:
        with opened_lock(self._lock_file(name)) as lock:
            if try_to_lock(lock):  # no build of it runs
                remove(folder)

    def _removed(self, name: str, before: float) -> bool:
        place, away = self._folder / name, self._folder / f".{name}.removed"
        with opened_lock(self._lock_file(name)) as lock:
            if not try_to_lock(lock) or place.stat().st_mtime > before:
                return False
            place.rename(away)
            remove(away)
        return True

    def _place(self, key: str) -> Path:
        """Raises ProjectError for a text that is no key: everyone with write access to the database can write a row."""
        if not KEY.fullmatch(key):
            raise ProjectError(f"{key!r} is no environment.")
        return self._folder / (key + self._machine)

    def _lock_file(self, name: str) -> Path:
        locks = self._folder / ".locks"
        locks.mkdir(mode=0o700, exist_ok=True)
        return locks / name


@contextlib.contextmanager
def opened_lock(file: Path) -> Iterator[int]:
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def check_python(python: str | None) -> None:
    if python is not None and not VERSION.fullmatch(python):
        raise ProjectError(
            f"{BY} is {python!r}, and a deployed project can name only a version.", 'Name a version such as "3.12".'
        )


def check_places(packages: Packages) -> None:
    """Raises ProjectError for packages at places of the server that are no files of the project."""
    if place := packages.outside():
        raise ProjectError(
            f"{packages.file} names {place[:200]}, which is not in the folder of the project.",
            "A deployed project has its own files alone: move the package into its folder, or to a package index.",
        )


def is_complete(environment: Path) -> bool:
    return (environment / STAMP).is_file() and (environment / "bin" / "python").exists()


def with_indexes(builder: Builder, indexes: Mapping[str, str]) -> Builder:
    return dataclasses.replace(builder, environment={**builder.environment, **indexes})
