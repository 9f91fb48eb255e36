"""Recognises the kind of a project from its pyproject.toml and the names of its files (docs/projects.md)."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from windlass.errors import ProjectError
from windlass.projects.options import Options
from windlass_child.process.messages import Project

if TYPE_CHECKING:
    from pathlib import Path

CREW_PRELOAD = "crewai"
HOW = (
    'Add [tool.crewai] type = "crew" for a crew, type = "flow" for a flow, '
    'or [tool.windlass] entrypoint = "module:function" for a function.'
)
BYTE_ORDER_MARK = "\ufeff"
CREW_FILES = ("crew.jsonc", "crew.json")
CHOICES = {"entrypoint": "module:function", "crew": "module or module:Class", "flow": "module or module:Class"}
"""Options of [tool.windlass] that name the entrypoint, and their forms. If there are several, the first is used."""

NAME = r"\w+(?:\.\w+)*"
DEFINITIONS = {"crew": (".jsonc", ".json"), "flow": (".yaml", ".yml", ".json")}
"""The file name endings of declarations."""


@dataclass(frozen=True, slots=True)
class Recognised:
    """A recognised project. `preload` is the package that its zygote imports first, or None."""

    project: Project
    preload: str | None
    name: str
    options: Options = field(default_factory=Options)


@dataclass(frozen=True, slots=True)
class Declared:
    """The contents of a pyproject.toml."""

    root: Path
    document: dict[str, Any]

    def table(self, *names: str) -> dict[str, Any]:
        found: Any = self.document
        for name in names:
            found = found.get(name, {}) if isinstance(found, dict) else {}
        return found if isinstance(found, dict) else {}

    def text(self, *names: str) -> str | None:
        value = self.table(*names[:-1]).get(names[-1])
        return value if isinstance(value, str) and value else None

    @property
    def choices(self) -> list[tuple[str, str]]:
        """The options of CHOICES that are set, in the order of CHOICES."""
        return [(name, value) for name in CHOICES if (value := self.text("tool", "windlass", name))]

    @property
    def name(self) -> str:
        return self.text("project", "name") or self.text("tool", "poetry", "name") or self.root.name


def recognise(path: Path) -> Recognised:
    """Recognises the project in a folder. Raises ProjectError, with a message for users, if there is none."""
    declared = read(path)
    options = Options.parse(declared.table("tool", "windlass"), declared.root / "pyproject.toml")
    return replace(kind_of(declared), options=options)


def kind_of(declared: Declared) -> Recognised:
    if declared.choices:
        return chosen(declared, *declared.choices[0])
    if definition := declaration(declared):
        return of_kind("declarative_flow" if is_flow(declared) else "json_crew", declared, definition)
    if is_flow(declared):
        return of_kind("flow", declared, find_flow(declared))
    kind = declared.text("tool", "crewai", "type")
    if kind == "crew" or crew_scripts(declared):
        return of_kind("crew", declared, find_crew(declared))
    other = f": [tool.crewai] type is {kind!r}, which is neither crew nor flow" if kind else ""
    raise ProjectError(f"{declared.root / 'pyproject.toml'} declares no crew{other}.", HOW)


def read(path: Path) -> Declared:
    root = path.resolve()
    if not root.is_dir():
        raise ProjectError(f"{root} is not a folder.", "Name the folder of a project, with its pyproject.toml.")
    file = root / "pyproject.toml"
    try:
        text = file.read_text("utf-8")
        if text.startswith(BYTE_ORDER_MARK):
            raise ProjectError(
                f"{file} begins with a byte order mark, which TOML has not.", "Save it as UTF-8 without."
            )
        return Declared(root, tomllib.loads(text))
    except FileNotFoundError:
        if any((root / name).is_file() for name in CREW_FILES):
            return Declared(root, {})
        raise ProjectError(f"there is no pyproject.toml in {root}.", HOW) from None
    except RecursionError:
        raise ProjectError(f"{file} can't be read: its values are too deep in one another.") from None
    except ValueError as error:  # no TOML, no UTF-8, or a number of too many digits
        raise ProjectError(f"{file} can't be read: {error}.") from None
    except OSError as error:
        raise ProjectError(f"{file} can't be read: {error.strerror}.") from None


def declaration(declared: Declared) -> str | None:
    """Returns the path, in the project, of the file that declares its crew or flow. Returns None for one in Python."""
    kind = "flow" if is_flow(declared) else "crew"
    named = declared.text("tool", "crewai", "definition")
    if named is None:
        if kind == "flow" or crew_scripts(declared):
            return None
        return next((name for name in CREW_FILES if (declared.root / name).is_file()), None)
    how = f'[tool.crewai] definition = "{named}" in {declared.root / "pyproject.toml"}'
    try:
        path = (declared.root / named).resolve()
    except (OSError, ValueError) as error:  # for example a NUL character in the path
        raise ProjectError(f"{how} is no path: {error}.", "Name a file in it, by its path from there.") from None
    if not path.is_relative_to(declared.root):
        raise ProjectError(f"{how} is not in the project.", "Name a file in it, by its path from there.")
    if not is_file(path):
        raise ProjectError(f"{how} names no file.", "Make it, or name the one that there is.")
    if path.suffix not in DEFINITIONS[kind]:
        endings = " or ".join(DEFINITIONS[kind])
        raise ProjectError(f"{how} names no file that declares a {kind}.", f"Name one that ends in {endings}.")
    return path.relative_to(declared.root).as_posix()


def is_flow(declared: Declared) -> bool:
    return declared.text("tool", "crewai", "type") == "flow"


def chosen(declared: Declared, choice: str, entrypoint: str) -> Recognised:
    behind = f":{NAME}" if choice == "entrypoint" else f"(?::{NAME})?"
    if not re.fullmatch(f"{NAME}{behind}", entrypoint):
        form = CHOICES[choice]
        raise ProjectError(f"the {choice} {entrypoint!r} of {declared.root} is not of the form {form}.", HOW)
    if choice != "entrypoint":
        return of_kind(choice, declared, entrypoint)
    preload = CREW_PRELOAD if depends_on_crewai(declared) else None
    return Recognised(Project("function", str(declared.root), entrypoint), preload, declared.name)


def of_kind(kind: str, declared: Declared, entrypoint: str) -> Recognised:
    """Returns a project of a kind that runs with crewai."""
    return Recognised(Project(kind, str(declared.root), entrypoint), CREW_PRELOAD, declared.name)


def depends_on_crewai(declared: Declared) -> bool:
    named = declared.table("project").get("dependencies")
    dependencies = named if isinstance(named, list) else []
    return any(re.match(r"crewai\b(?!-)", str(dependency)) for dependency in dependencies) or bool(
        declared.table("tool", "poetry", "dependencies").get("crewai")
    )


def crew_scripts(declared: Declared) -> list[str]:
    """Returns the packages of the commands that crewai's own templates declare: run_crew = "package.main:run"."""
    return [module.rpartition(".")[0] for module in scripts(declared, "run_crew")]


