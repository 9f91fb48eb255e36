"""Recognises the kinds of projects that crewai runs: crews and flows, in Python and as declarations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.projects.kinds import crew_files
from windlass.projects.kinds.choice import Choice
from windlass.projects.kinds.declared import Unrecognised, is_file
from windlass.projects.kinds.json_crew import file_findings
from windlass.projects.kinds.kind import EntrypointOption, Kind

if TYPE_CHECKING:
    from windlass.projects.kinds.declared import Declared

FRAMEWORK = "crewai"
PACKAGES = (FRAMEWORK, "crewai_tools")
CREW_FILES = ("crew.jsonc", "crew.json")
DEFINITIONS = {"crew": (".jsonc", ".json"), "flow": (".yaml", ".yml", ".json")}
"""The file name endings of declarations."""

AS_CREW, AS_FLOW = ('[tool.crewai] type = "crew" for a crew', '[tool.crewai] type = "flow" for a flow')


def framework(_: Declared) -> str:
    return FRAMEWORK


def crew(declared: Declared) -> str | None:
    """Returns the crew in the project's code: "module", or "module:object"."""
    if is_flow(declared) or json_crew(declared):
        return None
    kind = type_of(declared)
    if kind not in {None, "crew"}:
        raise Unrecognised(
            f"{declared.file} declares no crew: [tool.crewai] type is {kind!r}, which is neither crew nor flow.",
            f"Write {AS_CREW}, or {AS_FLOW}.",
        )
    template = template_package(declared)
    packages = [*([] if template is None else [template]), declared.package]
    modules = [f"{package}.crew" for package in packages if package]
    return in_code(declared, "crew", modules if kind or template is not None else [])


def flow(declared: Declared) -> str | None:
    """Returns the flow in the project's code: "module", or "module:object"."""
    if definition(declared) or json_crew(declared) or type_of(declared) not in {None, "flow"}:
        return None
    scripts = [module for name in ("kickoff", "run_crew") if (module := declared.script(name))]
    return in_code(declared, "flow", [*scripts, f"{declared.package}.main"] if is_flow(declared) else [])


def function(declared: Declared) -> str | None:
    """Returns the function in the project's code that runs a crew, if there is neither a crew nor a flow."""
    if type_of(declared) is not None or json_crew(declared):
        return None
    return in_code(declared, "function", [])


def in_code(declared: Declared, kind: str, modules: list[str]) -> str | None:
    """Returns the entrypoint that was chosen in the code, if it is of this kind.

    Without one, returns the first of `modules` that exists, or the only module with such a name: its code may make the
    crew in a way that only an import shows. So does one of `modules` that can't be parsed: its import reports that.
    """
    if declared.target is None and (broken := declared.code.unparsed(modules)):
        return broken
    choice, declared_type = Choice(declared), type_of(declared)
    found = choice.of([declared_type] if declared_type else ["flow", "crew", "function"])
    if found is not None:
        return choice.entrypoint(found) if found.kind == kind else None
    if not modules or declared.target is not None:
        return None
    try:
        return declared.only_module(kind, modules)
    except Unrecognised as error:
        if others := choice.everything():
            message = f"{error.message} Its code has: {others}."
            raise Unrecognised(message, error.hint, error.code) from None
        raise


def json_crew(declared: Declared) -> str | None:
    """Returns the path of the file that declares the crew. A classic crew may have a stray file of this name."""
    if is_flow(declared) or declared.target is not None:
        return None
    if named := definition(declared):
        return declaration(declared, named, "crew")
    if template_package(declared) is not None:
        return None
    return next((name for name in CREW_FILES if is_file(declared.root / name)), None)


def declarative_flow(declared: Declared) -> str | None:
    """Returns the path of the file that declares the flow."""
    named = definition(declared)
    return declaration(declared, named, "flow") if named and is_flow(declared) and declared.target is None else None


def type_of(declared: Declared) -> str | None:
    return declared.text("tool", "crewai", "type")


def is_flow(declared: Declared) -> bool:
    return type_of(declared) == "flow"


def definition(declared: Declared) -> str | None:
    return declared.text("tool", "crewai", "definition")


def template_package(declared: Declared) -> str | None:
    """Returns the package of the command that crewai's own templates declare: run_crew = "package.main:run"."""
    module = declared.script("run_crew")
    return None if module is None else module.rpartition(".")[0]


def declaration(declared: Declared, named: str, kind: str) -> str:
    """Returns the path of a declaration in the project. Raises Unrecognised if it can't be one of this kind."""
    how = f'[tool.crewai] definition = "{named}" in {declared.file}'
    try:
        path = (declared.root / named).resolve()
    except (OSError, ValueError) as error:  # for example a NUL character in the path
        raise Unrecognised(f"{how} is no path: {error}.", "Name a file in it, by its path from there.") from None
    if not path.is_relative_to(declared.root):
        raise Unrecognised(f"{how} is not in the project.", "Name a file in it, by its path from there.")
    if not is_file(path):
        raise Unrecognised(f"{how} names no file.", "Make it, or name the one that there is.")
    if path.suffix not in DEFINITIONS[kind]:
        endings = " or ".join(DEFINITIONS[kind])
        raise Unrecognised(f"{how} names no file that declares a {kind}.", f"Name one that ends in {endings}.")
    return path.relative_to(declared.root).as_posix()


CREW = Kind(
    "crew",
    crew,
    framework,
    EntrypointOption("crew"),
    AS_CREW,
    packages=PACKAGES,
    texts_from_code=True,
    findings=crew_files.of_crew,
)
FLOW = Kind(
    "flow", flow, framework, EntrypointOption("flow"), AS_FLOW, packages=PACKAGES, findings=crew_files.of_classes
)
JSON_CREW = Kind("json_crew", json_crew, framework, files=CREW_FILES, packages=PACKAGES, findings=file_findings)
DECLARATIVE_FLOW = Kind("declarative_flow", declarative_flow, framework, packages=PACKAGES, findings=crew_files.of_flow)
