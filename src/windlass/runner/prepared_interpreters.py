"""Copies Windlass's own interpreter for crews whose user can't reach it, for example below the home of root.

Each state of the interpreter is copied once. Files are hard links if that is safe, so that copies take little room.
"""

# See docs/decisions/security.md#an-interpreter-is-copied-for-the-crews-user

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import stat
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from windlass.accounts import ROOT
from windlass.errors import ProjectError, WindlassError
from windlass.runner.spawning import PROGRAM
from windlass_child.protocol.sizes import size_in_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from windlass.accounts import Account

FORM = 2
"""The version of the layout of copies. A new number makes all copies again."""
VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
LEFT_OUT = {"ensurepip", "idlelib", "lib2to3", "test", "tests", "turtledemo"}
"""Folders of the standard library that no crew runs."""
NEEDED = ("ssl", "ctypes", "sqlite3", "lzma", "bz2", "readline")
"""Modules that need libraries of the system. The copy must be able to import those that the original can import."""
NOT_COPIED = {"windlass"}
LONGEST_FIRST_LINE = 4096
"""Bytes of a program that are read for its interpreter."""
START_SECONDS = 60.0
NEAR_LIBRARIES = b"$ORIGIN/../lib"
UNUSED_SECONDS = 24 * 3600
MOST_BYTES = 1 << 30
"""The most bytes of a project's files that are copied, not linked."""


@dataclass(frozen=True)
class Prepared:
    """The interpreter that crews use in place of Windlass's own, and the program that makes it a process for crews.

    With `folder` both are copies there, which are kept as long as this process lives.
    """

    interpreter: Path = field(default_factory=lambda: Path(sys.executable))
    program: Path = PROGRAM
    folder: Path | None = None


