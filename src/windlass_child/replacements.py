"""Replaces names of crewai and of Python. Each name is listed in NAMES.

docs/development/crewai.md has the same list, with the promises that need each name, and its test. No other module sets
a name of another package. If crewai can't run a crew with these replacements, all are undone and no further one is made
(`give_up`).
"""

# See docs/decisions/child.md#each-replaced-name-of-crewai-is-in-one-list

from __future__ import annotations

import contextlib
import functools
import inspect
import pkgutil
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

UNDONE, STAYS = False, True
"""Whether `give_up` undoes a replacement. One stays that no release of crewai can break, or without which crews would
share files.
"""

NAMES = {
    "crewai:Task._execute_core": UNDONE,
    "crewai:Task._aexecute_core": UNDONE,
    "crewai.tasks.conditional_task:ConditionalTask.should_execute": UNDONE,
    "crewai:Crew.kickoff": UNDONE,
    "crewai:Crew.akickoff": UNDONE,
    "crewai:Crew._execute_tasks": UNDONE,
    "crewai:Crew._aexecute_tasks": UNDONE,
    "crewai.flow.flow:Flow._execute_method": UNDONE,
    "threading:Thread.start": STAYS,
    "concurrent.futures:ThreadPoolExecutor.submit": STAYS,
    "crewai:BaseLLM.__init__": UNDONE,
    "crewai:BaseLLM.call": UNDONE,
    "crewai:BaseLLM.acall": UNDONE,
    "crewai:BaseLLM._track_token_usage_internal": UNDONE,
    "crewai.utilities.token_counter_callback:TokenCalcHandler.log_success_event": UNDONE,
    "crewai.events.stream_context:_stream_sinks": UNDONE,
    "crewai.events.event_bus:crewai_event_bus.emit": UNDONE,
    "crewai.hooks.dispatch:_emit_telemetry": UNDONE,
    "crewai.flow.flow_config:flow_config.hitl_provider": UNDONE,
    "crewai.flow.flow_config:flow_config.input_provider": UNDONE,
    "crewai.core.providers.human_input:_provider": UNDONE,
    "crewai.agents.agent_executor:AgentExecutor.invoke": UNDONE,
    "crewai.agents.agent_executor:AgentExecutor.invoke_async": UNDONE,
    "crewai.agents.agent_builder.base_agent_executor_mixin:CrewAgentExecutorMixin._ask_human_input": UNDONE,
    "crewai:Agent._execute_with_timeout": UNDONE,
    "crewai:Agent._aexecute_with_timeout": UNDONE,
    "crewai.flow.flow:Flow._collapse_to_outcome": UNDONE,
    "builtins:input": STAYS,
    "crewai:Crew.*": UNDONE,
    "crewai.flow.flow:Flow.*": UNDONE,
    "crewai:Agent.*": UNDONE,
    "crewai.lite_agent:LiteAgent.*": UNDONE,
    "crewai.rag.chromadb.constants:DEFAULT_STORAGE_PATH": STAYS,
    "crewai.rag.chromadb.config:DEFAULT_STORAGE_PATH": STAYS,
    "crewai.rag.qdrant.constants:DEFAULT_STORAGE_PATH": STAYS,
    "crewai.rag.qdrant.config:DEFAULT_STORAGE_PATH": STAYS,
    "crewai.memory.storage.kickoff_task_outputs_storage:KickoffTaskOutputsSQLiteStorage.__init__.__defaults__": STAYS,
    "crewai.memory.storage.ltm_sqlite_storage:LTMSQLiteStorage.__init__.__defaults__": STAYS,
    "crewai.events.utils.console_formatter:ConsoleFormatter.print_panel": UNDONE,
    "crewai.telemetry.telemetry:Telemetry.__init__": STAYS,
    "crewai.events.listeners.tracing.utils:is_first_execution": STAYS,
    "crewai.events.listeners.tracing.trace_batch_manager:TraceBatchManager._initialize_backend_batch": STAYS,
    "crewai.utilities.logger:Logger.log": UNDONE,
    "logging:basicConfig": STAYS,
    "logging:lastResort": STAYS,
    "inspect:_signature_fromstr": STAYS,
}
"""The names that are replaced, as "module:attribute". A star stands for each public method that starts a run. A method
of BaseLLM is replaced in its subclasses too. Older releases of crewai have some of them in other modules.
"""

ABSENT = object()


class Given:
    """Why all replacements were given up; "" as long as they are used. `undo` undoes those that last, newest last."""

    up = ""
    undo: list[tuple[str, Callable[[], None]]] = []  # noqa: RUF012 - there is one list for the process


def give_up(why: str) -> None:
    """Undoes all replacements except those that stay, and prevents later ones."""
    Given.up = why
    undo(*(key for key, end in NAMES.items() if end is UNDONE))


def undo(*keys: str) -> None:
    """Undoes the replacements of `replace_name` with these keys."""
    for entry in reversed([one for one in Given.undo if one[0] in keys]):
        Given.undo.remove(entry)
        entry[1]()


def is_off(key: str) -> bool:
    return bool(Given.up) and NAMES[key] is UNDONE


def replace_name(key: str, make: Callable[[Any], Any], owner: Any = None) -> None:
    """Replaces the name with `make(original)`, until it is undone.

    `owner` is the object whose attribute it is, where this is another one than the key names.
    """
    if is_off(key):
        return
    owner, name = place_of(key, owner)
    before = own(owner, name)
    put(owner, name, make(getattr(owner, name)))
    if NAMES[key] is UNDONE:
        Given.undo.append((key, partial(put, owner, name, before)))


@contextlib.contextmanager
def replaced(key: str, make: Callable[[Any], Any], owner: Any = None, name: str = "") -> Iterator[None]:
    """Replaces the name with `make(original)` inside the `with` block.

    What code inside the block has set in its place stays. Such code may call what it has found there, as libraries for
    tracing do: after the block that is the original. `owner` is as for `replace_name`. `name` is its attribute, if the
    key has a star.
    """
    if is_off(key):
        yield
        return
    owner, attribute = place_of(key, owner)
    name = name or attribute
    before, used = own(owner, name), getattr(owner, name)
    standing = StandIn(used, make(used))
    put(owner, name, standing.place)
    try:
        yield
    finally:
        standing.current = used
        if vars(owner).get(name, standing.place) is standing.place:
            put(owner, name, before)


def place_of(key: str, owner: Any = None) -> tuple[Any, str]:
    path, _, name = key.rpartition("." if "." in key.partition(":")[2] else ":")
    return (pkgutil.resolve_name(path) if owner is None else owner), name


def own(owner: Any, name: str) -> Any:
    """Returns what the object holds by this name. A class may inherit it, and then holds nothing (ABSENT)."""
    return vars(owner).get(name, ABSENT) if isinstance(owner, type) else getattr(owner, name)


def put(owner: Any, name: str, value: Any) -> None:
    if value is ABSENT:
        delattr(owner, name)
    else:
        setattr(owner, name, value)


class StandIn:
    """What stands in `place` of a function. It calls `current`. An object other than a function takes its place."""

    def __init__(self, before: Any, current: Any) -> None:
        self.current = current
        self.place = current if not inspect.isfunction(before) else self._calling(before)

    def _calling(self, before: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(before)
        def call(*arguments: Any, **named: Any) -> Any:
            return self.current(*arguments, **named)

        @functools.wraps(before)
        async def call_async(*arguments: Any, **named: Any) -> Any:
            return await self.current(*arguments, **named)

        return call_async if inspect.iscoroutinefunction(before) else call
