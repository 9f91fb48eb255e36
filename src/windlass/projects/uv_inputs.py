"""Makes what uv gets for the packages of a project: a few files, in a folder that has no others
(docs/concepts/builds.md).

uv reads much more than dependencies in the folder of a project: the Python of `.python-version`, a build backend, the
configuration of all folders above. Deployments of other people share an environment if uv gets the same files. So
these files are generated from what is parsed and understood here, and nothing else reaches uv.
"""

# See docs/decisions/deployments.md#a-package-environment-is-identified-by-what-uv-gets

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from packaging.utils import canonicalize_name

from windlass.errors import ProjectError
from windlass.projects.requirement_lines import REMOTE, RequirementLines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

NAME = "windlass-project"
"""The name of each project for uv, so that projects with other names share an environment."""
PYPROJECT, UV_LOCK, REQUIREMENTS, CONSTRAINTS = "pyproject.toml", "uv.lock", "requirements.txt", "constraints.txt"
SYNC = ("sync", "--frozen", "--no-dev", "--no-install-project")
ROOT_SOURCES = ({"virtual": "."}, {"editable": "."}, {"directory": "."})
OF_FILES = {"path", "directory", "editable", "virtual"}
"""Members of a lock that name a file or folder of which a package is made."""
OF_PLACES = {"url", "git", "registry"}
SOURCE_MEMBERS = {
    "index", "git", "rev", "tag", "branch", "subdirectory", "lfs", "url", "marker", "path", "editable", "package",
    "workspace",
}  # fmt: skip
LISTS_OF_REQUIREMENTS = (
    "constraint-dependencies", "override-dependencies", "build-constraint-dependencies", "exclude-dependencies",
)  # fmt: skip
SETTINGS = {
    *LISTS_OF_REQUIREMENTS, "index", "index-url", "extra-index-url", "no-index", "find-links", "index-strategy",
    "resolution", "prerelease", "prerelease-package", "fork-strategy", "exclude-newer", "exclude-newer-package",
    "config-settings", "config-settings-package", "no-build", "no-build-package", "no-binary", "no-binary-package",
    "no-build-isolation", "no-build-isolation-package", "extra-build-dependencies", "extra-build-variables",
    "dependency-metadata", "no-sources", "no-sources-package", "allow-insecure-host", "pip",
}  # fmt: skip
"""The settings of uv that a project decides on."""
OF_PIP = SETTINGS - {"pip"} | {"only-binary", "require-hashes", "no-deps", "torch-backend"}
ELSEWHERE = {
    "sources", "workspace", "default-groups", "dev-dependencies", "dependency-groups", "managed", "package",
    "build-backend", "environments", "required-environments", "conflicts",
}  # fmt: skip
"""Members of [tool.uv] that are read at another place, or that only `uv lock` and builds of the project need."""
LONGEST_LIST = 10_000


@dataclass(frozen=True, slots=True)
class Inputs:
    """The packages of a project as uv gets them.

    `files` are the texts of the generated files by their names. `arguments` are those of uv, in their folder.
    `settings` become the configuration of uv. `own` are files and folders of which packages are made, and `indexes`
    folders with packages. With either, or with `reads_project`, other files of the project decide on the packages.
    """

    files: Mapping[str, str]
    arguments: tuple[str, ...]
    settings: Mapping[str, Any]
    own: tuple[str, ...] = ()
    indexes: tuple[str, ...] = ()
    reads_project: bool = False

    @property
    def is_own(self) -> bool:
        """Whether other files than those that uv gets decide on the packages."""
        return bool(self.own or self.indexes or self.reads_project)


def path_of(root: Path, place: str) -> Path:
    text = place[4:] if place.lower().startswith("git+") else place
    text = unquote(text[5:]) if text.lower().startswith("file:") else text
    if text.startswith("//"):
        text = "/" + text[2:].partition("/")[2]
    return (root / text).resolve()


def of_requirements(root: Path, uv: Settings) -> Inputs:
    """Returns the inputs for the requirements.txt of a project. Raises ProjectError."""
    lines = RequirementLines(root)
    lines.include(root / REQUIREMENTS)
    return of_lines(lines, uv)


