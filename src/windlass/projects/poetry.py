"""Reads what poetry writes: the constraints of a pyproject.toml, and the pins of a poetry.lock.

uv reads neither. The pins become lines of a requirements file, with the hashes of the lock. Which of them an
interpreter needs is decided here: the packages are followed from the project's own dependencies, as poetry does.
"""

# See docs/decisions/deployments.md#windlass-reads-poetrylock

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from packaging.markers import InvalidMarker, Marker
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from windlass.errors import ProjectError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    Environment = Mapping[str, str]

CARET, TILDE = "^", "~"
OPERATORS = "<>=!~^"
LONGEST_CONSTRAINT = 2000


def specifiers(constraint: str) -> list[SpecifierSet]:
    """Returns the alternatives of a constraint, such as "^1.2 || >=3,<4", in the form of PEP 440. Raises ValueError."""
    if len(constraint) > LONGEST_CONSTRAINT:
        raise InvalidSpecifier(f"a constraint of more than {LONGEST_CONSTRAINT:,} characters")
    return [_specifier(part) for part in constraint.replace("||", "|").split("|")]


def _specifier(text: str) -> SpecifierSet:
    parts = [clause for part in text.split(",") for clause in _clauses(part.split())]
    return SpecifierSet(",".join(filter(None, map(_clause, parts))))


def _clauses(words: list[str]) -> list[str]:
    """Joins words to clauses. A clause begins with an operator after a word that ends a version: ">= 1 <2" has two."""
    clauses: list[list[str]] = []
    for word in words:
        if clauses and not (word[0] in OPERATORS and (clauses[-1][-1][-1].isalnum() or clauses[-1][-1][-1] in "_*")):
            clauses[-1].append(word)
        else:
            clauses.append([word])
    return ["".join(clause) for clause in clauses]


def _clause(text: str) -> str:
    """Returns one clause in the form of PEP 440: ^1.2 is >=1.2,<2, ~1.2 is >=1.2,<1.3, and 1.2 is ==1.2."""
    if text == "*":
        return ""
    if text.startswith(CARET):
        return _between(text[1:], _caret_end)
    if text.startswith(TILDE) and not text.startswith("~="):
        return _between(text[1:], lambda release: release[:2] if len(release) > 1 else release[:1])
    if text[0] in "<>=!~":
        return f"={text}" if text.startswith("=") and not text.startswith("==") else text
    return f"=={text}"


def _between(version: str, end: Any) -> str:
    first = Version(version.rstrip("*").rstrip("."))
    kept = end(first.release)
    return f">={first},<{'.'.join(map(str, (*kept[:-1], kept[-1] + 1)))}"


