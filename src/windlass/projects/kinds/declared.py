"""Reads a project's pyproject.toml, and finds the modules that it may mean."""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from windlass.errors import ProjectError
from windlass.projects.kinds.code import Code

FILE = "pyproject.toml"
REQUIREMENTS = "requirements.txt"
LARGEST = 1 << 20
"""Bytes of a pyproject.toml."""
NEAREST = 8
"""The number of folders above a file that are searched for those two."""
NAME = r"\w+(?:\.\w+)*"
"""Matches the name of a module, and of an attribute of one."""


class Unrecognised(ProjectError):  # noqa: N818 - describes the project
    """No kind fits the project, or its entrypoint can't be found. `code` is that of its finding."""

    def __init__(self, message: str, hint: str, code: str = "no_crew") -> None:
        super().__init__(message, hint)
        self.code = code


@dataclass(frozen=True)
class Declared:
    """The folder of a project, and the contents of its pyproject.toml, which may be missing.

    `target` is the file and the object in it that the command line names; either may be None. `folder` is the name of
    the folder, if it is not that of `root`.
    """

    root: Path
    document: dict[str, Any]
    target: tuple[str | None, str | None] | None = None
    folder: str | None = None

    @cached_property
    def code(self) -> Code:
        return Code(self.root)

    @property
    def file(self) -> Path:
        return self.root / FILE

    def table(self, *names: str) -> dict[str, Any]:
        found: Any = self.document
        for name in names:
            found = found.get(name, {}) if isinstance(found, dict) else {}
        return found if isinstance(found, dict) else {}

    def text(self, *names: str) -> str | None:
        value = self.table(*names[:-1]).get(names[-1])
        return value if isinstance(value, str) and value else None

    @property
    def name(self) -> str:
        return self.text("project", "name") or self.text("tool", "poetry", "name") or self.folder or self.root.name

    @property
    def package(self) -> str:
        """The package that is named as the project."""
        return re.sub(r"\W", "_", self.name)

    def script(self, command: str) -> str | None:
        """Returns the module of the command with this name, or None if there is none."""
        found = self.scripts.get(command)
        return found[0] if found else None

    @property
    def scripts(self) -> dict[str, tuple[str, str]]:
        """The module and the function of each command."""
        named = self.table("project", "scripts") | self.table("tool", "poetry", "scripts")
        parts = {command: str(target).partition(":") for command, target in named.items()}
        return {
            command: (module, function)
            for command, (module, _, function) in parts.items()
            if re.fullmatch(NAME, module)
        }

    @property
    def has_dependencies(self) -> bool:
        return bool(self.table("project").get("dependencies") or self.table("tool", "poetry", "dependencies"))

    def depends_on(self, package: str) -> bool:
        named = self.table("project").get("dependencies")
        dependencies = named if isinstance(named, list) else []
        return any(re.match(rf"{package}\b(?!-)", str(dependency)) for dependency in dependencies) or bool(
            self.table("tool", "poetry", "dependencies").get(package)
        )

    def only_module(self, kind: str, named: list[str]) -> str:
        """Returns the first of these modules that exists, or else the only module with the same file name.

        Raises Unrecognised for none and for several.
        """
        folders = (self.root / "src", self.root)
        for module in named:
            if any(is_file(folder / file_of(module)) for folder in folders):
                return module
        file = file_of(named[-1]).rpartition("/")[2]
        found = sorted({module for folder in folders for module in modules_at(folder, file)})
        if len(found) > 1:
            raise Unrecognised(
                f"{self.root} has more than one {kind}: {', '.join(found)}.",
                f'Choose one in pyproject.toml: [tool.windlass] {kind} = "{found[0]}"',
                "several_crews",
            )
        if not found:
            looked = " and ".join(dict.fromkeys(map(file_of, named)))
            raise Unrecognised(
                f"no {kind} found in {self.root}: looked for {looked}, there and in src.",
                f'Name its module in pyproject.toml: [tool.windlass] {kind} = "package.module:Class"',
            )
        return found[0]


