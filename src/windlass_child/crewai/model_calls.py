"""Acts before each model call, task and method of a flow, for releases of crewai that have no hooks for that."""

from __future__ import annotations

import contextlib
import functools
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

from windlass_child.crewai.features import first_of, has
from windlass_child.replacements import replaced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CALLS = {"call": False, "acall": True}
"""The methods of a model that call it, and whether they are asynchronous."""

STEPS = (
    ("crewai:Task._execute_core", False),
    ("crewai:Task._aexecute_core", True),
    ("crewai.flow.flow:Flow._execute_method", True),
)


class ModelCall(NamedTuple):
    """A call that is about to be made."""

    messages: Any
    task: Any


CALLING: ContextVar[Any] = ContextVar("windlass_calling", default=None)
"""The model whose call is in progress: its method may call that of its base class."""


def base_of_models() -> Any:
    return first_of("crewai.llms.base_llm:BaseLLM", "crewai:BaseLLM", "crewai.llm:LLM")


def models() -> list[Any]:
    """Returns the classes of models that this process has imported."""
    base = base_of_models()
    found = dict.fromkeys([] if base is None else [base])
    left = list(found)
    while left:
        new = [one for one in left.pop().__subclasses__() if one not in found]
        found.update(dict.fromkeys(new))
        left += new
    return list(found)


def looking(look: Callable[[], None]) -> Callable[[Any], Any]:
    """Returns what makes a constructor that calls `look` first: crewai imports the class of a provider for its first
    model.
    """

    def looking_first(construct: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(construct)
        def look_and_construct(model: Any, /, *arguments: Any, **named: Any) -> None:
            look()
            construct(model, *arguments, **named)

        return look_and_construct

    return looking_first


class Interception:
    """Calls `before_step` before each task and each method of a flow, and `before_call` before each model call."""

    def __init__(self, before_step: Callable[[Any], None], before_call: Callable[[Any], None]) -> None:
        self._before_step = before_step
        self._before_call = before_call
        self._stack = contextlib.ExitStack()
        self._known: set[Any] = set()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        with self._stack:
            self._look_for_models()
            if (base := base_of_models()) is not None:
                self._stack.enter_context(replaced("crewai:BaseLLM.__init__", looking(self._look_for_models), base))
            for name, waits in STEPS:
                if has(name):
                    self._stack.enter_context(replaced(name, self._step(waits=waits)))
            yield

    def _look_for_models(self) -> None:
        """Wraps the classes of models that were imported since the last time."""
        for model in models():
            if model not in self._known:
                self._known.add(model)
                for method, waits in CALLS.items():
                    if method in vars(model):
                        step = self._call(waits=waits)
                        self._stack.enter_context(replaced(f"crewai:BaseLLM.{method}", step, model))

    def _step(self, *, waits: bool) -> Callable[[Any], Any]:
        def act(_: Any, *__: Any, **___: Any) -> None:
            self._look_for_models()
            self._before_step(None)

        return lambda run: acting_async(run, act) if waits else acting(run, act)

    def _call(self, *, waits: bool) -> Callable[[Any], Any]:
        def act(model: Any, messages: Any = None, *_: Any, from_task: Any = None, **__: Any) -> None:
            if CALLING.get() is not model:
                self._before_call(ModelCall(messages, from_task))

        return lambda run: acting_async(run, act) if waits else acting(run, act)


def acting(run: Callable[..., Any], act: Callable[..., None]) -> Callable[..., Any]:
    def act_and_run(owner: Any, *arguments: Any, **named: Any) -> Any:
        act(owner, *arguments, **named)
        token = CALLING.set(owner)
        try:
            return run(owner, *arguments, **named)
        finally:
            CALLING.reset(token)

    return act_and_run


def acting_async(run: Callable[..., Any], act: Callable[..., None]) -> Callable[..., Any]:
    async def act_and_run(owner: Any, *arguments: Any, **named: Any) -> Any:
        act(owner, *arguments, **named)
        token = CALLING.set(owner)
        try:
            return await run(owner, *arguments, **named)
        finally:
            CALLING.reset(token)

    return act_and_run
