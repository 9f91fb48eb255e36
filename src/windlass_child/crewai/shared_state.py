"""The state that crewai shares between all crews of a process, which a process that takes several runs must reset."""

from __future__ import annotations

import contextlib
import sys
import threading
from typing import TYPE_CHECKING, Any

from windlass_child.crewai import bus, capabilities, usage
from windlass_child.crewai.features import optional
from windlass_child.reuse.baseline import NotReusable

if TYPE_CHECKING:
    from collections.abc import Callable

OBJECTS = (
    "crewai.events.event_bus:crewai_event_bus",
    "crewai.events.event_listener:event_listener",
    "crewai.events.event_listener:event_listener.formatter",
    "crewai.events.utils.console_formatter:ConsoleFormatter",
    "crewai.events.listeners.tracing.trace_listener:TraceCollectionListener._instance",
    "crewai.events.listeners.tracing.trace_listener:TraceCollectionListener._instance.batch_manager",
    "crewai.flow.flow_config:flow_config",
    "crewai.hooks.dispatch:_global_hooks",
    "crewai.project.utils:cache._cache",
)
"""Objects whose attributes, or members, runs change.

The cache has the agents, tasks and crews of classes by the ids of their objects. A later object can have the same id.
"""

GLOBALS: dict[str, Any] = {
    "crewai.flow.persistence.factory:_factory": None,
    "crewai.knowledge.storage.factory:_factory": None,
    "crewai.mcp.transports.stdio:_env_filter_hook": None,
    "crewai.memory.storage.factory:_factory": None,
    "crewai.project.crew_base:_post_initialize_crew_hooks": [],
    "crewai.rag.factory:_factories": {},
    "crewai.state.checkpoint_listener:_handlers_registered": False,
    "crewai.tasks.hallucination_guardrail:_validate_output_hook": None,
    "crewai.utilities.agent_utils:_create_plus_client_hook": None,
}
"""Variables of modules that runs change, with their values just after the import of the module."""

OWN = {"_executor_initialized", "_has_pending_events", "_loop", "_loop_thread", "_sync_executor", "_shutting_down"}
"""Attributes of the bus that `bus.stop_threads` sets."""


def snapshot() -> Callable[[], None]:
    """Notes the state. Returns what restores it, and stops the threads of crewai (frameworks.Adapter.snapshot)."""
    if bus.STREAM is None or not usage.IN_EVENTS or not capabilities.found()["hooks"]:
        return refuse
    kept: list[Kept | Variable] = [Kept(found) for found in map(optional, OBJECTS) if found is not None]
    kept += [Variable(name, default) for name, default in GLOBALS.items()]

    def restore() -> None:
        bus.stop_threads()
        bus.unsubscribe()
        for one in kept:
            one.restore()

    return restore


def refuse() -> None:
    raise NotReusable("this release of crewai can't be reset: install a newer one")


class Variable:
    """A variable of a module. It has its default again if its module was imported by a run."""

    def __init__(self, name: str, default: Any) -> None:
        self._module, _, self._name = name.partition(":")
        self._value = getattr(sys.modules.get(self._module), self._name, default)
        self._content = copied(self._value)

    def restore(self) -> None:
        module = sys.modules.get(self._module)
        if module is None:
            return
        put_back(self._value, self._content)
        if getattr(module, self._name, self._value) is not self._value:
            setattr(module, self._name, self._value)


class Kept:
    """The attributes of an object, or the members of a dictionary. Their collections are kept by what they hold."""

    def __init__(self, owner: Any) -> None:
        self._owner = owner
        self._values = {name: (value, copied(value)) for name, value in members(owner).items() if name not in OWN}

    def restore(self) -> None:
        now = members(self._owner)
        for name in now.keys() - self._values.keys() - OWN:
            self._remove(name)
        for name, (value, content) in self._values.items():
            put_back(value, content)
            if now.get(name, members) is not value:
                self._set(name, value)

    def _set(self, name: str, value: Any) -> None:
        if isinstance(self._owner, dict):
            self._owner[name] = value
        else:
            with contextlib.suppress(AttributeError, TypeError):  # of a property, or of a slot of the class
                setattr(self._owner, name, value)

    def _remove(self, name: str) -> None:
        if isinstance(self._owner, dict):
            del self._owner[name]
        else:
            with contextlib.suppress(AttributeError, TypeError):
                delattr(self._owner, name)


def members(owner: Any) -> dict[Any, Any]:
    if isinstance(owner, dict):
        return dict(owner)
    own = dict(vars(owner))
    return own | (getattr(owner, "__pydantic_private__", None) or {}) if not isinstance(owner, type) else own


def copied(value: Any) -> Any:
    if isinstance(value, (dict, list, set)):
        return value.copy()
    return value.is_set() if isinstance(value, threading.Event) else None


def put_back(value: Any, content: Any) -> None:
    if isinstance(value, list):
        value[:] = content
    elif isinstance(value, (dict, set)):
        value.clear()
        value.update(content)
    elif isinstance(value, threading.Event):
        (value.set if content else value.clear)()
