"""Loads flows that are declared in YAML or JSON. The file declares the state, and the methods with their actions."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crewai.flow.flow import Flow
from pydantic import BaseModel, ValidationError

from windlass_child.crewai import capabilities, events, features, flow_inputs
from windlass_child.crewai.flow_methods import hush
from windlass_child.kinds.flow import LoadedFlow, refuse_without_start
from windlass_child.kinds.importing import make_importable
from windlass_child.process.error_text import ProjectFault, raised_by_the_project, text_of
from windlass_child.protocol.working_folder import fill_knowledge
from windlass_child.reuse import baseline

if TYPE_CHECKING:
    from collections.abc import Iterator

    from windlass_child.protocol.messages import Project

definitions = features.optional("crewai.flow.flow_definition")
resolve_ref = features.optional("crewai.utilities.declarative_refs:resolve_ref")

START = "Give it one with `start: true`."
CHANGED = "Change this part of the file as the message describes."
NAMED = "Write the code that it names, or correct the name."


def load(project: Project) -> LoadedFlow:
    capabilities.refuse_without("declarative_flows")
    events.telemetry_as_wanted()
    hush()
    root = Path(project.root)
    make_importable(root)
    path = root / project.entrypoint
    fill_knowledge(path.parent)
    definition = read(path, project)
    import_code(definition, project)
    baseline.imported()
    schema = flow_inputs.schema_of_declared(definition.state)
    return LoadedFlow(partial(Flow.from_declaration, path=path), definition, definition.name, schema)


def read(path: Path, project: Project) -> Any:
    try:
        definition = definitions.FlowDefinition.from_declaration(path=path)
    except ValidationError as error:
        raise ProjectFault(f"{project.entrypoint} is no flow: {first(error)}", CHANGED) from error
    except Exception as error:
        raise ProjectFault(f"{project.entrypoint} can't be read: {text_of(error)}", CHANGED) from error
    if not definition.methods:
        raise ProjectFault(f"{project.entrypoint} has no methods", START)
    refuse_without_start(definition, project.entrypoint, START)
    if unfit := flow_inputs.unfit_default(definition.state):
        raise ProjectFault(f"no kickoff can run {project.entrypoint}: state.default: {unfit}", CHANGED, "never_runs")
    return definition


def import_code(definition: Any, project: Project) -> None:
    """Imports the code that the actions name.

    crewai imports it only when a kickoff begins, and its error messages then omit part of the cause.
    """
    for name, method in definition.methods.items():
        for reference in references(method.do):
            if not callable(found(reference, "do", f"methods.{name}", project)):
                raise ProjectFault(f"{project.entrypoint}: methods.{name}: {reference} is nothing to call", NAMED)
    state = getattr(definition.state, "ref", None)
    if state and not getattr(definition.state, "json_schema", None):  # crewai uses the schema in place of the reference
        found(state, "state", "state.ref", project)


def found(reference: str, field: str, place: str, project: Project) -> Any:
    try:
        return resolve_ref(reference, field=field)
    except Exception as error:
        if raised := raised_by_the_project(error, Path(project.root)):
            raise raised from None
        raise ProjectFault(f"{project.entrypoint}: {place}: {text_of(error)}", NAMED) from error


def references(action: Any) -> Iterator[str]:
    """Yields the references of an action and of its nested actions."""
    if isinstance(action, (definitions.FlowCodeActionDefinition, definitions.FlowToolActionDefinition)):
        yield action.ref
    elif isinstance(action, BaseModel):
        for name in type(action).model_fields:
            yield from references(getattr(action, name))
    elif isinstance(action, list):
        for inner in action:
            yield from references(inner)


def first(error: ValidationError) -> str:
    """Returns the place and the message of the first error, and the number of further errors."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    place = ".".join(str(part) for part in faults[0]["loc"])
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return f"{place}: {faults[0]['msg']}{more}" if place else f"{faults[0]['msg']}{more}"
