"""Reads what the files of a project declare of it as a package: pyproject.toml, setup.cfg and setup.py.

No code of the project runs for this. What only a build finds out is missing, and the version is then STAND_IN.
"""

from __future__ import annotations

import ast
import contextlib
import os
import re
import sys
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

LARGEST = 1 << 20
STAND_IN = "0+unknown"
"""The version of a package whose version only a build finds. PEP 440 allows it, and it is older than any other."""
NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?")
VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.!+_-]{0,99}")
GROUP = re.compile(r"[\w.-]{1,100}")
POINT = re.compile(r"[\w.:\[\], -]{1,500}")
ASSIGNED = re.compile(r"^(?:__version__|VERSION|version)\b[^=\n]*=\s*[\"']v?([^\"'\n]+)[\"']", re.MULTILINE)
MODULES_WITH_VERSIONS = ("", "._version", ".__about__", ".__version__", ".version")
DEEPEST = 4
"""Names and imports that are followed to the text of a version."""

toml: Any = None
with contextlib.suppress(ImportError):  # Python 3.10 has no reader of TOML; frameworks bring this one
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")


@dataclass(frozen=True)
class OwnPackage:
    """A project that is a package.

    `points` are its entry points by their groups, and `scripts` the files among its commands. Its modules are in
    `folders`, and in `links` by the names of top-level packages.
    """

    name: str
    version: str
    points: dict[str, dict[str, str]] = field(default_factory=dict)
    scripts: dict[str, Path] = field(default_factory=dict)
    folders: tuple[Path, ...] = ()
    links: dict[str, Path] = field(default_factory=dict)


def package_in(root: Path) -> OwnPackage | None:
    """Returns the package, or None for a project that uv, pip or poetry would not install itself."""
    files = Files(root)
    declared = files.pyproject()
    backend = str(table(declared, "build-system").get("build-backend") or "setuptools")
    old = {**files.setup_cfg(), **files.setup_py()} if backend.startswith("setuptools") else {}
    named = (table(declared, "project"), table(declared, "tool", "poetry"), table(declared, "tool", "flit", "metadata"))
    name = first_text([*(one.get("name") for one in named), table(declared, "tool", "flit", "metadata").get("module")])
    name = name or first_text([old.get("name")])
    if not NAME.fullmatch(name) or not is_package(declared, old):
        return None
    folders, links = folders_of(files, declared, old)
    found = Versions(files, folders, links)
    return OwnPackage(
        name,
        found.version(declared, old, name),
        points_of(declared, old),
        scripts_of(files, declared, old),
        folders,
        links,
    )


