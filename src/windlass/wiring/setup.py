"""Decides which user makes the environment of a project, and makes it (docs/concepts/security.md)."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

from windlass import config
from windlass.accounts import ROOT, Account, become, owner_of
from windlass.errors import ProjectError, SettingsError
from windlass.projects.checks import declared_project
from windlass.projects.environments import Environments
from windlass.projects.setup import ENVIRONMENT, Made, set_up
from windlass.projects.uv import Builder, digest_of_operator, uv_program
from windlass.removal import remove
from windlass.runner.crew_account import crew_account
from windlass.wiring.crews import place_for_crews

if TYPE_CHECKING:
    from collections.abc import Iterator

    from windlass.config import Settings
    from windlass.projects.bounded_reader import BoundedReader
    from windlass.wiring.infrastructure import Notify

# See docs/decisions/security.md#two-users-build-packages
BUILDER, SECOND_BUILDER = "windlass-build", "windlass-build-2"
"""The users that build packages for root. Each has one build at a time."""
UNNAMED_BUILDER, SECOND_UNNAMED_BUILDER = 59_998, 59_997
"""The numbers of these users if the system has no user BUILDER. No crew and no server has them."""


def set_up_project(settings: Settings, project: Path, python: str | None, notify: Notify) -> Made:
    """Makes the environment of the project in this folder. Raises ProjectError."""
    root = project.resolve()
    recognised, _ = declared_project(root)  # one that can't be recognised may have an environment, too
    framework = recognised.preload if recognised else None
    with builder_for(settings, root) as builder:
        return set_up(root, python, framework, builder, notify)


def place_for_code(settings: Settings) -> Path:
    """Returns the folder for the files and environments of deployed versions, which crews must reach."""
    crews = crew_account(settings.crew_user)
    return settings.home if crews is None else place_for_crews(settings.home, crews)


def environments_of(settings: Settings, reader: BoundedReader) -> Environments:
    as_root = crew_account(settings.crew_user) is not None
    machine = digest_of_operator(config.environment(), as_root=as_root)
    return Environments(place_for_code(settings) / "environments", partial(server_builder, settings), reader, machine)


@contextmanager
def server_builder(settings: Settings) -> Iterator[Builder]:
    """Yields the builder for a project whose files a server has fetched. It downloads no Python.

    In a server that is root, a user without any rights builds.
    """
    crews = crew_account(settings.crew_user)
    if crews is None:
        yield Builder(uv_program(), config.environment(), lambda _: True, downloads=False)
        return
    account, *others = build_accounts()
    with folder_of(account) as uv:
        yield Builder(uv, config.environment(), partial(reached_by, crews), account, tuple(others), downloads=False)


@contextmanager
def folder_of(account: Account, *, given: bool = False) -> Iterator[Path]:
    """Yields uv at a place that the account and all users can reach. Without `given` the place stays root's, so that no
    build can replace the uv of another user's build.
    """
    folder = Path(mkdtemp(prefix="windlass-setup-"))
    try:
        uv = uv_for(account, folder)
        folder.chmod(0o755)
        if given:
            account.give(folder)  # after root has written there
        yield uv
    finally:
        remove(folder)


def reached_by(crews: Account, python: Path) -> bool:
    return crews.first_closed(Path(os.path.realpath(python)).parent) is None


@contextmanager
def builder_for(settings: Settings, root: Path) -> Iterator[Builder]:
    """Yields the builder for a project.

    Packages run code of their own when they are built. So root builds none: in a project of another user this process
    becomes that user, for good, and in a project of root a user without any rights builds.
    """
    crews = crew_account(settings.crew_user)
    if crews is None:
        yield Builder(uv_program(), config.environment(), lambda _: True)
        return

    check_place(root, crews)
    owner, reaches = owner_of(root.stat().st_uid), partial(reached_by, crews)
    if owner.uid == ROOT:
        account, *others = build_accounts()
        with folder_of(account) as uv:
            yield Builder(uv, config.environment(), reaches, account, tuple(others))
        return
    with folder_of(owner, given=True) as uv:
        become(owner)
        yield Builder(uv, environment_of(owner), reaches)


def check_place(root: Path, crews: Account) -> None:
    found = root.stat()
    if closed := crews.first_closed(root):
        raise ProjectError(
            f"crews run as the user {crews.name}, which can't reach {root / ENVIRONMENT}: {closed} is closed to it.",
            "Move the project to a folder such as /srv. In its place it runs on Windlass's own interpreter.",
        )
    if found.st_uid == crews.uid:
        raise ProjectError(
            f"{root} belongs to {crews.name}, the user of the crews, which could replace its environment.",
            f"Give the project to another user: chown -R root {root}",
        )
    if found.st_uid == ROOT and found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ProjectError(
            f"{root} belongs to root, and other users may write to it.",
            f"Run: chmod go-w {root}, or give the folder to the user who writes to it.",
        )


def build_accounts() -> list[Account]:
    """Returns the users that build packages for root: two, or only BUILDER if the system has no SECOND_BUILDER beside
    it. Raises SettingsError if the number of a user belongs to another one.
    """
    if first := _named(BUILDER):
        second = _named(SECOND_BUILDER)
        return [first] if second is None else [first, second]
    return [_unnamed(BUILDER, UNNAMED_BUILDER), _unnamed(SECOND_BUILDER, SECOND_UNNAMED_BUILDER)]


def _named(name: str) -> Account | None:
    with suppress(KeyError):
        entry = pwd.getpwnam(name)
        return Account(entry.pw_uid, entry.pw_gid, entry.pw_name, is_ours=False)
    return None


def _unnamed(name: str, number: int) -> Account:
    with suppress(KeyError):
        taken = pwd.getpwuid(number).pw_name
        raise SettingsError(
            f"The user number {number}, with which packages are built, is that of {taken}.",
            f"Make a user for builds alone: useradd --system {BUILDER}",
        )
    return Account(number, number, name, is_ours=False)


def uv_for(account: Account, folder: Path) -> Path:
    """Returns uv at a place that the account can reach: a copy in `folder` if need be."""
    program = uv_program()
    if account.first_closed(program.parent) is None:
        return program
    copy = folder / program.name
    shutil.copyfile(program, copy)
    copy.chmod(0o755)
    return copy


def environment_of(owner: Account) -> dict[str, str]:
    """Returns this process's variables with the home of the owner, whose cache uv then uses. No home means no cache."""
    given = config.environment()
    try:
        home = pwd.getpwuid(owner.uid).pw_dir
    except KeyError:
        home = ""
    if home and Path(home).is_dir():
        return {**given, "HOME": home, "USER": owner.name, "LOGNAME": owner.name}
    return {**given, "HOME": "/", "UV_NO_CACHE": "true"}
