"""Makes a wheel that installs a project by its path: its metadata, its commands, and its folders on `sys.path`.

A process of the builder runs the text of this file, because builds of a project run code of others, and their results
are read here. It may run on an older Python than Windlass, and imports the standard library alone:

    PYTHON -I -c TEXT copy PROJECT COPY       copies the files from which the build makes a wheel
    PYTHON -I -c TEXT wheel FOLDER PROJECT    replaces the modules of the wheel in FOLDER by the folders of PROJECT

The second form keeps modules of the wheel that are in no such folder, for example those that the build moves or
generates.
"""

from __future__ import annotations

import shutil
import sys
import zipfile
from pathlib import Path

LARGEST_FILE = 32 << 20
"""Bytes of a file that is copied. Larger ones, such as models, are no part of a package."""
LARGEST_WHEEL = 256 << 20
LEFT_OUT = {"__pycache__", "build", "dist", "env", "node_modules", "venv"}
KEPT = {".gitignore", ".git_archival.txt", ".gitattributes"}


def copy(project: Path, target: Path) -> None:
    """Copies the files of the project without environments, caches, variables and links."""

    def left_out(folder: str, names: list[str]) -> list[str]:
        return [name for name in names if is_left_out(Path(folder, name))]

    shutil.copytree(project, target, ignore=left_out)


def is_left_out(path: Path) -> bool:
    if path.name in LEFT_OUT or (path.name.startswith(".") and path.name not in KEPT) or path.is_symlink():
        return True
    return not path.is_dir() and (not path.is_file() or path.stat().st_size > LARGEST_FILE)


def with_paths(folder: Path, project: Path) -> None:
    (built,) = folder.glob("*.whl")
    places = [place for place in (project / "src", project) if place.is_dir()]
    with zipfile.ZipFile(built) as wheel:
        if sum(one.file_size for one in wheel.infolist()) > LARGEST_WHEEL:
            sys.exit("error: the wheel of the project is too large")
        modules = {name for name in wheel.namelist() if not name.partition("/")[0].endswith((".dist-info", ".data"))}
        used = {name: found_in(name, places) for name in modules}
        kept = [name for name in wheel.namelist() if not used.get(name) and not is_record(name)]
        (metadata,) = {name.partition("/")[0] for name in kept if ".dist-info/" in name}
        paths = [str(place) for place in places if place in used.values()]
        files = {name: wheel.read(name) for name in kept if not name.endswith("/")}
    files[f"{metadata.partition('-')[0]}.path.pth"] = "".join(f"{path}\n" for path in paths).encode()
    files[f"{metadata}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{metadata}/RECORD"]).encode()
    with zipfile.ZipFile(built, "w") as made:
        for name, content in files.items():
            made.writestr(name, content)


def found_in(name: str, places: list[Path]) -> Path | None:
    """Returns the first of the folders that has the module, or the top package of the module, of this file."""
    return next((place for place in places if (place / name.partition("/")[0]).exists()), None)


def is_record(name: str) -> bool:
    return name.endswith((".dist-info/RECORD", ".dist-info/RECORD.jws", ".dist-info/RECORD.p7s"))


if __name__ == "__main__":
    work = {"copy": copy, "wheel": with_paths}[sys.argv[1]]
    work(Path(sys.argv[2]), Path(sys.argv[3]))