def is_package(declared: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    of_uv = table(declared, "tool", "uv").get("package")
    if of_uv is False or table(declared, "tool", "poetry").get("package-mode") is False:
        return False
    return of_uv is True or bool(table(declared, "build-system")) or bool(old.get("name"))


class Files:
    """Reads files of a project. Files outside of it, and large ones, are as missing ones."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._real = os.path.realpath(root)

    def inside(self, name: object) -> Path | None:
        """Returns the path in the project, or None if `name` names no file or folder in it."""
        if not isinstance(name, str) or "\0" in name or "\n" in name:
            return None
        path = os.path.realpath(os.path.join(self._real, name))  # noqa: PTH118 - with its spelling of "."
        with contextlib.suppress(OSError):
            if f"{path}/".startswith(f"{self._real}/") and os.path.exists(path):  # noqa: PTH110 - of a str
                return self.root / os.path.relpath(path, self._real)
        return None

    def text(self, name: object) -> str:
        """Returns the text of a file, or "" for one that can't be read."""
        file = self.inside(name)
        with contextlib.suppress(OSError, ValueError):
            if file is not None and file.is_file() and file.stat().st_size <= LARGEST:
                return file.read_text("utf-8").removeprefix("\ufeff")
        return ""

    def pyproject(self) -> dict[str, Any]:
        with contextlib.suppress(ValueError, RecursionError):
            return dict(toml.loads(self.text("pyproject.toml"))) if toml is not None else {}
        return {}

    def setup_cfg(self) -> dict[str, Any]:
        """Returns the values of setup.cfg by the names of the arguments of setup()."""
        parser = parsed(self.text("setup.cfg"))
        options, metadata, groups = (parser.get(one, {}) for one in ("options", "metadata", "options.entry_points"))
        found = {
            "name": metadata.get("name"),
            "version": metadata.get("version"),
            "package_dir": pairs(lines(options.get("package_dir", options.get("package-dir", "")))),
            "scripts": lines(options.get("scripts", "")),
            "entry_points": {group: lines(text) for group, text in groups.items()},
            "where": parser.get("options.packages.find", {}).get("where"),
        }
        return {name: value for name, value in found.items() if value}

    def setup_py(self) -> dict[str, Any]:
        """Returns the arguments of the call of setup() that are literals, or names of such."""
        source = Source(self.text("setup.py"))
        found: dict[str, Any] = {}
        for one in source.calls("setup"):
            for keyword in one.keywords:
                value = source.value(keyword.value)
                if keyword.arg is None and isinstance(value, dict):
                    found |= value
                elif keyword.arg == "packages" and (place := source.argument(keyword.value, "where")):
                    found["where"] = place
                elif keyword.arg is not None and value is not None:
                    found[keyword.arg] = value
        return found


class Source:
    """The literals in the text of a module."""

    def __init__(self, text: str) -> None:
        self.tree = ast.Module([], [])
        with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            self.tree = ast.parse(text)
        self.names = {name: node for statement in self.tree.body for name, node in assigned(statement)}
        imports = [one for one in self.tree.body if isinstance(one, ast.ImportFrom)]
        self.imported = {
            alias.asname or alias.name: (one.level, one.module or "", alias.name)
            for one in imports
            for alias in one.names
        }

    def calls(self, function: str) -> Iterator[ast.Call]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and function in (
                getattr(node.func, "id", ""),
                getattr(node.func, "attr", ""),
            ):
                yield node

    def value(self, node: ast.AST | None) -> Any:
        """Returns the literal, also by its name, or None for another expression."""
        for _ in range(DEEPEST):
            if not isinstance(node, ast.Name):
                break
            node = self.names.get(node.id)
        if node is None:
            return None
        with contextlib.suppress(ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            return ast.literal_eval(node)
        return None

    def argument(self, node: ast.AST, name: str) -> Any:
        """Returns the first argument of a call, or the one of this name."""
        if not isinstance(node, ast.Call):
            return None
        named = [one.value for one in node.keywords if one.arg == name]
        return self.value(next(iter([*node.args, *named]), None))


def assigned(statement: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(statement, ast.Assign):
        for target in statement.targets:
            if isinstance(target, ast.Name):
                yield target.id, statement.value
    elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
        yield statement.target.id, statement.value


class Versions:
    """Finds the version of a package where the settings of its build name it as text."""

    def __init__(self, files: Files, folders: tuple[Path, ...], links: Mapping[str, Path]) -> None:
        self._files, self._links = files, links
        self._folders = [*folders, files.root / "src", files.root]

    def version(self, declared: Mapping[str, Any], old: Mapping[str, Any], name: str) -> str:
        for one in self._candidates(declared, old, name):
            text = ".".join(map(str, one)) if isinstance(one, (list, tuple)) else str(one or "").strip()
            if VERSION.fullmatch(text):
                return text
        return STAND_IN

    def _candidates(self, declared: Mapping[str, Any], old: Mapping[str, Any], name: str) -> Iterator[Any]:
        tool = table(declared, "tool")
        yield table(declared, "project").get("version")
        yield table(tool, "poetry").get("version")
        yield from self._of_setuptools(table(tool, "setuptools", "dynamic", "version"), old.get("version"))
        for settings in (table(tool, "hatch", "version"), table(tool, "pdm", "version"), table(tool, "setuptools_scm"),
                         table(tool, "hatch", "build", "hooks", "vcs")):  # fmt: skip
            yield from self._of_files(settings)
        module = first_text([table(tool, "flit", "module").get("name"), table(tool, "flit", "metadata").get("module")])
        for package in dict.fromkeys([module, re.sub(r"[-.]+", "_", name), re.sub(r"[-.]+", "_", name).lower()]):
            for inner in MODULES_WITH_VERSIONS if package else ():
                yield self._attribute(f"{package}{inner}", "__version__")
        for settings in (table(tool, "setuptools_scm"), table(tool, "hatch", "version"),
                         table(tool, "hatch", "version", "raw-options")):  # fmt: skip
            yield settings.get("fallback_version") or settings.get("fallback-version")

    def _of_setuptools(self, dynamic: Mapping[str, Any], old: object) -> Iterator[Any]:
        given = dict(dynamic)
        if isinstance(old, str) and (found := re.fullmatch(r"(attr|file):\s*(\S+)", old)):
            given = {found[1]: found[2], **given}
        else:
            yield old
        module, _, attribute = str(given.get("attr", "")).rpartition(".")
        yield self._attribute(module, attribute) if attribute else None
        files = given.get("file")
        yield "".join(self._files.text(one) for one in (files if isinstance(files, list) else [files]))

    def _of_files(self, settings: Mapping[str, Any]) -> Iterator[str]:
        for key in ("path", "version_file", "version-file", "write_to"):
            text = self._files.text(settings.get(key))
            if found := ASSIGNED.search(text):
                yield found[1]
            yield from map(str, filter(None, [Source(text).value(Source(text).names.get("__version__"))]))

    def _attribute(self, module: str, attribute: str, depth: int = DEEPEST) -> Any:
        """Returns the literal value of a variable of a module, also of one that it imports from another one."""
        text, is_folder = self._module(module)
        source = Source(text)
        if attribute in source.names:
            return source.value(source.names[attribute])
        if attribute in source.imported and depth:
            level, other, name = source.imported[attribute]
            above = module.split(".")[: len(module.split(".")) - level + is_folder]
            return self._attribute(".".join([*(above if level else []), *filter(None, [other])]), name, depth - 1)
        return None

    def _module(self, module: str) -> tuple[str, bool]:
        if not module:
            return "", False
        top, _, rest = module.partition(".")
        places = [folder / module.replace(".", "/") for folder in self._folders]
        if top in self._links:
            places.insert(0, self._links[top] / rest.replace(".", "/"))
        for place in places:
            for file, is_folder in ((place / "__init__.py", True), (place.with_name(f"{place.name}.py"), False)):
                if text := self._files.text(str(file)):
                    return text, is_folder
        return "", False


def folders_of(
    files: Files, declared: Mapping[str, Any], old: Mapping[str, Any]
) -> tuple[tuple[Path, ...], dict[str, Path]]:
    """Returns the folders of modules, and the folders of packages with another name or at another place."""
    tool, folders, links = table(declared, "tool"), [], {}
    places = {**pairs(old.get("package_dir")), **table(tool, "setuptools", "package-dir")}
    for package, folder in places.items():
        if not package:
            folders.append(folder)
        elif package.isidentifier() and (found := files.inside(folder)):
            links[package] = found
    folders += texts(table(tool, "setuptools", "packages", "find").get("where"))
    folders += texts(old.get("where"))
    folders += [
        one["from"] for one in listed(table(tool, "poetry").get("packages")) if isinstance(one, dict) and "from" in one
    ]
    wheel = table(tool, "hatch", "build", "targets", "wheel")
    folders += [os.path.dirname(one) for one in texts(wheel.get("packages"))]  # noqa: PTH120 - of a text
    folders += [*texts(wheel.get("sources")), *texts(table(tool, "hatch", "build").get("sources"))]
    folders += texts(table(tool, "hatch", "build").get("dev-mode-dirs"))
    folders += [table(tool, "pdm", "build").get("package-dir"), table(tool, "uv", "build-backend").get("module-root")]
    found_folders = [found for one in folders if one and (found := files.inside(one)) and found.is_dir()]
    return tuple(dict.fromkeys(found_folders)), links


def points_of(declared: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Returns the entry points by their groups."""
    project, poetry = table(declared, "project"), table(declared, "tool", "poetry")
    flit = table(declared, "tool", "flit")
    groups = {**of_setup(old.get("entry_points")), **table(flit, "entrypoints"), **table(poetry, "plugins")}
    groups |= table(project, "entry-points")
    commands = [
        table(groups, "console_scripts"),
        table(flit, "scripts"),
        table(poetry, "scripts"),
        table(project, "scripts"),
    ]
    groups["console_scripts"] = {name: value for one in commands for name, value in one.items()}
    groups["gui_scripts"] = {**table(groups, "gui_scripts"), **table(project, "gui-scripts")}
    return {
        group: {name: value for name, value in named.items() if is_point(name, value)}
        for group, named in groups.items()
        if GROUP.fullmatch(group) and isinstance(named, dict)
    }


def is_point(name: str, value: object) -> bool:
    return bool(NAME.fullmatch(name) and isinstance(value, str) and POINT.fullmatch(value))


def of_setup(points: object) -> dict[str, dict[str, str]]:
    """Returns the entry points of setup(): a table of lines by their groups, or the text of an entry_points.txt."""
    if isinstance(points, str):
        return parsed(points)
    found = points if isinstance(points, dict) else {}
    return {
        str(group): pairs(lines(of_group) if isinstance(of_group, str) else of_group)
        for group, of_group in found.items()
    }


def parsed(text: str) -> dict[str, dict[str, str]]:
    """Returns the values of a text of sections, as setup.cfg and entry_points.txt are, by their sections and names.

    configparser searches each line with an expression whose time grows with the square of its length.
    """
    found: dict[str, dict[str, list[str]]] = {}
    section: dict[str, list[str]] | None = None
    value: list[str] | None = None
    depth = 0
    for line in text.split("\n"):
        content = line.strip()
        if not content or content[0] in "#;":
            continue
        own_depth = len(line) - len(line.lstrip())
        if value is not None and own_depth > depth:
            value.append(content)
            continue
        depth, value = own_depth, None
        header, is_header, _ = content[1:].rpartition("]")
        name, is_value, first = content.partition("=")
        if content[0] == "[" and is_header:
            section = found.setdefault(header, {})
        elif is_value and section is not None:
            value = section[name.strip()] = [first.strip()]
    return {title: {name: "\n".join(own) for name, own in named.items()} for title, named in found.items()}


def scripts_of(files: Files, declared: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, Path]:
    """Returns the commands that are files, by their names."""
    named = [*texts(old.get("scripts")), *texts(table(declared, "tool", "setuptools").get("script-files"))]
    paths: dict[str, object] = {os.path.basename(one): one for one in named}  # noqa: PTH119 - of a text
    for name, value in table(declared, "tool", "poetry", "scripts").items():
        if isinstance(value, dict) and value.get("type") == "file":
            paths[name] = value.get("reference")
    found = {name: files.inside(path) for name, path in paths.items() if NAME.fullmatch(name)}
    return {name: path for name, path in found.items() if path and path.is_file() and path.stat().st_size <= LARGEST}


def table(declared: Any, *names: str) -> dict[str, Any]:
    for name in names:
        declared = declared.get(name) if isinstance(declared, dict) else None
    return declared if isinstance(declared, dict) else {}


def listed(value: object) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []


def texts(value: object) -> list[str]:
    return [one for one in ([value] if isinstance(value, str) else listed(value)) if isinstance(one, str)]


def lines(text: object) -> list[str]:
    return [line.strip() for line in str(text).splitlines() if line.strip()]


def pairs(found: object) -> dict[str, str]:
    """Returns the table, or that of the lines "name = value"."""
    if isinstance(found, dict):
        return {str(name): str(value) for name, value in found.items()}
    parted = (line.partition("=") for line in texts(found))
    return {name.strip(): value.strip() for name, separator, value in parted if separator}


def first_text(found: Iterable[object]) -> str:
    return next((one for one in found if isinstance(one, str) and one), "")
