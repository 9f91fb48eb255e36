"""A flow that is declared in YAML or JSON: its state and its methods, each with the action that it takes."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crewai.flow.flow import Flow
from crewai.flow.flow_definition import FlowCodeActionDefinition, FlowDefinition, FlowToolActionDefinition
from crewai.utilities.declarative_refs import resolve_ref
from pydantic import BaseModel, ValidationError

from windlass_crewside.faults import ProjectFault, raised_by_the_project, text_of
from windlass_crewside.frameworks import crew_events, flow_console, flow_inputs
from windlass_crewside.frameworks.crew import link_knowledge
from windlass_crewside.frameworks.flow import LoadedFlow, refuse_without_start
from windlass_crewside.frameworks.importing import make_importable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from windlass_crewside.messages import Project

START = "Give it one with `start: true`."
NAMED = "Correct it there, or write the code that it names."


def load(project: Project) -> LoadedFlow:
    crew_events.telemetry_as_wanted()
    flow_console.hush()
    root = Path(project.root)
    make_importable(root)
    path = root / project.entrypoint
    link_knowledge(path.parent)
    link_knowledge(root)
    definition = read(path, project)
    import_code(definition, project)
    schema = flow_inputs.schema_of_declared(definition.state)
    return LoadedFlow(partial(Flow.from_declaration, path=path), definition, definition.name, schema)


def read(path: Path, project: Project) -> Any:
    try:
        definition = FlowDefinition.from_declaration(path=path)
    except ValidationError as error:
        raise ProjectFault(f"{project.entrypoint} is no flow: {first(error)}", "Correct it there.") from error
    except Exception as error:
        raise ProjectFault(f"{project.entrypoint} can't be read: {text_of(error)}", "Correct it there.") from error
    if not definition.methods:
        raise ProjectFault(f"{project.entrypoint} has no methods", START)
    refuse_without_start(definition, project.entrypoint, START)
    if unfit := flow_inputs.unfit_default(definition.state):
        raise ProjectFault(f"no kickoff can run {project.entrypoint}: state.default: {unfit}", "Correct it there.")
    return definition


def import_code(definition: Any, project: Project) -> None:
    """What its actions name. crewai does so when a kickoff begins, and tells of what fails there in half its words."""
    for name, method in definition.methods.items():
        for reference in references(method.do):
            if not callable(found(reference, "do", f"methods.{name}", project)):
                raise ProjectFault(f"{project.entrypoint}: methods.{name}: {reference} is nothing to call", NAMED)
    state = getattr(definition.state, "ref", None)
    if state and not getattr(definition.state, "json_schema", None):  # which crewai takes in its place
        found(state, "state", "state.ref", project)


def found(reference: str, field: str, place: str, project: Project) -> Any:
    try:
        return resolve_ref(reference, field=field)
    except Exception as error:
        if raised := raised_by_the_project(error, Path(project.root)):
            raise raised from None
        raise ProjectFault(f"{project.entrypoint}: {place}: {text_of(error)}", NAMED) from error


def references(action: Any) -> Iterator[str]:
    """Of an action, and of those within it."""
    if isinstance(action, FlowCodeActionDefinition | FlowToolActionDefinition):
        yield action.ref
    elif isinstance(action, BaseModel):
        for name in type(action).model_fields:
            yield from references(getattr(action, name))
    elif isinstance(action, list):
        for inner in action:
            yield from references(inner)


def first(error: ValidationError) -> str:
    """Where the first fault is, and what it is; how many more there are."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    place = ".".join(str(part) for part in faults[0]["loc"])
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return f"{place}: {faults[0]['msg']}{more}" if place else f"{faults[0]['msg']}{more}"