def prepare(account: Account, place: Path, report: Callable[[str], None]) -> Prepared:
    """Makes the copies in `place` that the account needs, and removes copies of other states that no process uses.
    Raises WindlassError when the copies don't run.
    """
    original = Original.of(account)
    if not original.closed:
        return Prepared()
    place.mkdir(mode=0o711, parents=True, exist_ok=True)
    place.chmod(0o711)
    with locked(place / ".lock"):
        folder = place / original.key(account)
        lock = os.open(place / f"{folder.name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_SH)  # held until this process ends
        remove_unused(place, folder)
        made = not folder.exists()
        if made:
            began = time.monotonic()
            report(
                f"making a copy of Python for crews in {folder}, once: they run as the user {account.name}, who can't "
                f"read {original.closed[0]}"
            )
            making = folder.with_name(f"{folder.name}.making")
            copied = original.copy(making, folder)
            os.chown(making, ROOT, account.gid)
            making.chmod(0o750)
            making.rename(folder)
            seconds = time.monotonic() - began
            report(f"made the copy in {seconds:.1f} s: it takes {size_in_words(copied)} of disk space")
        os.utime(folder)
        found = original.prepared(folder)
        if made:
            try:
                check(found, account)
            except BaseException:
                shutil.rmtree(folder)
                raise
    return found


@dataclass(frozen=True)
class Original:
    """Windlass's own interpreter: the folders of the base Python, of its environment (None if there is none) and of the
    program. `closed` are the folders that crews can't reach.
    """

    base: Path
    environment: Path | None
    program: Path
    closed: tuple[Path, ...]

    @classmethod
    def of(cls, account: Account) -> Original:
        base, program = Path(sys.base_prefix).resolve(), PROGRAM.parent
        environment = None if sys.prefix == sys.base_prefix else Path(sys.prefix).resolve()
        places = (base / "bin", base / "lib", program, *([environment / "lib"] if environment else []))
        closed = tuple(place for place in places if account.first_closed(place))
        return cls(base, environment, program, closed)

    @property
    def python(self) -> Path:
        return Path(os.path.realpath(sys.executable))

    @property
    def base_is_closed(self) -> bool:
        return bool({self.base / "bin", self.base / "lib"} & set(self.closed))

    @property
    def packages_are_closed(self) -> bool:
        return self.environment is not None and self.environment / "lib" in self.closed

    def key(self, account: Account) -> str:
        """Names the state of what is copied, and the group that may read it. It changes when a package is installed,
        removed or replaced.
        """
        state = [FORM, account.gid, sys.version, *map(str, (self.base, self.environment, self.program, *self.closed))]
        folders = [Path(prefix) / "lib" / VERSION / "site-packages" for prefix in {sys.prefix, sys.base_prefix}]
        folders += [self.environment / "bin"] if self.environment else []
        looked_at = [self.python, *(found for folder in folders for found in entries(folder))]
        if self.program in self.closed:
            packages = [path for path in entries(self.program) if path.is_dir() and path.name != "__pycache__"]
            looked_at += [found for folder in (self.program, *packages) for found in entries(folder)]
        state += [f"{path} {found.st_size} {found.st_mtime_ns}" for path in looked_at for found in [path.stat()]]
        return hashlib.sha256(json.dumps(state).encode()).hexdigest()[:16]

    def prepared(self, folder: Path) -> Prepared:
        python = folder / "environment/bin/python" if self.environment else folder / "base/bin" / self.python.name
        program = folder / "child/windlass_child" if self.program in self.closed else self.program
        return Prepared(python, program / PROGRAM.name, folder)

    def copy(self, making: Path, folder: Path) -> int:
        """Copies the original to `making`, which will be renamed to `folder`. Returns the bytes that are copied, not
        linked.
        """
        making.mkdir(mode=0o700)
        copied = 0
        if self.base_is_closed:
            copied += self._copy_base(making / "base")
        if self.environment:
            copied += self._copy_environment(self.environment, making / "environment", folder)
        if self.program in self.closed:
            copied += copy_tree(self.program, making / "child/windlass_child")
        return copied

    def _copy_base(self, base: Path) -> int:
        (base / "bin").mkdir(parents=True)
        python = base / "bin" / self.python.name
        python.write_bytes(beside_its_libraries(self.python.read_bytes(), self.base / "lib"))
        python.chmod(0o755)
        library = self.base / "lib" / VERSION
        left_out = {library / name for name in LEFT_OUT} | set(library.glob("config-*"))
        if self.environment and "true" not in self._system_packages():
            left_out.add(library / "site-packages")
        others = [path for path in (self.base / "lib").iterdir() if path.name.startswith("python") and path != library]
        left_out.update(others)
        return copy_tree(self.base / "lib", base / "lib", left_out.__contains__) + python.stat().st_size

    def _copy_environment(self, environment: Path, target: Path, folder: Path) -> int:
        python = folder / "base/bin" / self.python.name if self.base_is_closed else self.python
        (target / "bin").mkdir(parents=True)
        for name in ("python", "python3", VERSION):
            (target / "bin" / name).symlink_to(python)
        (target / "pyvenv.cfg").write_text(
            f"home = {python.parent}\ninclude-system-site-packages = {self._system_packages()}\n"
            f"prepared-from = {sys.executable}\n"
        )
        copy_programs(environment / "bin", target / "bin", folder / "environment/bin/python")
        if (environment / "lib64").exists():
            (target / "lib64").symlink_to("lib")
        if not self.packages_are_closed:
            (target / "lib").symlink_to(environment / "lib")
            return 0
        return copy_tree(environment / "lib", target / "lib")

    def _system_packages(self) -> str:
        configuration = (Path(sys.prefix) / "pyvenv.cfg").read_text("utf-8").splitlines()
        values = dict(line.replace(" ", "").split("=", 1) for line in configuration if "=" in line)
        return values.get("include-system-site-packages", "false").lower()


def copy_programs(source: Path, target: Path, python: Path) -> None:
    """Copies the programs of an environment, such as uvx and the scripts of packages. The scripts run on `python`.

    Windlass's own command is left out: crews have no use for it.
    """
    for program in entries(source):
        new = target / program.name
        if not program.is_file() or program.name in NOT_COPIED or os.path.lexists(new):
            continue
        with program.open("rb") as file:
            first, rest = file.readline(LONGEST_FIRST_LINE), b""
            if is_script := first.startswith(b"#!%b/python" % os.fsencode(source)):
                rest = file.read()
        if is_script:
            new.write_bytes(b"#!%b\n%b" % (os.fsencode(python), rest))
            new.chmod(0o755)
        elif first.startswith(b"\x7fELF"):
            link_or_copy(program.resolve(), new)


class ProjectCopies:
    """Copies of projects whose folder is closed to all users but root. Such projects belong to root, so no other user
    could have placed a link in them.

    A project is copied again when its files have changed. The copies are removed with the folders that `new_folder`
    makes.
    """

    def __init__(self, account: Account) -> None:
        self._account = account
        self._made: dict[Path, tuple[list[tuple[object, ...]], Path]] = {}

    def needed(self, root: Path) -> bool:
        closed = self._account.first_closed(root)
        return closed is not None and is_roots_alone(closed.stat())

    def place(self, root: Path, new_folder: Callable[[], Path]) -> Path:
        """Returns the folder of the copy. Raises WindlassError for one that is too large."""
        state = state_of(root)
        made = self._made.get(root)
        if made is None or made[0] != state:
            folder = new_folder()
            copy = folder / root.name
            try:
                copy_tree(root, copy, is_no_part, MOST_BYTES)
            except WindlassError as error:
                raise ProjectError(
                    f"crews run as the user {self._account.name}, which can't reach {root}. {error.message}",
                    "Move the project to a folder that all users can reach, such as /srv.",
                ) from None
            os.chown(folder, ROOT, self._account.gid)
            folder.chmod(0o750)
            self._made[root] = made = (state, copy)
        return made[1]


def is_roots_alone(folder: os.stat_result) -> bool:
    return folder.st_uid == ROOT and folder.st_gid == ROOT and not folder.st_mode & stat.S_IRWXO


def is_no_part(path: Path) -> bool:
    """Returns whether a path is no part of a crew's project: an environment, or a name that begins with a dot, such as
    .env and .git.
    """
    return path.name.startswith(".") or path.name in {"node_modules", "venv"}


def state_of(root: Path) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not is_no_part(Path(name))]
        for name in files:
            with contextlib.suppress(OSError):  # a dangling link, or a file that was removed meanwhile
                facts = (Path(folder) / name).stat()
                found.append((folder, name, facts.st_size, facts.st_mtime_ns, facts.st_ino))
    return sorted(found, key=str)