def of_lines(lines: RequirementLines, uv: Settings, more: Iterable[str] = ()) -> Inputs:
    files = {REQUIREMENTS: text_of([*lines.options, *lines.requirements])}
    arguments = ["-r", REQUIREMENTS, *lines.arguments, *more]
    if lines.constraints:
        files[CONSTRAINTS] = text_of(lines.constraints)
        arguments += ["-c", CONSTRAINTS]
    return uv.inputs(files, arguments, lines.own, lines.indexes)


def of_poetry(pins: Iterable[str], root: Path, uv: Settings, *, locked: bool) -> Inputs:
    """Returns the inputs for pins, which are made of poetry's files. Raises ProjectError."""
    lines = RequirementLines(root)
    for pin in pins:
        lines.add(pin, f"a package of poetry ({pin[:80]!r})")
    # a lock has all packages, so uv must not look for more
    return of_lines(lines, uv, ["--no-deps"] if locked else [])


def of_pyproject(root: Path, document: Mapping[str, Any], uv: Settings) -> Inputs:
    """Returns the inputs for the dependencies of [project]. Raises ProjectError."""
    project = table(document, "project")
    dynamic, wanted = project.get("dynamic", []), project.get("dependencies", [])
    if isinstance(dynamic, list) and "dependencies" in dynamic:
        return uv.inputs({}, ["-r", str(root / PYPROJECT)], reads_project=True)
    if not isinstance(wanted, list) or len(wanted) > LONGEST_LIST:
        raise ProjectError(f"dependencies in {PYPROJECT} is no list of packages.", "Correct it.")
    lines = RequirementLines(root)
    texts = [lines.requirement(text, f"dependencies of {PYPROJECT}") for text in wanted]
    names = {name_of(text) for text in [*texts, *uv.requirements]}
    sources = dict(sources_of(table(document, "tool", "uv", "sources"), names, lines))
    if any("workspace" in one for several in sources.values() for one in several):
        return uv.inputs({}, ["-r", str(root / PYPROJECT)], lines.own, reads_project=True)
    generated = {
        "project": {"name": NAME, "version": "0", "dependencies": texts},
        "tool": {"uv": uv.of_project | ({"sources": sources} if sources else {}) | {"workspace": {}}},
    }
    return uv.inputs({PYPROJECT: document_text(generated)}, ["-r", PYPROJECT], lines.own, lines.indexes)


