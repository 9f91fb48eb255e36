"""Spares crews work of crewai that has no effect: a third of the CPU time of a short crew.

Each shortcut looks for what it replaces, and does nothing in a release of crewai that does not have it.
"""
# ruff: noqa: SLF001 - these are internals of crewai

from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from functools import wraps
from typing import TYPE_CHECKING, Any

from windlass_child.crewai.capabilities import has, optional

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    EventLoop = asyncio.AbstractEventLoop

CONSOLE = "crewai.events.event_listener"
"""The module of crewai's handlers that print what a crew does, and count it for the telemetry."""

ALONE: ContextVar[Alone | None] = ContextVar("windlass_agent_alone", default=None)


def take() -> None:
    """Takes all shortcuts, in this process and in its children."""
    keep_model_of_states()
    if (file_store := optional("crewai.utilities.file_store")) is not None:
        answer_without_event_loop(file_store)
    executor = optional("crewai.agents.agent_executor:AgentExecutor")
    read_private_attributes_at_once(optional("crewai.flow.flow:Flow"))
    read_private_attributes_at_once(executor)
    kickoff = optional("crewai.flow.runtime:Flow.kickoff")
    if kickoff and getattr(executor, "kickoff", None) is kickoff and has("crewai.flow.runtime:asyncio.to_thread"):
        run_agents_in_one_thread(executor, optional("crewai.flow.runtime"))
    if hasattr(event_bus := optional("crewai.events.event_bus"), "ThreadPoolExecutor"):
        event_bus.ThreadPoolExecutor = ConsoleAtOnce


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


def read_private_attributes_at_once(model: Any) -> None:
    """Gives the class a descriptor for each of its private attributes. pydantic looks for one everywhere else first,
    which takes 1.6 µs. The engine of flows, which agents run in too, reads 3,000 in a crew of three tasks.
    """
    found = {name for kind in getattr(model, "__mro__", ()) for name in vars(kind)}
    for name, attribute in getattr(model, "__private_attributes__", {}).items():
        if name not in found and not hasattr(attribute, "__get__"):
            setattr(model, name, PrivateAttribute(name))


class PrivateAttribute:
    """Reads a private attribute of a pydantic model. If it has no value, pydantic raises the error."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, model: Any, owner: type) -> Any:
        try:
            return model.__pydantic_private__[self._name]
        except (KeyError, TypeError, AttributeError):
            raise AttributeError(self._name) from None


class ConsoleAtOnce(ThreadPoolExecutor):
    """The thread pool of crewai's event bus. It calls the console handlers of an event in the thread that emits it:
    they are called in the order of the events, and a crew of three tasks wakes 20 threads less. If the crew has a
    handler for the event too, a thread calls all handlers of this event.
    """

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        handlers = next((one for one in arguments if isinstance(one, frozenset)), ())
        if not handlers or any(getattr(one, "__module__", "") != CONSOLE for one in handlers):
            return super().submit(function, *arguments, **named)
        called: Future[Any] = Future()
        try:
            called.set_result(function(*arguments, **named))
        except Exception as error:  # noqa: BLE001 - as a thread of the pool
            called.set_exception(error)
        return called


def run_agents_in_one_thread(executor: Any, runtime: Any) -> None:
    """Runs the steps of an agent in the thread that waits for the agent. crewai runs each step, and a check of what it
    has to store, in threads of a pool that it starts for each agent: 78 changes of threads in a crew of three tasks.

    Only an agent is changed that has an event loop of its own, because each step blocks the loop.
    """
    dispatch = optional("crewai.hooks.dispatch")

    @wraps(executor.kickoff)
    def kickoff_alone(agent: Any, *arguments: Any, **named: Any) -> Any:
        token = ALONE.set(None if has_boundary_hooks(dispatch) else Alone())
        try:
            return super(executor, agent).kickoff(*arguments, **named)  # a library may have replaced it by then
        finally:
            ALONE.reset(token)

    async def here_or_to_thread(function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        if (alone := ALONE.get()) is None or not alone.is_here or hasattr(asyncio, "_nest_patched"):
            return await asyncio.to_thread(function, *arguments, **named)
        return alone.outside_of_event_loop(lambda: copy_context().run(function, *arguments, **named))

    executor.kickoff = kickoff_alone
    runtime.asyncio = Asyncio(here_or_to_thread)


class Asyncio:
    """Replaces the module asyncio, as other libraries have changed it by then."""

    def __init__(self, to_thread: Callable[..., Any]) -> None:
        self.to_thread = to_thread

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)


def has_boundary_hooks(dispatch: Any) -> bool:
    """Whether code of the crew is called at the beginning or the end of a run, which may begin tasks in the agent's
    event loop.
    """
    points = getattr(dispatch, "EXECUTION_BOUNDARY_POINTS", ())
    hooks = [hook for point in points for hook in (*dispatch.get_hooks(point), *dispatch.get_scoped_hooks(point))]
    return any(not str(getattr(hook, "__module__", "")).startswith("windlass_child.") for hook in hooks)


class Alone:
    """An agent that is the only user of its event loop."""

    def __init__(self) -> None:
        self._own_loop: EventLoop | None = None
        self._loop: EventLoop | None = None
        """The event loop that code of the crew has set for later calls, as some code does in each thread."""

    @property
    def is_here(self) -> bool:
        """Whether the running event loop is that of the agent. A tool may have started another one. The first step of
        the agent notes the loop.
        """
        running = asyncio.get_running_loop()
        self._own_loop = self._own_loop or running
        return running is self._own_loop

    def outside_of_event_loop(self, function: Callable[[], Any]) -> Any:
        """Calls the function as a thread without an event loop would: it may run one (`asyncio.run`)."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        if task is not None:
            asyncio._leave_task(loop, task)
        asyncio._set_running_loop(None)
        asyncio.set_event_loop(self._loop)
        try:
            return function()
        finally:
            self._loop = event_loop()
            asyncio.set_event_loop(loop)
            asyncio._set_running_loop(loop)
            if task is not None:
                asyncio._enter_task(loop, task)


def event_loop() -> EventLoop | None:
    try:
        return asyncio.get_event_loop()
    except (RuntimeError, DeprecationWarning):
        return None
