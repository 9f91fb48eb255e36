"""Keys of environments: two deployments share an environment only if uv gets the same for both.

Who deploys a project chooses all of its files and variables, and the packages of an environment run in every deployment
that has its key. So the key covers all that uv gets (`uv_inputs`). Where other files of the project decide on the
packages too, or variables that the key must not contain, the environment is of one deployment alone. So is that of
poetry's files: what uv gets for them depends on the interpreter, and is not known when the key is made.
"""

from __future__ import annotations

import json
import platform
from typing import TYPE_CHECKING

from windlass.errors import ProjectError
from windlass.projects.requirement_lines import CREDENTIALS, OF_CREDENTIALS, REMOTE, RequirementLines, slow_digest
from windlass.projects.virtual_environments import FORM

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from windlass.projects.packages import Packages


def key_of(
    packages: Packages,
    *,
    snapshot: str,
    deployment: str,
    python: str | None,
    version: tuple[int, int],
    indexes: Mapping[str, str],
) -> str:
    """Returns the key of an environment.

    `snapshot` identifies all files of the project, `python` is the version that it asks for, and `indexes` are the
    deployment's variables for uv. A password of an index is not in the key: the environment is then of one deployment
    alone, which may change it.
    """
    named = {name: CREDENTIALS.sub("", one) for name, one in indexes.items() if not name.endswith(OF_CREDENTIALS)}
    exact = python if python and python.count(".") > 1 else None
    # paths of this machine are in what uv gets of files of the project
    given = packages.file if packages.is_own else packages.content
    content = [FORM, given, named, exact, platform.machine()]
    if variables_of(packages, indexes) or packages.is_own or any(map(is_private, indexes.items())):
        content += [snapshot, deployment]
    elif packages.inputs is None:  # a process that has read the project's files makes the pins later (`PoetryAnswer`)
        content.append(deployment)
    text = json.dumps(content, sort_keys=True, default=str)
    return f"{slow_digest(text)}-py{version[0]}.{version[1]}"


def is_private(index: tuple[str, str]) -> bool:
    """Returns whether a variable for uv has credentials, or names a folder."""
    name, value = index
    if name.endswith(OF_CREDENTIALS):
        return True
    return not name.endswith("_STRATEGY") and not all(is_public(place) for _, place in places_in(value))


def is_public(place: str) -> bool:
    return REMOTE.match(place) is not None and not CREDENTIALS.search(place)


def places_in(value: str) -> Iterator[tuple[str, str]]:
    """Yields the indexes in a variable for uv: the name with "=", or an empty text, and the place."""
    for one in value.split():
        name, equals, place = one.partition("=")
        yield (name + equals, place) if equals and not REMOTE.match(one) and "/" not in name else ("", one)


def absolute(root: Path, indexes: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables for uv with absolute addresses in place of folders of the project."""
    plain = ("_STRATEGY", *OF_CREDENTIALS)
    return {
        name: value
        if name.endswith(plain)
        else " ".join(before + RequirementLines(root).index(place) for before, place in places_in(value))
        for name, value in indexes.items()
    }


def variables_of(packages: Packages, indexes: Mapping[str, str]) -> set[str]:
    """Returns the names of the variables that uv replaces in the names of packages and of places.

    Raises ProjectError for one that is no variable of the deployment for uv: the project could send the server's own
    variables to other hosts.
    """
    text = json.dumps([packages.content, list(indexes.values())], sort_keys=True, default=str)
    found = {part.partition("}")[0] for part in text.split("${")[1:]}
    if others := sorted(found - indexes.keys()):
        raise ProjectError(
            f"{packages.file} has the variable ${{{others[0][:80]}}}, which is no variable of the deployment for a "
            "package index.",
            "Set it with `windlass env set DEPLOYMENT NAME`. The name must be one of uv's for indexes, such as "
            "UV_INDEX_NAME_PASSWORD.",
        )
    return found