def sources_of(
    sources: Mapping[str, Any], names: set[str], lines: RequirementLines
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yields the sources of packages that are installed. Raises ProjectError."""
    for name, value in sources.items():
        if canonicalize_name(name) not in names:
            continue
        where = f"the source of {name[:80]} in {PYPROJECT}"
        found = []
        for one in value if isinstance(value, list) else [value]:
            if not isinstance(one, dict):
                raise ProjectError(f"{where} can't be read.", "Correct it.")
            if "extra" in one or "group" in one:  # neither is installed
                continue
            if unknown := one.keys() - SOURCE_MEMBERS:
                raise ProjectError(f"{where} has {min(unknown)!r}, which is not supported.", "Remove it.")
            found.append(source_of(one, lines))
        if found:
            yield name, found


def source_of(one: dict[str, Any], lines: RequirementLines) -> dict[str, Any]:
    if "path" in one:
        lines.own.append(str(one["path"]))
        return one | {"path": str((lines.root / str(one["path"])).absolute())}
    lines.own += [str(one[name]) for name in ("git", "url") if name in one and not REMOTE.match(str(one[name]))]
    return one


def of_uv_lock(root: Path, lock: Mapping[str, Any], document: Mapping[str, Any], uv: Settings) -> Inputs:
    """Returns the inputs for a uv.lock. The name and the version of the project are left out. Raises ProjectError."""
    packages = lock.get("package", [])
    if not isinstance(packages, list) or not all(isinstance(one, dict) for one in packages):
        raise ProjectError(f"{UV_LOCK} can't be read: its packages are no tables.", "Make it again: uv lock")
    whole = [one for one in packages if one.get("source") in ROOT_SOURCES]
    others = [one for one in packages if one.get("source") not in ROOT_SOURCES]
    of_indexes = [one for one in others if "registry" in table(one, "source")]
    rest = [one for one in others if "registry" not in table(one, "source")]
    own = list(places_of([rest, {name: value for name, value in lock.items() if name != "package"}]))
    if len(whole) != 1 or own or any(places_of(of_indexes)):
        return uv.inputs({}, [*SYNC, "--project", str(root)], own, reads_project=True)
    name = str(whole[0].get("name", ""))
    taken = {canonicalize_name(str(one.get("name", ""))) for one in others}
    if canonicalize_name(name) in taken or NAME in taken:
        raise ProjectError(
            f"{UV_LOCK} has a package with the name of the project, {name[:80]!r}.",
            "Rename the project, and make the lock again: uv lock",
        )
    if (dependent := next((one for one in others if depends_on(one, name)), None)) is not None:
        raise ProjectError(
            f"{UV_LOCK} has a package that depends on the project: {str(dependent.get('name'))[:80]}.",
            "Make the lock again: uv lock",
        )
    keeps = bool(lock.get("conflicts")) or depends_on(whole[0], name)  # it has the name in its markers or extras
    project: dict[str, Any] = {"name": project_name(name) if keeps else NAME, "version": "0"}
    groups = default_groups(document)
    locked = {**lock, "package": [as_project(whole[0], groups, project, keeps=keeps), *others]}
    generated: dict[str, Any] = {"project": project, "tool": {"uv": {**uv.of_project, "workspace": {}}}}
    if isinstance(lock.get("requires-python"), str):
        generated["project"] = project | {"requires-python": lock["requires-python"]}
    if groups:
        generated["dependency-groups"] = {group: [] for group in groups}
        generated["tool"]["uv"]["default-groups"] = groups
    return uv.inputs({PYPROJECT: document_text(generated), UV_LOCK: document_text(locked)}, SYNC)


def project_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}", name):
        raise ProjectError(f"{UV_LOCK} has a project without a name that is allowed.", "Make it again: uv lock")
    return name


def default_groups(document: Mapping[str, Any]) -> list[str]:
    """Returns the groups that are installed with the project, without that for development."""
    groups = table(document, "tool", "uv").get("default-groups", [])
    if groups == "all":
        groups = list(table(document, "dependency-groups"))
    return sorted({str(one) for one in groups} - {"dev"}) if isinstance(groups, list) else []


def as_project(
    package: Mapping[str, Any], groups: list[str], project: Mapping[str, str], *, keeps: bool
) -> dict[str, Any]:
    """Returns the project in a lock, without what is not installed. With `keeps` its extras stay."""
    names = ("dependencies", "optional-dependencies") if keeps else ("dependencies",)
    found = {**project, "source": {"virtual": "."}} | {name: package[name] for name in names if name in package}
    if groups:
        of_groups = table(package, "dev-dependencies")
        found["dev-dependencies"] = {group: of_groups[group] for group in groups if group in of_groups}
        found |= {name: groups for name in ("default-groups",) if name in package}
    return found


def depends_on(package: Mapping[str, Any], name: str) -> bool:
    groups = [package.get("dependencies", []), *table(package, "optional-dependencies").values()]
    return any(isinstance(one, dict) and one.get("name") == name for group in groups for one in group)


def places_of(value: object) -> Iterator[str]:
    """Yields the files and folders that a lock names, and what is at no known kind of remote place."""
    if isinstance(value, list):
        for one in value:
            yield from places_of(one)
    elif isinstance(value, dict):
        for name, one in value.items():
            if name in OF_FILES or (name in OF_PLACES and isinstance(one, str) and not REMOTE.match(one)):
                yield str(one)
            else:
                yield from places_of(one)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of uv in a project, with absolute addresses."""

    values: Mapping[str, Any]
    own: tuple[str, ...]
    indexes: tuple[str, ...]
    ignored: tuple[str, ...]

    @classmethod
    def of(cls, root: Path, of_file: Mapping[str, Any], document: Mapping[str, Any]) -> Settings:
        """Takes the contents of uv.toml, and of pyproject.toml, which counts if there is no uv.toml. Raises
        ProjectError.
        """
        given = of_file or table(document, "tool", "uv")
        lines = RequirementLines(root)
        values = {name: setting(name, value, lines) for name, value in given.items() if name in SETTINGS}
        ignored = sorted(str(name)[:80] for name in given.keys() - SETTINGS - ELSEWHERE)
        return cls(values, tuple(lines.own), tuple(lines.indexes), tuple(ignored))

    @property
    def requirements(self) -> list[str]:
        given = [one for name in LISTS_OF_REQUIREMENTS for one in self.values.get(name, [])]
        return [one for one in given if isinstance(one, str)]

    @property
    def of_project(self) -> dict[str, Any]:
        """The settings that uv reads from a pyproject.toml, even if its configuration is elsewhere."""
        names = ("index", *LISTS_OF_REQUIREMENTS)
        return {name: self.values[name] for name in names if name in self.values}

    def inputs(
        self,
        files: Mapping[str, str],
        arguments: Iterable[str],
        own: Iterable[str] = (),
        indexes: Iterable[str] = (),
        *,
        reads_project: bool = False,
    ) -> Inputs:
        """Returns inputs with these settings."""
        return Inputs(
            files,
            tuple(arguments),
            self.values,
            (*self.own, *own),
            (*self.indexes, *indexes),
            reads_project,
        )


def setting(name: str, value: Any, lines: RequirementLines) -> Any:
    """Returns the value of a setting with absolute addresses. Raises ProjectError."""
    where = f"the setting {name} of uv"
    several = value if isinstance(value, list) else [value]
    tables = value if isinstance(value, dict) else {}
    if name == "pip":
        found: Any = {one: setting(one, given, lines) for one, given in tables.items() if one in OF_PIP}
    elif name == "index":
        found = [index_of(one, where, lines) for one in several]
    elif name == "index-url":
        found = lines.index(one_line(value, where))
    elif name in {"extra-index-url", "find-links"}:
        found = [lines.index(one_line(one, where)) for one in several]
    elif name == "exclude-dependencies":
        found = [one_line(one, where) for one in several]
    elif name == "extra-build-dependencies":
        needs = {one: given for one, given in tables.items() if isinstance(given, list)}
        found = {one: [build_need(need, where, lines) for need in given] for one, given in needs.items()}
    elif name in LISTS_OF_REQUIREMENTS:
        found = [lines.requirement(one, where) for one in several]
    else:
        found = value
    return found


def index_of(one: Any, where: str, lines: RequirementLines) -> dict[str, Any]:
    given = one if isinstance(one, dict) else {}
    return given | {"url": lines.index(one_line(given.get("url"), where))}


def build_need(need: Any, where: str, lines: RequirementLines) -> Any:
    if isinstance(need, dict):
        return need | {"requirement": lines.requirement(need.get("requirement"), where)}
    return lines.requirement(need, where)


def one_line(value: object, where: str) -> str:
    if not isinstance(value, str) or not value or len(value.splitlines()) != 1:
        raise ProjectError(f"{where} has {str(value)[:80]!r}, which is no address.", "Correct it.")
    return value


def name_of(requirement: str) -> str:
    return canonicalize_name(re.split(r"[^\w.-]", requirement, maxsplit=1)[0])


def table(document: Mapping[str, Any], *names: str) -> dict[str, Any]:
    found: Any = document
    for name in names:
        found = found.get(name, {}) if isinstance(found, dict) else {}
    return found if isinstance(found, dict) else {}


def text_of(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def document_text(document: Mapping[str, Any]) -> str:
    """Returns a TOML document with a line for each member."""
    return text_of(f"{toml_of(name)} = {toml_of(value)}" for name, value in document.items())


def toml_of(value: Any) -> str:
    """Returns a value in the form of TOML. Inline, so that it needs no names of tables."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # its escapes are those of TOML
        case dict():
            return "{" + ", ".join(f"{toml_of(str(name))} = {toml_of(one)}" for name, one in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(toml_of, value)) + "]"
        case int() | float():
            return str(value)
    return toml_of(value.isoformat())  # a date: uv takes it as a text
