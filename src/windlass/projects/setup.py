"""Makes the environment of a project, `.venv`, with uv (docs/interpreters.md).

The environment is made beside its place and moved there when it is complete. So a run never sees half of one, and an
interrupted setup changes nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import re
import secrets
import shutil
import stat
import sys
import sysconfig
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from windlass.accounts import ROOT, end_processes_of
from windlass.errors import ProjectError
from windlass.projects.interpreter import (
    NEWEST,
    OLDEST,
    VERSION,
    on_this_machine,
    python_named,
    version_of,
    with_version,
)
from windlass.projects.packages import PINS, Packages, packages_of
from windlass.projects.uv import Uv

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from windlass.projects.uv import Builder

ENVIRONMENT = ".venv"
STAMP = "windlass-setup.json"
BEFORE = ".venv.before-setup"
MAKING = ".venv.setup-"
FORM = 1
"""The version of the way in which environments are made. A new number makes all again."""
BUILDS_LOCK = Path("/var/run/windlass-build.lock")
"""The lock of all setups by root on this machine: their builds run as one user."""
LONGEST_WAIT, WAIT_SECONDS = 900.0, 0.2
"""Seconds that a setup waits for the builds of others, and between two tries."""
CLOSED_TO_OTHERS = 0o755
MICROS = (0, 99)
"""The lowest and a high micro version, tried for each minor version. An interpreter's own micro version is known only
after a start.
"""
VERSIONS = [f"3.{minor}.{micro}" for minor in range(OLDEST[1], NEWEST[1] + 1) for micro in MICROS]


@dataclass(frozen=True, slots=True)
class Made:
    """The environment of a project. `is_new` is whether it was made just now. `before` is where the former one is."""

    interpreter: Path
    packages: Packages
    is_new: bool
    before: Path | None = None


def set_up(
    root: Path, python: str | None, framework: str | None, builder: Builder, report: Callable[[str], None]
) -> Made:
    """Makes the project's environment, unless it is up to date.

    `python` is a version or a path, None for any that fits. `framework` is the package that the project's kind needs.
    Raises ProjectError, and leaves the project unchanged then.
    """
    with locked(root):
        packages = packages_of(root)
        place = root / ENVIRONMENT
        stamp = {"form": FORM, "digest": packages.digest, "asked": python}
        if stamp_of(place) == stamp and (place / "bin" / "python").exists():
            return Made(place / "bin" / "python", packages, is_new=False)
        former = former_place(root, place)
        base = base_interpreter(python, packages, builder)
        report(f"making {place} from {packages.file} on {base or f'Python {packages.wanted_python}'}")
        remove_leftovers(root)
        with alone(builder, report), making(root, builder) as folder:
            environment = folder / "env"
            install(root, base, packages, folder, builder, report)
            if framework and not is_installed(framework, environment):
                raise missing_framework(framework, packages, root)
            take(folder, builder)
            (environment / STAMP).unlink(missing_ok=True)
            write_new(environment / STAMP, json.dumps(stamp))
            move(environment, place, former or folder / "former")
    return Made(place / "bin" / "python", packages, is_new=True, before=former)


def stamp_of(place: Path) -> object:
    try:
        return json.loads((place / STAMP).read_text("utf-8"))
    except (OSError, ValueError):
        return None


def former_place(root: Path, place: Path) -> Path | None:
    """Returns where an environment goes that was not made here. None for one that can be removed, or for none."""
    if not os.path.lexists(place) or (stamp_of(place) is not None and not place.is_symlink()):
        return None
    if os.path.lexists(root / BEFORE):
        raise ProjectError(
            f"{place} was not made by this command, and {BEFORE} beside it keeps an earlier one.",
            f"Remove one of them, then run the command again: rm -r {root / BEFORE}",
        )
    return root / BEFORE


def move(environment: Path, place: Path, former: Path) -> None:
    """Moves the environment to its place, and what was there to `former`. Moves it back when that fails."""
    try:
        if os.path.lexists(place):
            place.rename(former)
        environment.rename(place)
    except BaseException:
        if os.path.lexists(former) and not os.path.lexists(place):
            former.rename(place)
        raise


def write_new(file: Path, text: str) -> None:
    """Writes a new file that all users can read. Raises FileExistsError, also for a link, which it does not follow."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        os.fchmod(descriptor, 0o644)
        opened.write(text)