def read(path: Path) -> Declared:
    """Reads the pyproject.toml of a project. Raises ProjectError if it can't be read, but not if it is missing.

    `path` is its folder or a Python file in it, and may end in ":object".
    """
    root, target = placed(path)
    file = root / FILE
    try:
        return Declared(root, tomllib.loads(text_of(file)), target)
    except FileNotFoundError:
        return Declared(root, {}, target)
    except RecursionError:
        raise ProjectError(f"{file} can't be read: its values are too deep in one another.") from None
    except ValueError as error:  # no TOML, no UTF-8, or a number of too many digits
        raise ProjectError(f"{file} can't be read: {error}.") from None
    except OSError as error:
        raise ProjectError(f"{file} can't be read: {error.strerror}.") from None


def text_of(file: Path) -> str:
    """Returns the text without a byte order mark, which uv ignores too.

    Raises ValueError for a file that is too large, and OSError for one that can't be opened.
    """
    with open(file, "rb", opener=_opened) as opened:
        content = opened.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise ValueError(f"it is larger than {LARGEST >> 20} MB")
    return content.decode("utf-8").removeprefix("\ufeff")


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # the open of a pipe would wait for its writer


def target_of(entrypoint: str) -> tuple[str | None, str | None]:
    """Returns the file and the object of FILE.py, FILE.py:NAME, MODULE:NAME or NAME. Either may be None."""
    file, _, name = entrypoint.partition(":")
    return (PurePosixPath(file).as_posix(), name or None) if file.endswith(".py") else (None, entrypoint)


def folder_of(path: Path) -> Path:
    """Returns the folder of the project that `path` names. Raises ProjectError if there is none."""
    return placed(path)[0]


def placed(path: Path) -> tuple[Path, tuple[str | None, str | None] | None]:
    """Returns the folder of the project, and the target: a file in it and an object, or None for the whole folder."""
    text, name = parted(path)
    place = Path(text).resolve()
    if place.is_dir():
        return place, (None, name) if name else None
    if place.suffix != ".py" or not is_file(place):
        message = f"{place} is not a folder." if place.suffix != ".py" else f"there is no file {place}."
        raise ProjectError(message, "Name the folder of a project, or a Python file: crew.py, or crew.py:object.")
    root = root_of(place)
    return root, (place.relative_to(root).as_posix(), name or None)


def parted(path: Path) -> tuple[str, str]:
    """Returns the path of the folder or file, and the object after it. The path may have colons itself."""
    parts = str(path).split(":")
    cuts = [(":".join(parts[:number]), ":".join(parts[number:])) for number in range(len(parts), 0, -1)]
    return next((cut for cut in cuts if cut[0] and Path(cut[0]).exists()), cuts[-1])


def root_of(file: Path) -> Path:
    """Returns the folder of the project that a file is in: the nearest one with pyproject.toml or requirements.txt.

    Without one, or if the file is no module of that project, it is the folder of the file's package.
    """
    package = next(folder for folder in file.parents if not is_file(folder / "__init__.py"))
    for folder in file.parents[:NEAREST]:
        if is_file(folder / FILE) or is_file(folder / REQUIREMENTS):
            return folder if Code(folder).module_of(file.relative_to(folder).as_posix()) else package
    return package


def is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # for example a name that is too long, or a folder without permission to read
        return False


def file_of(module: str) -> str:
    return f"{module.replace('.', '/')}.py"


def modules_at(folder: Path, file: str) -> list[str]:
    """Returns the modules in files of this name, in the folder and in the packages in it."""
    name = file.removesuffix(".py")
    flat = [name] if (folder / file).is_file() else []
    packages = [path.parent.name for path in folder.glob(f"*/{file}")]
    return flat + [
        f"{package}.{name}" for package in packages if package.isidentifier() and package not in {"src", "tests"}
    ]
