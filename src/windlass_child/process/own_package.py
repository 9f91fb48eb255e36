"""Makes the project itself a package of its run: its metadata, its commands and entry points, and `python -m`.

A package manager does so by installing the project, for which it runs the code of a build. The environment of a
deployed project is shared with others, too. So each run gets a small environment of its own, in its folder. It has what
the files of the project declare (declared_package), and finds all packages of the shared one.
"""

# See docs/decisions/child.md#a-project-that-is-a-package-is-declared-in-each-run

from __future__ import annotations

import contextlib
import os
import re
import sys
from pathlib import Path

from windlass_child.process.declared_package import OwnPackage, package_in
from windlass_child.process.error_text import EXECUTABLE, plain

SITES = ("site-packages", "dist-packages")
TARGET = re.compile(r"([A-Za-z_][\w.]*)\s*:\s*([A-Za-z_][\w.]*)(?:\s*\[[\w, .-]*\])?")
MINOR = f"python{sys.version_info[0]}.{sys.version_info[1]}"
STARTED = """#!/bin/sh
'''exec' "{python}" "$0" "$@"
' '''
"""
"""The first lines of a command. The path of an interpreter in the first line could be too long."""
CALLED = """import sys
from {module} import {name}
sys.exit({function}())
"""

_entered: list[str] = []
"""The entries of sys.path of this process."""


def variables(root: str, folder: str, given: dict[str, str]) -> dict[str, str]:
    """Returns the variables of a run with the environment of its project in `folder`. Adds its modules and its metadata
    to sys.path.

    Returns them unchanged for a project that is no package, or that is installed already.
    """
    sys.executable = EXECUTABLE
    entries = made(root, folder)
    sys.path[:] = [*(entry for entry in sys.path if entry not in _entered), *entries]
    _entered[:] = entries
    if not entries:
        return given
    sys.executable = f"{folder}/bin/python"
    return {**given, "PATH": f"{folder}/bin{os.pathsep}{given['PATH']}", "VIRTUAL_ENV": folder}


def made(root: str, folder: str) -> list[str]:
    """Makes the environment. Returns the entries of sys.path for it, none without an environment."""
    sites = [entry for entry in sys.path if entry.rpartition("/")[2] in SITES and entry not in _entered]
    try:
        package = package_in(Path(root))
        if package is None or any(is_installed(package.name, site) for site in sites):
            return []
        write(Path(folder), root, sites, package)
    except (OSError, ValueError):  # a full disk, or a number or a text that no file can hold: the run may do without
        return []
    known = [entry for entry in sys.path if entry not in _entered]
    return [f"{folder}/lib/{MINOR}/site-packages", *(one for one in map(str, package.folders) if one not in known)]


def is_installed(name: str, site: str) -> bool:
    with contextlib.suppress(OSError):
        with os.scandir(site) as entries:
            names = [entry.name for entry in entries if entry.name.endswith((".dist-info", ".egg-info"))]
        return any(plain(one.partition("-")[0]) == plain(name) for one in names)
    return False


def write(folder: Path, root: str, sites: list[str], package: OwnPackage) -> None:
    site, base = folder / "lib" / MINOR / "site-packages", Path(getattr(sys, "_base_executable", EXECUTABLE))
    site.mkdir(parents=True)
    (folder / "bin").mkdir()
    for link in ("python", "python3", MINOR):
        (folder / "bin" / link).symlink_to(base)
    settings = f"home = {base.parent}\ninclude-system-site-packages = false\n"
    (folder / "pyvenv.cfg").write_text(settings, "utf-8")
    own = [str(place) for place in (*package.folders, Path(root, "src"), Path(root)) if place.is_dir()]
    lines = [*(f"import site; site.addsitedir({one!r})" for one in sites), *dict.fromkeys(own)]
    (site / "project.pth").write_text("\n".join(lines) + "\n", "utf-8")
    for name, place in package.links.items():
        (site / name).symlink_to(place)
    write_metadata(site, package)
    write_commands(folder / "bin", package)


def write_metadata(site: Path, package: OwnPackage) -> None:
    metadata = site / f"{plain(package.name).replace('-', '_')}-{package.version}.dist-info"
    metadata.mkdir()
    text = f"Metadata-Version: 2.1\nName: {package.name}\nVersion: {package.version}\n"
    (metadata / "METADATA").write_text(text, "utf-8")
    listed = [line for group, named in package.points.items() if named for line in section(group, named)]
    (metadata / "entry_points.txt").write_text("\n".join(listed) + "\n", "utf-8")


def section(group: str, named: dict[str, str]) -> list[str]:
    return [f"[{group}]", *(f"{name} = {value}" for name, value in named.items())]


def write_commands(folder: Path, package: OwnPackage) -> None:
    started = STARTED.format(python=folder / "python")
    for command, value in {**package.points["gui_scripts"], **package.points["console_scripts"]}.items():
        if target := TARGET.fullmatch(value):
            module, function = target[1], target[2]
            called = CALLED.format(module=module, name=function.partition(".")[0], function=function)
            write_command(folder / command, started + called)
    for command, file in package.scripts.items():
        text = file.read_text("utf-8", "surrogateescape")
        first, _, rest = text.partition("\n")
        write_command(folder / command, started + rest if first.startswith("#!") and "python" in first else text)


def write_command(file: Path, text: str) -> None:
    if not os.path.lexists(file):
        file.write_text(text, "utf-8", "surrogateescape")
        file.chmod(0o755)
