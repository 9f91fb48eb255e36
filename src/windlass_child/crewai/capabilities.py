"""What the installed crewai can do. Its releases since 0.80 differ in what Windlass can use of them.

A capability is detected by looking for the feature itself, once per process, and never by a version number. One that is
off is never a reason to refuse a project: `windlass check`, `GET /inputs` and each kickoff have a warning instead.
Only a crew in JSON and a declarative flow are refused by a release that can't load them.
docs/reference/crewai-versions.md has the table of releases.
"""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING

from windlass_child.crewai.features import has, has_any, optional
from windlass_child.crewai.kickoffs import starting
from windlass_child.process.error_text import ProjectFault
from windlass_child.protocol.messages import Warned
from windlass_child.replacements import Given

if TYPE_CHECKING:
    from collections.abc import Callable

CODE = "crewai_without_"
"""The beginning of the codes of these warnings."""
NOT_WARM = "crewai_warm_up_failed"
WITHOUT = (
    "crewai runs without the changes that Windlass makes to it. The kickoff may have no events, no count of its "
    "tokens, no token limit and no journal, and a stop may take effect only when its process is ended."
)


@dataclass(frozen=True)
class Capability:
    """`off` is the consequence where the capability is off. `kinds` are the kinds of project that get the warning."""

    name: str
    off: str
    kinds: tuple[str, ...]
    is_on: Callable[[], bool]


CREWS, FLOWS = ("crew", "json_crew"), ("flow", "declarative_flow")
RUN_CREWS = (*CREWS, "function")
"""The kinds whose tasks are journaled. A function gets its warnings when it imports crewai."""


def has_bus() -> bool:
    return has_any("crewai.events.event_bus:crewai_event_bus", "crewai.utilities.events:crewai_event_bus")


def counts_tokens() -> bool:
    """Returns whether crewai hands the tokens of a call to a method of the model, or to a callback of LiteLLM."""
    return has_any(
        "crewai.llms.base_llm:BaseLLM._track_token_usage_internal",
        "crewai.utilities.token_counter_callback:TokenCalcHandler.log_success_event",
    )


def has_hooks() -> bool:
    return has("crewai.hooks:HookAborted") and has("crewai.hooks:InterceptionPoint.PRE_STEP")


def journals_tasks() -> bool:
    return has("crewai:Task._execute_core") and (has_hooks() or has("crewai:Crew._execute_tasks"))


def journals_flows() -> bool:
    """The state of a flow can be journaled where each flow has one state from its construction on."""
    run = optional("crewai.flow.flow:Flow._execute_method")
    return run is not None and "method" in "".join(list(inspect.signature(run).parameters)[1:2])


def switches_telemetry() -> bool:
    return has_any("crewai.telemetry.telemetry:Telemetry._is_telemetry_disabled", "crewai_core.telemetry:Telemetry")


def stores_in_a_folder() -> bool:
    return has_any("crewai_core.paths:db_storage_path", "crewai.utilities.paths:db_storage_path")


def refuses_kickoffs() -> bool:
    """Returns whether the methods that kick off crews and flows are found in the classes of crewai."""
    found = [starting(optional(name)) for name in ("crewai:Crew", "crewai.flow.flow:Flow")]
    return all("kickoff" in [name for _, name in methods] for methods in found)


CAPABILITIES = (
    Capability(
        "events",
        "has no events: a kickoff reports its tasks, and neither its model calls nor its tools",
        (*RUN_CREWS, *FLOWS),
        has_bus,
    ),
    Capability(
        "token_usage",
        "does not report the tokens of model calls: the usage is not counted, and token_limit has no effect",
        (*RUN_CREWS, *FLOWS),
        counts_tokens,
    ),
    Capability(
        "hooks",
        "has no hooks: a stop takes effect before the next model call or task, and not before a tool call",
        (),
        has_hooks,
    ),
    Capability(
        "task_journal",
        "has no place at which tasks can be journaled: after an interruption the kickoff starts again",
        RUN_CREWS,
        journals_tasks,
    ),
    Capability(
        "flow_journal",
        "has no place at which methods of flows can be journaled: after an interruption the kickoff starts again",
        FLOWS,
        journals_flows,
    ),
    Capability(
        "human_input",
        "has no provider of human answers: the process of a kickoff waits while a task asks a person",
        (),
        lambda: has("crewai.core.providers.human_input:_provider"),
    ),
    Capability("json_crews", "can't load crews in JSON", (), lambda: has("crewai.project:load_crew")),
    Capability(
        "declarative_flows",
        "can't load flows in YAML or JSON",
        (),
        lambda: has("crewai.flow.flow_definition:FlowDefinition.from_declaration"),
    ),
    Capability(
        "storage_folder",
        "has no setting for its storage: memory and knowledge of kickoffs are stored below the home folder",
        (*RUN_CREWS, *FLOWS),
        stores_in_a_folder,
    ),
    Capability(
        "telemetry_switch",
        "has no setting for its telemetry: Windlass switches it off, and no variable switches it on",
        (),
        switches_telemetry,
    ),
    Capability(
        "execution_id",
        "has no id for an execution: its own traces do not carry the kickoff's id",
        (),
        lambda: has("crewai.execution:set_execution_uuid"),
    ),
    Capability(
        "import_guard",
        "has no kickoff that Windlass can refuse: a module that starts a crew at import runs it at each load",
        (*RUN_CREWS, *FLOWS),
        refuses_kickoffs,
    ),
)


@functools.cache
def found() -> dict[str, bool]:
    """Returns for each capability whether it is on. A zygote calls this before its forks."""
    return {one.name: one.is_on() for one in CAPABILITIES}


def degraded() -> list[str]:
    """Returns the codes of the capabilities that are off and that projects of any kind would use."""
    return [CODE + one.name for one in CAPABILITIES if one.kinds and not found()[one.name]]


def warnings(kind: str) -> list[Warned]:
    """Returns a warning for each capability that is off and that projects of this kind use.

    A failed warm-up has a warning too.
    """
    failed = [Warned(NOT_WARM, f"{WITHOUT} The warm-up failed: {Given.up}")] if Given.up else []
    return failed + [
        Warned(CODE + one.name, f"crewai {version('crewai')} {one.off}")
        for one in CAPABILITIES
        if kind in one.kinds and not found()[one.name]
    ]


def refuse_without(name: str) -> None:
    """Raises ProjectFault for a kind of project that this crewai can't load."""
    if not found()[name]:
        off = next(one.off for one in CAPABILITIES if one.name == name)
        raise ProjectFault(f"crewai {version('crewai')} {off}", "Install a newer crewai in the project's environment.")
