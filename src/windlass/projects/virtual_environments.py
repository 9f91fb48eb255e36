"""Makes virtual environments with uv, for `windlass setup` and for deployments (docs/concepts/interpreters.md).

An environment is made beside its place and moved there when it is complete. So a run never sees half of one, and an
interrupted build changes nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import platform
import re
import secrets
import stat
import subprocess
import sys
import sysconfig
import time
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from windlass.accounts import ROOT
from windlass.errors import ProjectError
from windlass.projects.interpreter import (
    NEWEST,
    OLDEST,
    VERSION,
    on_this_machine,
    preferred_python,
    python_named,
    version_of,
    with_version,
)
from windlass.projects.uv import CONFIGURATION, Uv, combined, operator_settings
from windlass.projects.uv_inputs import document_text
from windlass.removal import remove

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from windlass.accounts import Account
    from windlass.projects.packages import Packages
    from windlass.projects.uv import Builder

FORM = 3
"""The version of the way in which environments are made. A new number makes all again."""
LOCKS = Path("/var/run")
"""The folder of the locks of builds by root on this machine. Each user builds one after the other."""
WAIT_SECONDS = 0.2
"""Seconds between two tries of a build that waits for others."""
pausing: ContextVar[Callable[[], AbstractContextManager[object]]] = ContextVar(
    "pausing", default=contextlib.nullcontext
)
"""Is called around a wait for other builds: that time does not count against the time limit of a build."""
_places: list[object] = []
"""One for each build of this process that waits for a lock, in their order."""
CLOSED_TO_OTHERS = 0o755
MOST_TRIES = 100
MICROS = (0, 99)
"""The lowest and a high micro version, tried for each minor version. An interpreter's own micro version is known only
after a start.
"""
VERSIONS = [f"3.{minor}.{micro}" for minor in range(OLDEST[1], NEWEST[1] + 1) for micro in MICROS]
END_ALL = """
import os, re, signal, sys, time
uid, gid = map(int, sys.argv[1:])
os.setgroups([])
os.setresgid(gid, gid, gid)
os.setresuid(uid, uid, uid)

def lives(number):
    try:
        with open(f"/proc/{number}/status") as file:
            status = file.read()
    except OSError:
        return False
    return str(uid) in re.search(r"^Uid:(.*)$", status, re.M)[1].split() and "\\nState:\\tZ" not in status

for _ in range(200):
    try:
        os.kill(-1, signal.SIGKILL)
    except ProcessLookupError:
        pass
    if not any(lives(name) for name in os.listdir("/proc") if name.isdigit() and name != str(os.getpid())):
        break
    time.sleep(0.01)
