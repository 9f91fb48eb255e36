"""Spares crews work of crewai that has no effect: a sixth of the CPU time of a short crew.

Each shortcut looks for what it replaces, and does nothing in a release of crewai that does not have it.
"""
# ruff: noqa: SLF001 - these are internals of crewai

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windlass_child.crewai.capabilities import optional

if TYPE_CHECKING:
    from collections.abc import Coroutine


def take() -> None:
    """Takes all shortcuts, in this process and in its children."""
    keep_model_of_states()
    if (file_store := optional("crewai.utilities.file_store")) is not None:
        answer_without_event_loop(file_store)


def keep_model_of_states() -> None:
    """Builds the class of the states of agent executors once. crewai builds it anew for each agent of each crew."""
    executor, base = optional("crewai.agents.agent_executor:AgentExecutor"), optional("crewai.flow.flow:FlowState")
    state = getattr(executor, "_initial_state_t", None)
    if base is None or not isinstance(state, type) or not hasattr(state, "model_fields") or issubclass(state, base):
        return

    class StateWithId(base, state):  # type: ignore[misc,valid-type]  # as crewai names it
        pass

    executor._initial_state_t = StateWithId


def answer_without_event_loop(file_store: Any) -> None:
    """Runs the functions of crewai's store of input files at once while the store is off. crewai asks it thirteen times
    in a crew of three tasks, each time in a new event loop. It is off where `aiocache` is not installed.
    """
    in_event_loop = getattr(file_store, "_run_sync", None)
    if in_event_loop is None or not hasattr(file_store, "_file_store"):
        return

    def run_sync(coroutine: Coroutine[Any, Any, Any]) -> Any:
        if file_store._file_store is not None:
            return in_event_loop(coroutine)
        try:
            coroutine.send(None)
        except StopIteration as done:
            return done.value
        raise RuntimeError("a store that is off waited")

    file_store._run_sync = run_sync