def _caret_end(release: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the release up to its first number that is not 0, or all of it."""
    return next((release[:number] for number, part in enumerate(release, 1) if part), release)


def satisfies(version: str, constraint: str) -> bool:
    """Returns whether the version satisfies the constraint. A constraint that can't be read is satisfied."""
    try:
        return any(one.contains(version, prereleases=True) for one in specifiers(constraint))
    except ValueError:
        return True


def newest_range(constraint: str) -> str:
    """Returns the last alternative of the constraint, or "" if the constraint can't be read."""
    try:
        return str(specifiers(constraint)[-1])
    except ValueError:
        return ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A package that another one, or the project, depends on."""

    name: str
    constraint: str = "*"
    extras: frozenset[str] = frozenset()
    origin: str = ""
    """Where the package comes from, if from no index: the part after "name @ " of a requirement."""


def wanted(name: str, value: Any, environment: Environment, extras: Iterable[str] = ()) -> Iterator[Wanted]:
    """Yields a dependency as poetry writes it, if it applies: a constraint, a table, or a list of these."""
    for one in value if isinstance(value, list) else [value]:
        table = {"version": one} if isinstance(one, str) else one
        if isinstance(table, dict) and not table.get("optional") and applies(table, environment, extras):
            constraint, chosen = str(table.get("version", "*")), frozenset(map(str, table.get("extras", ())))
            yield Wanted(canonicalize_name(name), constraint, chosen, origin_of(table))


def applies(table: Mapping[str, Any], environment: Environment, extras: Iterable[str] = ()) -> bool:
    python = environment["python_full_version"]
    if not satisfies(python, str(table.get("python", "*"))):
        return False
    return holds(str(table.get("markers", "")), environment, extras)


def holds(marker: str, environment: Environment, extras: Iterable[str] = ()) -> bool:
    """Returns whether a marker holds, with one of the extras or none. A marker that can't be read holds."""
    if not marker:
        return True
    try:
        read = Marker(marker)
        return any(read.evaluate({**environment, "extra": extra}) for extra in ("", *extras))
    except InvalidMarker:
        return True


def origin_of(table: Mapping[str, Any]) -> str:
    if "git" in table:
        revision = table.get("rev") or table.get("tag") or table.get("branch")
        return f"git+{table['git']}" + (f"@{revision}" if revision else "")
    if "path" in table:
        return f"./{table['path']}" if not str(table["path"]).startswith("/") else str(table["path"])
    return str(table.get("url", ""))


def own_dependencies(document: Mapping[str, Any], environment: Environment) -> list[Wanted]:
    """Returns the project's own dependencies, of [tool.poetry] and of [project]."""
    table = document.get("tool", {}).get("poetry", {}).get("dependencies", {})
    found = [one for name, value in table.items() if name != "python" for one in wanted(name, value, environment)]
    for text in document.get("project", {}).get("dependencies", ()):
        try:
            read = Requirement(str(text))
        except InvalidRequirement:
            continue
        if read.marker is None or read.marker.evaluate({**environment, "extra": ""}):
            found.append(
                Wanted(canonicalize_name(read.name), str(read.specifier), frozenset(read.extras), read.url or "")
            )
    return found


def requirements(document: Mapping[str, Any], environment: Environment) -> list[str]:
    """Returns the dependencies of a pyproject.toml of poetry without a lock, as lines of a requirements file."""
    return [line for one in own_dependencies(document, environment) for line in _line_of(one)]


def _line_of(one: Wanted) -> Iterator[str]:
    extras = f"[{','.join(sorted(one.extras))}]" if one.extras else ""
    if one.origin:
        yield f"{one.name}{extras} @ {one.origin}"
        return
    try:
        alternatives = specifiers(one.constraint)
    except ValueError:
        raise ProjectError(
            f"the version {one.constraint!r} of {one.name} in pyproject.toml can't be read.", "Correct it."
        ) from None
    # a requirements file has no "or": the last alternative is the newest one
    yield f"{one.name}{extras}{alternatives[-1]}"


@dataclass
class Lock:
    """The packages of a poetry.lock."""

    file: Path
    packages: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    hashes: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, file: Path, document: Mapping[str, Any]) -> Lock:
        metadata = document.get("metadata", {})
        # before version 2 of the format, the files of all packages stood in one table
        lock = cls(file, {}, metadata.get("files", {}))
        for package in document.get("package", ()):
            lock.packages.setdefault(canonicalize_name(str(package["name"])), []).append(package)
        return lock

    def pins(self, own: list[Wanted], environment: Environment) -> list[str]:
        """Returns the lines of a requirements file with the packages that the project needs in this environment.

        Raises ProjectError for a package that the lock does not have.
        """
        lines: dict[str, str] = {}
        seen: set[tuple[str, str, frozenset[str]]] = set()
        open_ones = list(own)
        while open_ones:
            one = open_ones.pop()
            package = self._package(one, environment)
            key = (one.name, str(package["version"]), one.extras)
            if key in seen:
                continue
            seen.add(key)
            lines[one.name] = self._line(package)
            table = package.get("dependencies", {})
            open_ones += [
                follows for name, value in table.items() for follows in wanted(name, value, environment, one.extras)
            ]
            open_ones += list(self._of_extras(package, one.extras, environment))
        return [lines[name] for name in sorted(lines)]

    def _package(self, one: Wanted, environment: Environment) -> dict[str, Any]:
        found = self.packages.get(one.name, [])
        python = environment["python_full_version"]
        fitting = [
            package
            for package in found
            if satisfies(python, str(package.get("python-versions", "*")))
            and satisfies(str(package["version"]), one.constraint)
        ]
        marked = [package for package in fitting if holds(_marker(package), environment, one.extras)]
        if chosen := (marked or fitting)[:1]:
            return chosen[0]
        if found:
            versions = ", ".join(str(package["version"]) for package in found)
            raise ProjectError(
                f"{self.file.name} has {one.name} {versions}, which is not for Python {python} or does not satisfy "
                f"{one.constraint!r}.",
                "Make the lock again (poetry lock), or choose another Python with --python or .python-version.",
            )
        raise ProjectError(
            f"{self.file.name} does not have {one.name}, on which the project depends.",
            "Make the lock again: poetry lock",
        )

    def _of_extras(
        self, package: Mapping[str, Any], extras: frozenset[str], environment: Environment
    ) -> Iterator[Wanted]:
        """Yields the packages of the chosen extras, which are optional dependencies in the lock."""
        dependencies = {canonicalize_name(name): value for name, value in package.get("dependencies", {}).items()}
        for extra, names in package.get("extras", {}).items():
            if canonicalize_name(extra) not in {canonicalize_name(one) for one in extras}:
                continue
            for text in names:
                name = canonicalize_name(re.split(r"[^\w.-]", str(text), maxsplit=1)[0])
                tables = dependencies.get(name, [])
                for table in tables if isinstance(tables, list) else [tables]:
                    plain = {"version": table} if isinstance(table, str) else {**table, "optional": False}
                    if name in self.packages:
                        yield from wanted(name, plain, environment, [extra])

    def _line(self, package: Mapping[str, Any]) -> str:
        name, version, source = package["name"], package["version"], package.get("source", {})
        kind, url = source.get("type"), source.get("url", "")
        if kind == "git":
            return f"{name} @ git+{url}@{source.get('resolved_reference') or source.get('reference')}"
        if kind in {"directory", "file"}:
            return f"{name} @ {(self.file.parent / url).resolve().as_uri()}"
        line = f"{name} @ {url}" if kind == "url" else f"{name}=={version}"
        files = package.get("files") or self.hashes.get(name, ())
        digests = sorted({str(one["hash"]) for one in files if "hash" in one})
        return " ".join([line, *(f"--hash={digest}" for digest in digests)])


def _marker(package: Mapping[str, Any]) -> str:
    """Returns the marker of a package in the main group, which locks since poetry 2 have."""
    markers = package.get("markers", "")
    return str(markers.get("main", "")) if isinstance(markers, dict) else str(markers)