"""
"""Ends all processes of a user. A process of that user signals all others at once, so none of them escapes by starting
another one.
"""


@contextlib.contextmanager
def built(
    base: Path | None,
    packages: Packages,
    *,
    builder: Builder,
    report: Callable[[str], None],
    framework: str | None,
    beside: str,
) -> Iterator[Path]:
    """Yields a new environment with these packages, for the caller to move to its place.

    The name of the folder in which the environment is made begins with `beside`.
    `framework` is the package that the project's kind needs. Raises ProjectError.
    """
    with alone(builder, report) as own, making(beside, own) as folder:
        install(base, packages, folder, own, report)
        if framework and not is_installed(framework, folder / "env"):
            raise ProjectError(
                f"{packages.file} does not name {framework}, which the project needs: its environment could not run "
                "it. No environment was made.",
                f"Add {framework} to the dependencies of the project. A project that names no packages runs on "
                f"Windlass's own interpreter, which has {framework}.",
            )
        take(folder, own)
        yield folder / "env"


def base_interpreter(python: str | None, packages: Packages, builder: Builder, by: str = "--python") -> Path | None:
    """Returns the interpreter to make the environment on. None leaves the choice to uv, which may download one.

    `by` names what chose `python`. Raises ProjectError when there is none that fits and this user must not download
    one.
    """
    refuse_unless(any(packages.runs_on(version) for version in VERSIONS), "no such Python can be used", packages)
    if python and not VERSION.fullmatch(python):
        chosen = python_named(python, Path.cwd(), by)
        refuse_unless(fits(chosen, packages), f"{by} names {chosen}", packages)
        return chosen
    preferred = set() if python else set(with_version(preferred_python(packages.root) or "0"))
    found = list(with_version(python)) if python else sorted(on_this_machine(), key=lambda one: one not in preferred)
    usable = [one for one in found if fits(one, packages)]
    reached = next((one for one in usable if builder.reaches(one)), None)
    if reached is None and not builder.may_download:
        unreached = f" Crews can't reach {usable[0] if by == '--python' else 'the one that it has'}." if usable else ""
        raise ProjectError(
            f"{packages.file} needs Python {python or packages.wanted_python}, and this machine has none that crews "
            f"can start.{unreached}",
            "Install one for all users, for example with the package manager of the system.",
        )
    if python and not usable:
        asked = (*map(int, python.split(".")[:2]), 0)[:2]
        refuse_unless(OLDEST <= asked <= NEWEST and packages.runs_on(python), f"{by} is {python}", packages)
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
    base: Path | None, packages: Packages, folder: Path, builder: Builder, report: Callable[[str], None]
) -> None:
    """Installs the packages. uv runs in a folder with the generated files alone, and reads no configuration but the
    generated one.
    """
    environment, work = folder / "env", folder / "work"
    for name in packages.settings.ignored:
        report(f"the setting {name} of uv does not count here")
    of_operator = operator_settings(builder.environment, as_root=builder.account is not None)
    settings = combined(packages.settings.values, of_operator)
    uv = Uv(work, folder, builder, packages, report)
    with opened(work) as place:  # its path is in a folder of the builder, which could replace it
        write_new(Path(CONFIGURATION), document_text(settings), place)
        chosen = str(base or packages.any_python)
        uv.run("venv", "--relocatable", "--no-project", "--python", chosen, str(environment))
        inputs = packages.inputs_on(markers_of(environment))
        for name, text in inputs.files.items():
            write_new(Path(name), text, place)
    target = [] if inputs.arguments[0] == "sync" else ["pip", "install"]
    python = str(environment / "bin" / "python")
    uv.run(*target, *inputs.arguments, "--python", python, "--compile-bytecode")


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


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
def making(beside: str, builder: Builder) -> Iterator[Path]:
    """Yields a new folder whose name begins with `beside`. Removes it at the end, with all that is still in it."""
    folder = Path(f"{beside}{secrets.token_hex(4)}")
    try:
        folder.mkdir(mode=0o755)
    except OSError as error:
        raise ProjectError(
            f"{folder.parent} can't be written: {error.strerror}.",
            "Make room on the disk, or run the command as the user who owns the folder.",
        ) from None
    try:
        for one in (folder, folder / "cache", folder / "work"):
            one.mkdir(exist_ok=True)
            if builder.account is not None and one.name != "work":  # root writes there what uv gets
                builder.account.give(one)
        yield folder
    finally:
        if builder.account is not None:
            end_processes_of(builder.account)
        remove(folder)


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
    try:
        give_to_root(folder / "env")
    except RecursionError:
        raise ProjectError(
            "the build of a package made folders that are too deep in one another. No environment was made.",
            "Remove the package that did so from the dependencies of the project.",
        ) from None


def give_to_root(environment: Path) -> None:
    for _, folders, files, here in os.fwalk(environment, follow_symlinks=False):
        os.fchown(here, ROOT, ROOT)
        os.fchmod(here, 0o755)
        for name in (*folders, *files):
            os.chown(name, ROOT, ROOT, dir_fd=here, follow_symlinks=False)
            mode = os.stat(name, dir_fd=here, follow_symlinks=False).st_mode
            if stat.S_ISREG(mode):
                os.chmod(name, stat.S_IMODE(mode) & CLOSED_TO_OTHERS, dir_fd=here)


def write_new(file: Path, text: str, folder: int | None = None) -> None:
    """Writes a new file that all users can read, at a path from the open folder. Raises FileExistsError, also for a
    link, which it does not follow.
    """
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=folder)
    with os.fdopen(descriptor, "w", encoding="utf-8") as new:
        os.fchmod(descriptor, 0o644)
        new.write(text)


@contextlib.contextmanager
def alone(builder: Builder, report: Callable[[str], None]) -> Iterator[Builder]:
    """Yields the builder with an account that no other build by root has until the end of the block: each could change
    the files of the other.

    Waits until an account is free, however long that takes, and ends processes that a killed build left.
    """
    if builder.account is None:
        yield builder
        return
    with contextlib.ExitStack() as stack:
        locks = [(stack.enter_context(opened_lock(one)), one) for one in (builder.account, *builder.others)]
        account = wait_for_lock(locks, builder, report)
        end_processes_of(account)
        yield dataclasses.replace(builder, account=account, others=())


@contextlib.contextmanager
def opened_lock(account: Account) -> Iterator[int]:
    file = LOCKS / f"windlass-build-{account.uid}.lock"
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        message = f"{file} can't be opened: {error.strerror}."
        raise ProjectError(message, "Root locks this file during builds. Make its folder writable for root.") from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def wait_for_lock(locks: list[tuple[int, Account]], builder: Builder, report: Callable[[str], None]) -> Account:
    """Returns the account of the first of these locks that is free. Waits for the builds of other processes, and for
    those of this one that began to wait earlier.
    """
    place = object()

    def taken() -> Account | None:
        return next((account for lock, account in locks if _places[0] is place and try_to_lock(lock)), None)

    _places.append(place)
    try:
        if (account := taken()) is None:
            before = max(_places.index(place), 1)
            report(f"waits for {before} build{'' if before == 1 else 's'} before it on this machine")
            with pausing.get()():
                while (account := taken()) is None:
                    builder.abort.check()
                    time.sleep(WAIT_SECONDS)
        return account
    finally:
        _places.remove(place)


def try_to_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def end_processes_of(account: Account) -> None:
    """Ends all processes of a user that no other program has. Only root can do so."""
    command = [sys.executable, "-I", "-S", "-c", END_ALL, str(account.uid), str(account.gid)]
    for _ in range(MOST_TRIES):  # a process of the user may end the one that ends all
        if subprocess.run(command, check=False, env={}).returncode == 0:  # noqa: S603 - code of this module
            return
