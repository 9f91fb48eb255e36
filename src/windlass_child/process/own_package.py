"""Makes the project itself a package of its run: its metadata, its commands and entry points, and `python -m`.

A package manager does so by installing the project. The environment of a deployed project is shared with others, so
each run gets a small environment of its own, in its folder. It has what pyproject.toml declares, and finds all packages
of the shared one. Nothing is built: a version that only a build finds is missing.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from windlass_child.process.error_text import EXECUTABLE, plain

SITES = ("site-packages", "dist-packages")
LARGEST = 1 << 20
NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
VERSION = re.compile(r"[A-Za-z0-9.!+_-]+")
TARGET = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_][\w.]*)")
GROUP = re.compile(r"[\w.-]+")
MINOR = f"python{sys.version_info[0]}.{sys.version_info[1]}"
SCRIPT = """#!/bin/sh
'''exec' "{python}" "$0" "$@"
' '''
import sys
from {module} import {name}
sys.exit({function}())
"""
"""A command. The path of an interpreter in the first line of a file could be too long."""

toml: Any = None
with contextlib.suppress(ImportError):  # Python 3.10 has no reader of TOML; frameworks bring this one
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
_entered: list[str] = []
"""The entry of sys.path of this process."""


def variables(root: str, folder: str, given: dict[str, str]) -> dict[str, str]:
    """Returns the variables of a run with the environment of its project in `folder`. Adds its metadata to sys.path.

    Returns them unchanged for a project that is no package, or that is installed already.
    """
    sys.executable = EXECUTABLE
    if not make(root, folder):
        return given
    python, site = f"{folder}/bin/python", f"{folder}/lib/{MINOR}/site-packages"
    sys.path[:] = [*(entry for entry in sys.path if entry not in _entered), site]
    _entered[:] = [site]
    sys.executable = python
    return {**given, "PATH": f"{folder}/bin{os.pathsep}{given['PATH']}", "VIRTUAL_ENV": folder}


def make(root: str, folder: str) -> bool:
    """Writes the environment. Returns whether there is one."""
    declared = document(Path(root, "pyproject.toml"))
    name, version, points = declared_in(declared)
    if not is_package(declared) or not NAME.fullmatch(name):
        return False
    sites = [entry for entry in sys.path if entry.rpartition("/")[2] in SITES and entry not in _entered]
    if any(is_installed(name, site) for site in sites):
        return False
    try:
        write(Path(folder), root, sites, name, version, points)
    except OSError:  # for example a full disk: the run may do without
        return False
    return True


def document(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text("utf-8") if toml is not None and file.stat().st_size <= LARGEST else ""
        return dict(toml.loads(text)) if "build-system" in text or "package" in text else {}
    except (OSError, ValueError, RecursionError):
        return {}


def table(declared: Any, *names: str) -> dict[str, Any]:
    for name in names:
        declared = declared.get(name) if isinstance(declared, dict) else None
    return declared if isinstance(declared, dict) else {}


def is_package(declared: dict[str, Any]) -> bool:
    """Returns whether uv or poetry would install the project itself."""
    of_uv = table(declared, "tool", "uv").get("package")
    if of_uv is False or table(declared, "tool", "poetry").get("package-mode") is False:
        return False
    return of_uv is True or bool(table(declared, "build-system"))


def declared_in(declared: dict[str, Any]) -> tuple[str, str, dict[str, dict[str, str]]]:
    """Returns the name, the version ("" if only a build finds it), and the entry points by their groups."""
    project, poetry = table(declared, "project"), table(declared, "tool", "poetry")
    groups = {**table(poetry, "plugins"), **table(project, "entry-points")}
    groups["console_scripts"] = {**table(poetry, "scripts"), **table(project, "scripts")}
    groups["gui_scripts"] = table(project, "gui-scripts")
    points = {
        group: {name: value for name, value in named.items() if is_point(name, value)}
        for group, named in groups.items()
        if GROUP.fullmatch(group) and isinstance(named, dict)
    }
    name, version = (str(project.get(key) or poetry.get(key) or "") for key in ("name", "version"))
    return name, version if VERSION.fullmatch(version) else "", points


def is_point(name: str, value: object) -> bool:
    return bool(NAME.fullmatch(name) and isinstance(value, str) and re.fullmatch(r"[\w.:\[\], -]+", value))


def is_installed(name: str, site: str) -> bool:
    with contextlib.suppress(OSError):
        with os.scandir(site) as entries:
            names = [entry.name for entry in entries if entry.name.endswith((".dist-info", ".egg-info"))]
        return any(plain(one.partition("-")[0]) == plain(name) for one in names)
    return False


def write(
    folder: Path, root: str, sites: list[str], name: str, version: str, points: dict[str, dict[str, str]]
) -> None:
    site, base = folder / "lib" / MINOR / "site-packages", Path(getattr(sys, "_base_executable", EXECUTABLE))
    site.mkdir(parents=True)
    (folder / "bin").mkdir()
    for link in ("python", "python3", MINOR):
        (folder / "bin" / link).symlink_to(base)
    settings = f"home = {base.parent}\ninclude-system-site-packages = false\n"
    (folder / "pyvenv.cfg").write_text(settings, "utf-8")
    own = [str(place) for place in (Path(root, "src"), Path(root)) if place.is_dir()]
    lines = [*(f"import site; site.addsitedir({one!r})" for one in sites), *own]
    (site / "project.pth").write_text("\n".join(lines) + "\n", "utf-8")
    if version:
        metadata = site / f"{plain(name).replace('-', '_')}-{version}.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", "utf-8")
        listed = [line for group, named in points.items() if named for line in section(group, named)]
        (metadata / "entry_points.txt").write_text("\n".join(listed) + "\n", "utf-8")
    for command, value in {**points["console_scripts"], **points.get("gui_scripts", {})}.items():
        if (target := TARGET.fullmatch(value)) and not command.startswith("python"):
            module, function = target[1], target[2]
            script = folder / "bin" / command
            text = SCRIPT.format(
                python=folder / "bin" / "python", module=module, name=function.partition(".")[0], function=function
            )
            script.write_text(text, "utf-8")
            script.chmod(0o755)


def section(group: str, named: dict[str, str]) -> list[str]:
    return [f"[{group}]", *(f"{name} = {value}" for name, value in named.items())]