def missing_framework(framework: str, packages: Packages, root: Path) -> ProjectError:
    return ProjectError(
        f"{packages.file} does not name {framework}, which the project needs: its environment could not run it. No "
        "environment was made.",
        f"Add {framework} to the dependencies of the project. Without a {ENVIRONMENT}, {root.name} runs on Windlass's "
        f"own interpreter, which has {framework}.",
    )


def base_interpreter(python: str | None, packages: Packages, builder: Builder) -> Path | None:
    """Returns the interpreter to make the environment on. None leaves the choice to uv, which may download one.

    Raises ProjectError when there is none that fits and this user must not download one.
    """
    refuse_unless(any(packages.runs_on(version) for version in VERSIONS), "no such Python can be used", packages)
    if python and not VERSION.fullmatch(python):
        chosen = python_named(python, Path.cwd(), "--python")
        refuse_unless(fits(chosen, packages), f"--python names {chosen}", packages)
        return chosen
    found = list(with_version(python)) if python else on_this_machine()
    usable = [one for one in found if fits(one, packages)]
    reached = next((one for one in usable if builder.reaches(one)), None)
    if reached is None and builder.account is not None:
        unreached = f" Crews can't reach {usable[0]}." if usable else ""
        raise ProjectError(
            f"{packages.file} needs Python {python or packages.wanted_python}, and this machine has none that crews "
            f"can start.{unreached}",
            "Install one for all users, for example with the package manager of the system.",
        )
    if python and not usable:
        asked = (*map(int, python.split(".")[:2]), 0)[:2]
        refuse_unless(OLDEST <= asked <= NEWEST and packages.runs_on(python), f"--python is {python}", packages)
    return reached


def refuse_unless(fitting: bool, what: str, packages: Packages) -> None:
    if not fitting:
        raise ProjectError(
            f"{packages.file} needs Python {packages.wanted_python}, and {what}: crews run on Python "
            f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}.",
            "Choose another Python, or change the constraint.",
        )


def fits(python: Path, packages: Packages) -> bool:
    version = version_of(python)
    if version is None:
        return True
    minor = f"{version[0]}.{version[1]}"
    return OLDEST <= version <= NEWEST and any(packages.runs_on(f"{minor}.{micro}") for micro in MICROS)


def install(
    root: Path, base: Path | None, packages: Packages, folder: Path, builder: Builder, report: Callable[[str], None]
) -> None:
    environment = folder / "env"
    uv = Uv(root, folder, builder, packages, report)
    chosen = str(base or packages.any_python)
    uv.run("venv", "--relocatable", "--no-project", "--python", chosen, str(environment))
    if packages.pins is not None:
        write_new(folder / PINS, "\n".join(packages.pins(markers_of(environment))) + "\n")
    arguments = [str(folder / PINS) if one == PINS else one for one in packages.install]
    target = [] if arguments[0] == "sync" else ["pip", "install", "--python", str(environment / "bin" / "python")]
    uv.run(*target, *arguments, "--compile-bytecode")


def markers_of(environment: Path) -> dict[str, str]:
    """Returns the environment markers of its interpreter on this machine."""
    text = (environment / "pyvenv.cfg").read_text("utf-8")
    found = re.search(r"^version(?:_info)?\s*=\s*((\d+\.\d+)\S*)", text, re.MULTILINE)
    full, minor = (found[1], found[2]) if found else (platform.python_version(), sysconfig.get_python_version())
    return {
        "implementation_name": "cpython",
        "implementation_version": full,
        "os_name": os.name,
        "platform_machine": platform.machine(),
        "platform_python_implementation": "CPython",
        "platform_release": platform.release(),
        "platform_system": platform.system(),
        "platform_version": platform.version(),
        "python_full_version": full,
        "python_version": minor,
        "sys_platform": sys.platform,
    }


