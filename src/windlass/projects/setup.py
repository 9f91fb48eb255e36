"""Makes the environment of a project, `.venv`, with uv (docs/concepts/interpreters.md).

`windlass.projects.virtual_environments` makes it beside its place.
"""

# See docs/decisions/deployments.md#windlass-setup-renames-a-complete-environment

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from windlass.errors import ProjectError
from windlass.projects.interpreter import preferred_python
from windlass.projects.packages import Packages, packages_of
from windlass.projects.virtual_environments import FORM, base_interpreter, built, write_new
from windlass.removal import remove

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from windlass.projects.uv import Builder

ENVIRONMENT = ".venv"
STAMP = "windlass-setup.json"
BEFORE = ".venv.before-setup"
MAKING = ".venv.setup-"


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
        stamp = {"form": FORM, "digest": packages.digest, "asked": python or preferred_python(root)}
        if stamp_of(place) == stamp and (place / "bin" / "python").exists():
            return Made(place / "bin" / "python", packages, is_new=False)
        former = former_place(root, place)
        base = base_interpreter(python, packages, builder)
        report(f"making {place} from {packages.file} on {base or f'Python {packages.wanted_python}'}")
        remove_leftovers(root)
        beside = str(root / MAKING)
        with built(base, packages, builder=builder, report=report, framework=framework, beside=beside) as environment:
            (environment / STAMP).unlink(missing_ok=True)
            write_new(environment / STAMP, json.dumps(stamp))
            move(environment, place, former or environment.with_name("former"))
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


def remove_leftovers(root: Path) -> None:
    """Removes what an interrupted setup left. The caller holds the lock of the project."""
    for folder in root.glob(f"{MAKING}*"):
        remove(folder)


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