def entries(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.exists()) if folder.is_dir() else []


def beside_its_libraries(program: bytes, libraries: Path) -> bytes:
    """Returns an ELF program that loads its libraries from the folder next to its own, not from the original's."""
    wanted = b"\0" + os.fsencode(libraries) + b"\0"
    if program.count(wanted) != 1 or len(wanted) - 2 < len(NEAR_LIBRARIES):
        return program
    return program.replace(wanted, (b"\0" + NEAR_LIBRARIES).ljust(len(wanted), b"\0"))


def copy_tree(
    source: Path, target: Path, is_left_out: Callable[[Path], bool] = lambda _: False, most: int | None = None
) -> int:
    """Links or copies all files, for every user to read. A symbolic link stays a link if its target is in the tree,
    otherwise its target is copied. Returns the bytes that are copied, and raises WindlassError when they are more than
    `most`.
    """
    whole, copied = source.resolve(), 0
    folders, seen = [(source, target)], {whole}
    while folders:
        folder, made = folders.pop()
        made.mkdir(mode=0o755, parents=True)
        made.chmod(0o755)
        for entry in os.scandir(folder):
            path, new = Path(entry.path), made / entry.name
            if is_left_out(path):
                continue
            if entry.is_symlink() and stays_inside(path, whole):
                new.symlink_to(path.readlink())
            elif entry.is_dir():
                place = path.resolve()
                if place not in seen:
                    seen.add(place)
                    folders.append((path, new))
            elif entry.is_file():
                copied += link_or_copy(path.resolve(), new)
            if most is not None and copied > most:
                raise WindlassError(f"{source} holds more than {most >> 20} MB that would have to be copied.")
    return copied


def stays_inside(link: Path, whole: Path) -> bool:
    named = link.readlink()
    return not named.is_absolute() and link.resolve().is_relative_to(whole)


def link_or_copy(source: Path, target: Path) -> int:
    """Makes a hard link to a file that belongs to root and that nobody else can write. Copies other files. Returns the
    bytes that are copied.
    """
    found = source.stat()
    everyone_reads = found.st_mode & stat.S_IROTH
    if found.st_uid == ROOT and everyone_reads and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH | stat.S_ISUID):
        with contextlib.suppress(OSError):  # another file system, or one without hard links
            os.link(source, target)
            return 0
    shutil.copy2(source, target)
    target.chmod(0o755 if found.st_mode & stat.S_IXUSR else 0o644)
    return found.st_size


def check(found: Prepared, account: Account) -> None:
    """Raises WindlassError when the interpreter does not start as that user."""
    modules = [name for name in NEEDED if importlib.util.find_spec(name)]
    code = f"import asyncio, json, {', '.join(modules) or 'os'}; open({str(found.program)!r}).close()"
    try:
        done = subprocess.run(  # noqa: S603 - the interpreter that was just copied
            [found.interpreter, "-I", "-c", code],
            check=False, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, cwd="/", env={},
            user=account.uid, group=account.gid, extra_groups=[], timeout=START_SECONDS,
        )  # fmt: skip
        fault = done.stderr.strip().splitlines()[-1:] if done.returncode else None
    except (OSError, subprocess.TimeoutExpired) as error:
        fault = [str(error)]
    if fault is not None:
        raise WindlassError(
            f"Crews run as the user {account.name}, which can't reach the interpreter {sys.executable}, and a copy of "
            f"it does not start: {''.join(fault) or 'it printed no reason'}.",
            "Install Windlass on a Python that all users can reach (make clean run PYTHON=/usr/bin/python3), or name "
            "another home with WINDLASS_HOME. Only WINDLASS_CREW_USER=root has crews run as root "
            "(docs/concepts/security.md).",
        )


def remove_unused(place: Path, kept: Path) -> None:
    """Removes copies that no process uses and that were not used for a day. The caller holds the lock of the place."""
    for folder in place.iterdir():
        is_recent = time.time() - folder.stat().st_mtime < UNUSED_SECONDS and folder.suffix != ".making"
        if not folder.is_dir() or folder == kept or is_recent:
            continue
        lock = place / f"{folder.name.removesuffix('.making')}.lock"
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
        with contextlib.suppress(BlockingIOError):
            if folder.name != f"{kept.name}.making":
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                lock.unlink()
            shutil.rmtree(folder)
        os.close(descriptor)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
