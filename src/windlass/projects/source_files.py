"""Decides which files of a project's folder belong to its source: git's ignore rules, and names that are never sent."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from fnmatch import translate
from typing import TYPE_CHECKING, Literal

from windlass.errors import ProjectError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from pathspec import GitIgnoreSpec

SECRETS = (
    ".env", ".env.*", ".envrc", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.ppk",
    "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "credentials.json", "client_secret*.json", ".netrc", "_netrc",
    ".pypirc", ".npmrc", ".pgpass", ".git-credentials", ".htpasswd", ".aws", ".ssh", ".gnupg", ".kube",
)  # fmt: skip
"""Names of files and folders that hold keys or passwords."""
TEMPLATES = (".env.example", ".env.sample", ".env.template")
"""Names that match SECRETS and hold no values."""
GENERATED = (
    ".git", ".hg", ".svn", ".venv", "venv", "__pycache__", "*.pyc", "node_modules", ".tox", ".nox", ".mypy_cache",
    ".ruff_cache", ".pytest_cache", ".windlass", "__macosx", ".ds_store",
)  # fmt: skip
"""Names of files and folders that tools make, and that make a source large."""
GIT_SECONDS = 60.0
LARGEST_RULES = 1 << 20
"""The most bytes of a .gitignore that are read."""
MOST_LISTED = 200_000
"""The most files and folders that are listed, with those that are left out."""

Reason = Literal["secret", "generated"]
Rules = list[tuple[str, "GitIgnoreSpec"]]
"""The folder of each .gitignore, with a slash at its end, and the rules in it."""


def _names(patterns: Collection[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(translate, patterns)))


_SECRET, _GENERATED = _names(SECRETS), _names(GENERATED)


def why_left_out(path: str) -> Reason | None:
    """Returns why a file never belongs to a source: because of its own name or of the name of a folder above it."""
    names = [name for name in path.casefold().split("/") if name not in TEMPLATES]
    if any(map(_GENERATED.match, names)):
        return "generated"
    return "secret" if any(map(_SECRET.match, names)) else None


def files_of(root: Path, ignore: Collection[str] = ()) -> tuple[list[str], list[str]]:
    """Returns the paths of the files and links that belong to the source, and the secret ones that are left out.

    In a git work tree git lists the files, if it is installed. Else the .gitignore files of the folder count. `ignore`
    are further patterns of paths, as in the option of that name. Raises ProjectError for too many files.
    """
    ignored = re.compile("|".join(translate(pattern.rstrip("/")) for pattern in ignore) or r"(?!)")
    found, left_out = [], []
    for path in _listed(root):
        reason = why_left_out(path)
        if reason == "secret":
            left_out.append(path)
        elif reason is None and not ignored.match(path):
            found.append(path)
    return found, left_out


def _listed(root: Path) -> Iterator[str]:
    names = _by_git(root)
    for count, name in enumerate(_by_walk(root) if names is None else names):
        if count == MOST_LISTED:
            raise ProjectError(
                f"{root} has more than {MOST_LISTED} files.", "Deploy the project's own folder, or add a .gitignore."
            )
        place = root / name
        if place.is_dir() and not place.is_symlink():  # a submodule, or a repository of its own
            below = _listed(place) if (place / ".git").exists() else _by_walk(place)
            yield from (f"{name.rstrip('/')}/{path}" for path in below)
        else:
            yield name


def _by_git(root: Path) -> list[str] | None:
    """Returns the files that git tracks or does not ignore. None when git is not installed or does not track here."""
    git = shutil.which("git")
    if git is None or not any((folder / ".git").exists() for folder in (root, *root.absolute().parents)):
        return None
    order = [git, "-c", "core.fsmonitor=false", "ls-files", "-coz", "--exclude-standard"]
    try:
        done = subprocess.run(order, cwd=root, capture_output=True, timeout=GIT_SECONDS, check=True)  # noqa: S603 - git
    except (subprocess.SubprocessError, OSError):  # for example a repository of another user
        return None
    names = {os.fsdecode(name) for name in done.stdout.split(b"\0") if name}
    return sorted(name for name in names if os.path.lexists(root / name)) or None


def _by_walk(root: Path) -> Iterator[str]:
    """Yields the files that no .gitignore excludes, and the secret ones. Does not enter folders that tools make."""
    folders: list[tuple[str, Rules]] = [("", [])]
    while folders:
        prefix, above = folders.pop()
        rules = [*above, *_rules(root / prefix, prefix)]
        for entry in _entries(root / prefix):
            name, is_folder = prefix + entry.name, entry.is_dir(follow_symlinks=False)
            if why_left_out(entry.name) == "generated" or _is_ignored(name + "/" * is_folder, rules):
                continue
            if is_folder:
                folders.append((f"{name}/", rules))
            else:
                yield name


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise ProjectError(f"{folder} can't be read: {error.strerror}.", "Check its permissions.") from None


def _rules(folder: Path, prefix: str) -> Rules:
    from pathspec import GitIgnoreSpec  # noqa: PLC0415 - only a folder without git needs it

    try:
        with (folder / ".gitignore").open("rb") as file:
            text = file.read(LARGEST_RULES).decode("utf-8", "replace").removeprefix("\ufeff")
        return [(prefix, GitIgnoreSpec.from_lines(text.splitlines()))]
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise ProjectError(f"{folder / '.gitignore'} can't be used: {error}.", "Correct it.") from None


def _is_ignored(path: str, rules: Rules) -> bool:
    """Returns whether the last rule that matches excludes the path. A rule in a deeper folder comes after others.

    A byte of the path that is no UTF-8 counts as a question mark, because pathspec accepts only text.
    """
    path = path.encode("utf-8", "replace").decode()
    for prefix, spec in reversed(rules):
        excluded = spec.check_file(path[len(prefix) :]).include
        if excluded is not None:
            return excluded
    return False
