"""Which kind a project is, from its pyproject.toml and the names of its files (docs/projects.md)."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from windlass.errors import ProjectError
from windlass.projects.options import Options
from windlass_crewside.messages import Project

if TYPE_CHECKING:
    from pathlib import Path

CREW_PRELOAD = "crewai"
HOW = 'Add [tool.crewai] type = "crew" for a crew, or [tool.windlass] entrypoint = "module:function" for a function.'
NOT_YET = "Crews with a class that is decorated with @CrewBase, and functions, are."


@dataclass(frozen=True, slots=True)
class Recognised:
    """`preload` is what the zygote of such a project imports first, None for nothing."""

    project: Project
    preload: str | None
    name: str
    options: Options = field(default_factory=Options)


@dataclass(frozen=True, slots=True)
class Declared:
    """What a pyproject.toml says, table by table."""

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
    def name(self) -> str:
        return self.text("project", "name") or self.text("tool", "poetry", "name") or self.root.name


def recognise(path: Path) -> Recognised:
    """Raises ProjectError, in words, for what is no project or of a kind that is not served."""
    declared = read(path)
    options = Options.parse(declared.table("tool", "windlass"), declared.root / "pyproject.toml")
    return replace(kind_of(declared), options=options)


def kind_of(declared: Declared) -> Recognised:
    if entrypoint := declared.text("tool", "windlass", "entrypoint"):
        return function(declared, entrypoint)
    if chosen := declared.text("tool", "windlass", "crew"):
        return crew(declared, chosen)
    refuse_kinds_not_served(declared)
    if declared.text("tool", "crewai", "type") == "crew" or crew_scripts(declared):
        return crew(declared, find_crew(declared))
    raise ProjectError(f"{declared.root / 'pyproject.toml'} tells of no crew.", HOW)


def read(path: Path) -> Declared:
    root = path.resolve()
    if not root.is_dir():
        raise ProjectError(f"{root} is not a folder.", "Name the folder of a project, with its pyproject.toml.")
    file = root / "pyproject.toml"
    try:
        return Declared(root, tomllib.loads(file.read_text("utf-8")))
    except FileNotFoundError:
        refuse_kinds_not_served(Declared(root, {}))
        raise ProjectError(f"there is no pyproject.toml in {root}.", HOW) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ProjectError(f"{file} can't be read: {error}.") from None
    except OSError as error:
        raise ProjectError(f"{file} can't be read: {error.strerror}.") from None


def refuse_kinds_not_served(declared: Declared) -> None:
    definition = declared.text("tool", "crewai", "definition")
    files = [name for name in ("crew.jsonc", "crew.json") if (declared.root / name).is_file()]
    if declared.text("tool", "crewai", "type") == "flow":
        raise ProjectError(f"{declared.root} is a flow: this release of Windlass does not serve flows yet.", NOT_YET)
    if definition or files:
        raise ProjectError(
            f"{declared.root} declares its crew in {definition or files[0]}: "
            "this release of Windlass does not serve JSON crews yet.",
            NOT_YET,
        )


def function(declared: Declared, entrypoint: str) -> Recognised:
    if not re.fullmatch(r"[\w.]+:[\w.]+", entrypoint):
        raise ProjectError(f"the entrypoint {entrypoint!r} of {declared.root} is not of the form module:function.", HOW)
    preload = CREW_PRELOAD if depends_on_crewai(declared) else None
    return Recognised(Project("function", str(declared.root), entrypoint), preload, declared.name)


def crew(declared: Declared, entrypoint: str) -> Recognised:
    return Recognised(Project("crew", str(declared.root), entrypoint), CREW_PRELOAD, declared.name)


def depends_on_crewai(declared: Declared) -> bool:
    named = declared.table("project").get("dependencies", [])
    return any(re.match(r"crewai\b(?!-)", str(dependency)) for dependency in named) or bool(
        declared.table("tool", "poetry", "dependencies").get("crewai")
    )


def crew_scripts(declared: Declared) -> list[str]:
    """Packages of the commands that crewai's own templates declare: run_crew = "package.main:run"."""
    scripts = declared.table("project", "scripts") | declared.table("tool", "poetry", "scripts")
    return [str(target).partition(":")[0].rpartition(".")[0] for name, target in scripts.items() if name == "run_crew"]


def find_crew(declared: Declared) -> str:
    """The module of the crew: crew.py in the package that the project names, else the only one that there is."""
    named = [*crew_scripts(declared), re.sub(r"\W", "_", declared.name)]
    for package in filter(None, named):
        if any((folder / package.replace(".", "/") / "crew.py").is_file() for folder in source_folders(declared.root)):
            return f"{package}.crew"
    return only_crew_file(declared, named)


def only_crew_file(declared: Declared, named: list[str]) -> str:
    found = sorted({module for folder in source_folders(declared.root) for module in crew_modules(folder)})
    if len(found) == 1:
        return found[0]
    if found:
        choice = f'[tool.windlass] crew = "{found[0]}"'
        raise ProjectError(
            f"{declared.root} has more than one crew: {', '.join(found)}.", f"Choose one in pyproject.toml: {choice}"
        )
    looked = " and ".join(f"{package.replace('.', '/')}/crew.py" for package in dict.fromkeys(filter(None, named)))
    raise ProjectError(
        f"no crew found in {declared.root}: looked for {looked}, there and in src.",
        'Name its module in pyproject.toml: [tool.windlass] crew = "package.module:Class"',
    )


def source_folders(root: Path) -> tuple[Path, ...]:
    return (root / "src", root)


def crew_modules(folder: Path) -> list[str]:
    flat = ["crew"] if (folder / "crew.py").is_file() else []
    packages = [path.parent.name for path in folder.glob("*/crew.py")]
    return flat + [
        f"{package}.crew" for package in packages if package.isidentifier() and package not in {"src", "tests"}
    ]
