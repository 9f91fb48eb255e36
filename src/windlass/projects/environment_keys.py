"""Keys of environments: deployments share an environment only if nothing but its key decides on its packages.

Who deploys a project chooses all of its files and variables, and the packages of an environment run in every deployment
that has its key. So files count by their content only if they are known to name packages of remote places alone. All
others make an environment for exactly these files and these variables.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
from typing import TYPE_CHECKING, Any

from packaging.requirements import InvalidRequirement, Requirement

from windlass.errors import ProjectError
from windlass.projects.packages import POETRY_LOCK, PYPROJECT, UV_LOCK, document_of, table
from windlass.projects.virtual_environments import FORM

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from windlass.projects.packages import Packages

LARGEST_TEXT = 4 << 20
MOST_LINES = 10_000
CREDENTIALS = re.compile(r"(?<=://)[^/\\?#@\s]*@")
"""The user and the password of a URL, in the only form in which all programs find the same host after it."""
REMOTE = re.compile(r"(git\+)?(https?|ssh)://", re.IGNORECASE)
OF_ARCHIVE = re.compile(r"\.(whl|zip|egg|tar|tgz|tbz2?|txz|tlz|gz|bz2|xz|lz|lzma|zst)$", re.IGNORECASE)
VARIABLE = "${"
"""uv replaces variables in requirements, also by passwords, which can hold the name of another host."""
OF_PROJECT = {"path", "workspace", "file", "directory", "find-links", "find_links", "editable", "virtual"}
"""Members of uv's and poetry's tables that name files or folders."""
OF_PLACES = {"url", "git", "registry", "index-url", "extra-index-url"}
PLAIN_OPTION = re.compile(
    r"--(pre|no-index|prefer-binary|require-hashes)|--(no-binary|only-binary|trusted-host)[= ]\S+"
)
PLACE_OPTION = re.compile(r"(?:-i|--index-url|--extra-index-url)[= ]\s*(\S+)")
INCLUDE = re.compile(r"(?:-r|-c|--requirements?|--constraints?)[= ]?\s*(\S+)")
HASHES = re.compile(r"\s--hash[= ]\S+")
COMMENT = re.compile(r"(^|\s)#.*")


def key_of(root: Path, snapshot: str, packages: Packages, version: tuple[int, int], indexes: Mapping[str, str]) -> str:
    """Returns the key of an environment.

    `snapshot` identifies all files of the project, and `indexes` are the deployment's variables for uv. Passwords of
    indexes change the key only where they may decide on the packages. They can't be guessed from it quickly.
    """
    content = content_of(root, packages, indexes)
    if content is None:
        content = [snapshot, slow_digest(indexes)]
    named = {
        name: CREDENTIALS.sub("", value)
        for name, value in indexes.items()
        if not name.endswith(("_USERNAME", "_PASSWORD"))
    }
    text = json.dumps([FORM, packages.file, content, named, platform.machine()], sort_keys=True, default=str)
    return f"{hashlib.sha256(text.encode()).hexdigest()[:32]}-py{version[0]}.{version[1]}"


def slow_digest(values: Mapping[str, str]) -> str:
    text = json.dumps(values, sort_keys=True).encode()
    return hashlib.scrypt(text, salt=b"windlass environment", n=1 << 14, r=8, p=1, dklen=16).hex() if values else ""


def content_of(root: Path, packages: Packages, indexes: Mapping[str, str]) -> object:
    """Returns what decides on the packages. It is the same for projects with other names. Returns None if other files
    of the project, or passwords, may decide on them too.
    """
    document = document_of(root / PYPROJECT)
    uv, of_uv = table(document, "tool", "uv"), document_of(root / "uv.toml")
    if not (is_plain(uv) and is_plain(of_uv) and all(is_plain_index(*one) for one in indexes.items())):
        return None
    found = content_of_packages(root, packages, document)
    return None if found is None else [found, uv, of_uv]


def content_of_packages(root: Path, packages: Packages, document: Mapping[str, Any]) -> object:
    project, of_poetry = table(document, "project"), table(document, "tool", "poetry")
    poetry = {name: of_poetry.get(name) for name in ("dependencies", "group", "extras")}
    own = [project.get("requires-python"), project.get("dependencies"), poetry]
    match packages.file:
        case "uv.lock":
            return content_of_uv_lock(document_of(root / UV_LOCK))
        case "poetry.lock":
            lock = document_of(root / POETRY_LOCK)
            plain = all(map(is_plain_pin, lock.get("package", []))) and has_no_breaks(lock) and is_plain(poetry)
            return [lock, own] if plain else None
        case "requirements.txt":
            return content_of_requirements(root)
        case _:
            texts = own[1] if isinstance(own[1], list) else []
            plain = all(map(is_plain_requirement, texts)) and is_plain(poetry) and not project.get("dynamic")
            return own if plain else None


def is_plain_pin(package: Mapping[str, Any]) -> bool:
    """Returns whether a package of a poetry.lock, of which a line of requirements is made, is at no place of files."""
    line = f"{package.get('name')}=={package.get('version')}"
    return is_plain_requirement(line) and is_plain(table(package, "source"))


def has_no_breaks(value: object) -> bool:
    """Returns whether no text of a lock could become two lines of requirements."""
    if isinstance(value, dict | list):
        return all(map(has_no_breaks, value.values() if isinstance(value, dict) else value))
    return not isinstance(value, str) or not {"\n", "\r"} & set(value)


def content_of_uv_lock(lock: Mapping[str, Any]) -> object:
    """Leaves out the name and the version of the project itself."""
    packages, own = [], 0
    for package in lock.get("package", []):
        source = table(package, "source")
        is_own = next(iter(source.items()), None) in {("virtual", "."), ("editable", "."), ("directory", ".")}
        own += is_own
        if not is_plain({**package, "source": {}} if is_own else package):
            return None
        packages.append({**package, "name": "", "version": ""} if is_own else package)
    packages.sort(key=lambda one: json.dumps(one, sort_keys=True, default=str))
    others = {name: value for name, value in lock.items() if name != "package"}
    return [packages, others] if own <= 1 and is_plain(others) else None


def content_of_requirements(root: Path) -> object:
    files = {path.name: text for path in sorted(root.glob("*requirements*.txt")) if (text := text_of(path))}
    return files if all(are_plain_requirements(text, files) for text in files.values()) else None


def are_plain_requirements(text: str, files: Mapping[str, str]) -> bool:
    """Returns whether each line names a package of an index or of a remote place, or one of these files."""
    lines = [COMMENT.sub("", line).strip() for line in re.sub(r"\\\r?\n", " ", text).splitlines()]
    return len(lines) <= MOST_LINES and all(is_plain_line(line, files) for line in lines if line)


def is_plain_line(line: str, files: Mapping[str, str]) -> bool:
    if VARIABLE in line:
        return False
    if not line.startswith("-"):
        return is_plain_requirement(HASHES.sub("", line))
    if found := INCLUDE.fullmatch(line):
        return found[1].removeprefix("./") in files
    if found := PLACE_OPTION.fullmatch(line):
        return REMOTE.match(found[1]) is not None
    return PLAIN_OPTION.fullmatch(line) is not None


def is_plain_requirement(text: object) -> bool:
    """Returns whether the requirement names a package of an index, or one at a remote place."""
    if not isinstance(text, str) or VARIABLE in text:
        return False
    try:
        found = Requirement(text)
    except InvalidRequirement:
        return False
    return bool(REMOTE.match(found.url)) if found.url else not OF_ARCHIVE.search(found.name)


def is_plain(value: object) -> bool:
    """Returns whether a part of the tables of uv and poetry, or of a lock, names no files and no variables."""
    if isinstance(value, dict):
        return all(is_plain_member(name, one) for name, one in value.items())
    if isinstance(value, list):
        return all(map(is_plain, value))
    return not isinstance(value, str) or (VARIABLE not in value and "file:" not in value.lower())


def is_plain_member(name: str, value: object) -> bool:
    if name in OF_PROJECT and value:
        return False
    values = value if isinstance(value, list) else [value]
    if name in OF_PLACES and any(isinstance(one, str) and not REMOTE.match(one) for one in values):
        return False
    if name.endswith("-dependencies") and not all(map(is_plain_requirement, values)):
        return False
    return is_plain(value)


def is_plain_index(name: str, value: str) -> bool:
    """Returns whether a variable for uv names no places, or remote ones alone."""
    if name.endswith(("_USERNAME", "_PASSWORD", "_STRATEGY")):
        return True
    places = [one if REMOTE.match(one) else one.partition("=")[2] for one in value.split()]
    return VARIABLE not in value and all(map(REMOTE.match, places))


def text_of(file: Path) -> str | None:
    """Returns the text of a file, None when there is none. Raises ProjectError for a file that is too large."""
    if not file.is_file():
        return None
    if file.stat().st_size > LARGEST_TEXT:
        raise ProjectError(
            f"{file} is larger than {LARGEST_TEXT >> 20} MB.", "Check that it is the file that it should be."
        )
    return file.read_text("utf-8", "replace")