def scripts(declared: Declared, command: str) -> list[str]:
    """Returns the module of the command with this name, in a list, or [] if there is none."""
    named = declared.table("project", "scripts") | declared.table("tool", "poetry", "scripts")
    module = str(named.get(command, "")).partition(":")[0]
    return [module] if re.fullmatch(NAME, module) else []


def find_crew(declared: Declared) -> str:
    """Returns the module of the crew: crew.py in the package that the project names, or else the only crew.py."""
    named = [*crew_scripts(declared), package_named(declared)]
    return found_module(declared, "crew", [f"{package}.crew" for package in named if package])


def find_flow(declared: Declared) -> str:
    """Returns the module of the flow: that of the command `kickoff`, or else main.py, by the same rule as crew.py."""
    named = [*scripts(declared, "kickoff"), f"{package_named(declared)}.main"]
    return found_module(declared, "flow", named)


def package_named(declared: Declared) -> str:
    return re.sub(r"\W", "_", declared.name)


def found_module(declared: Declared, kind: str, named: list[str]) -> str:
    """Returns the first of these modules that exists, or else the only module with the same file name.

    Raises ProjectError for none and for several.
    """
    folders = source_folders(declared.root)
    for module in named:
        if any(is_file(folder / file_of(module)) for folder in folders):
            return module
    file = file_of(named[-1]).rpartition("/")[2]
    found = sorted({module for folder in folders for module in modules_at(folder, file)})
    if len(found) == 1:
        return found[0]
    raise not_one(declared, kind, named, found)


def not_one(declared: Declared, kind: str, named: list[str], found: list[str]) -> ProjectError:
    if found:
        return ProjectError(
            f"{declared.root} has more than one {kind}: {', '.join(found)}.",
            f'Choose one in pyproject.toml: [tool.windlass] {kind} = "{found[0]}"',
        )
    looked = " and ".join(dict.fromkeys(map(file_of, named)))
    return ProjectError(
        f"no {kind} found in {declared.root}: looked for {looked}, there and in src.",
        f'Name its module in pyproject.toml: [tool.windlass] {kind} = "package.module:Class"',
    )


def is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # for example a name that is too long, or a folder without permission to read
        return False


def file_of(module: str) -> str:
    return f"{module.replace('.', '/')}.py"


def source_folders(root: Path) -> tuple[Path, ...]:
    return (root / "src", root)


def modules_at(folder: Path, file: str) -> list[str]:
    """Returns the modules in files of this name, in the folder and in the packages in it."""
    name = file.removesuffix(".py")
    flat = [name] if (folder / file).is_file() else []
    packages = [path.parent.name for path in folder.glob(f"*/{file}")]
    return flat + [
        f"{package}.{name}" for package in packages if package.isidentifier() and package not in {"src", "tests"}
    ]