def is_installed(package: str, environment: Path) -> bool:
    return any(environment.glob(f"lib/python*/site-packages/{package}-*.dist-info"))


@contextlib.contextmanager
def making(root: Path, builder: Builder) -> Iterator[Path]:
    """Yields a new folder beside the environment's place. Removes it at the end, with all that is still in it."""
    folder = root / f"{MAKING}{secrets.token_hex(4)}"
    try:
        folder.mkdir(mode=0o755)
    except OSError as error:
        raise ProjectError(
            f"{root} can't be written: {error.strerror}.", "Run the command as the user who owns the project."
        ) from None
    try:
        for one in (folder, folder / "cache"):
            one.mkdir(exist_ok=True)
            if builder.account is not None:
                builder.account.give(one)
        yield folder
    finally:
        if builder.account is not None:
            end_processes_of(builder.account)
        shutil.rmtree(folder, ignore_errors=True)


def take(folder: Path, builder: Builder) -> None:
    """Gives the environment to root, after no process of the builder is left that could change it.

    Raises ProjectError if a build replaced the environment, for example with a link to another folder.
    """
    account = builder.account
    if account is None:
        return
    end_processes_of(account)
    os.chown(folder, ROOT, ROOT)
    if not stat.S_ISDIR((folder / "env").lstat().st_mode):
        raise ProjectError(
            "the build of a package replaced the environment. No environment was made.",
            "Remove the package that did so from the dependencies of the project.",
        )
    for _, folders, files, here in os.fwalk(folder / "env", follow_symlinks=False):
        os.fchown(here, ROOT, ROOT)
        os.fchmod(here, 0o755)
        for name in (*folders, *files):
            os.chown(name, ROOT, ROOT, dir_fd=here, follow_symlinks=False)
            mode = os.stat(name, dir_fd=here, follow_symlinks=False).st_mode
            if stat.S_ISREG(mode):
                os.chmod(name, stat.S_IMODE(mode) & CLOSED_TO_OTHERS, dir_fd=here)


def remove_leftovers(root: Path) -> None:
    """Removes what an interrupted setup left. The caller holds the lock of the project."""
    for folder in root.glob(f"{MAKING}*"):
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def locked(root: Path) -> Iterator[None]:
    """Holds the lock of the project, so that one setup at a time works there."""
    try:
        descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise ProjectError(f"{root} can't be opened: {error.strerror}.", "Name the folder of a project.") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"another command makes the environment of {root}."
            raise ProjectError(message, "Wait until it has ended.") from None
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def alone(builder: Builder, report: Callable[[str], None]) -> Iterator[None]:
    """Keeps the builds of other setups by root off: they have the same user, so each could change the other's files.

    Waits until they have ended, and ends processes that a killed setup left. Raises ProjectError after LONGEST_WAIT.
    """
    if builder.account is None:
        yield
        return
    try:
        descriptor = os.open(BUILDS_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        message = f"{BUILDS_LOCK} can't be opened: {error.strerror}."
        raise ProjectError(message, "Root locks this file during builds. Make its folder writable for root.") from None
    try:
        wait_for_lock(descriptor, report)
        end_processes_of(builder.account)
        yield
    finally:
        os.close(descriptor)


def wait_for_lock(descriptor: int, report: Callable[[str], None]) -> None:
    ends, reported = time.monotonic() + LONGEST_WAIT, False
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > ends:
                message = f"another setup by root has built packages for {LONGEST_WAIT:.0f} s."
                raise ProjectError(message, "Run the command again when it has ended.") from None
        if not reported:
            report("waiting for another setup by root to end")
            reported = True
        time.sleep(WAIT_SECONDS)
