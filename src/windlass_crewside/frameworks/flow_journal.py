"""Runs the methods of a flow, each once: one that an earlier attempt has finished gives what it gave then.

The flow's own engine decides again what comes after what, from the same outputs in the same order, so that routers,
joins, loops and races come out as they did. crewai's own way to go on from finished methods knows neither what a router
answered nor how often a loop went round.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

from windlass_crewside.faults import text_of
from windlass_crewside.frameworks.crew_journal import WITHIN, task_keys
from windlass_crewside.frameworks.flow_state import FlowState
from windlass_crewside.frameworks.values import decoded, encoded

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from windlass_crewside.frameworks.flow_methods import MethodFollower
    from windlass_crewside.journal import Entry
    from windlass_crewside.report import Report

METHOD = "method/"
QUIET_TURNS = 200
"""Of the event loop, in which nothing was taken from the journal: then the engine asks for no more of it for now.

Between two methods that are in the journal the engine waits for nothing but its turn.
"""


class FlowJournal:
    """Takes the place of the one method by which a flow runs its methods."""

    def __init__(self, flow: Any, follower: MethodFollower, report: Report) -> None:
        self._flow = flow
        self._run = flow._execute_method  # noqa: SLF001 - crewai has no hook that can give a method's output
        self._follower = follower
        self._report = report
        self._times: Counter[str] = Counter()
        self._entries = report.journal.take_all(METHOD)
        self._numbers = [entry.number for entry in self._entries.values()]
        self._changes = [(entry.number, entry.value["state"]) for entry in self._entries.values()]
        self._state = FlowState(flow)
        self._restored: list[str] = []
        self._unwritable: set[str] = set()
        self._writing = asyncio.Lock()
        object.__setattr__(flow, "_execute_method", self.execute)

    async def execute(self, name: str, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """The output of a method, and the id of the event that told of its end."""
        self._times[name] += 1
        step = f"{name}/{self._times[name]}"
        entry = self._entries.get(step)
        await self._turn(None if entry is None else entry.number)
        if entry is not None and (given := self._again(name, step, entry)):
            return given[0], None
        self._go_on()
        token = WITHIN.set(step)
        try:
            output, event = await self._follower.followed(name, self._run(name, method, *arguments, **named))
        finally:
            WITHIN.reset(token)
        await self._keep(name, step, output)
        return output, event

    def end(self) -> None:
        self._go_on()
        self._follower.skip_the_rest()
        self._report.warn_of_leftovers(len(self._entries))

    async def _turn(self, number: int | None) -> None:
        """Until what was finished before it was taken from the journal; for a method that is not in it, until all
        was that can be before it is run.
        """
        quiet = 0
        while self._numbers and (number is None or self._numbers[0] < number) and quiet < QUIET_TURNS:
            left = len(self._numbers)
            await asyncio.sleep(0)
            quiet = quiet + 1 if len(self._numbers) == left else 0

    def _again(self, name: str, step: str, entry: Entry) -> list[Any]:
        """Does what the engine does at the end of a method; its output, alone in a list, or nothing if it is unfit."""
        del self._entries[step]
        self._numbers.remove(entry.number)
        self._catch_up(entry.number)
        try:
            output = decoded(entry.value["output"])
        except (ValueError, LookupError, TypeError) as error:
            self._report.warn("journal_unfit", f"the method {name} is run again: {text_of(error)}")
            return []
        flow = self._flow
        flow._method_outputs.append({"method": name, "output": output})  # noqa: SLF001 - as _execute_method does
        flow._method_execution_counts[name] = self._times[name]  # noqa: SLF001
        flow._completed_methods.add(name)  # noqa: SLF001
        self._follower.restored(name)
        self._restored.append(name)
        self._report.journal.take_all(task_keys(step))  # crews within it are not kicked off again
        if not self._entries:
            self._go_on()  # no code of the flow may come after it, but who asks for its state
        return [output]

    def _catch_up(self, number: int) -> None:
        """With what all methods up to this one have changed of the state, those that are not asked for included."""
        while self._changes and self._changes[0][0] <= number:
            self._state.apply(self._changes.pop(0)[1])

    def _go_on(self) -> None:
        """Before code of the flow runs, which looks at the state."""
        if not self._restored:
            return
        try:
            self._state.restore()
        except (ValueError, LookupError, TypeError) as error:
            self._report.warn("journal_unfit", f"the state of the flow is not what it was: {text_of(error)}")
        self._report.event("journal_restored", {"tasks": [], "methods": self._restored})
        self._restored = []

    async def _keep(self, name: str, step: str, output: Any) -> None:
        """One after the other: each tells what it has changed since the one before."""
        if self._flow._definition.methods[name].human_feedback is not None:  # noqa: SLF001
            return  # what the person said would be lost
        async with self._writing:
            try:
                value = {"output": encoded(output), "state": self._state.changes()}
            except (TypeError, ValueError, RecursionError, RuntimeError) as error:  # the last: changed meanwhile
                self._refuse(name, text_of(error))
                return
            position = self._follower.position(name)
            write = self._report.finished_meanwhile(METHOD + step, value, f"the method {name}", position)
            if not await to_its_end(write):
                self._state.forget()

    def _refuse(self, name: str, why: str) -> None:
        """Told once of each method: it may be run a thousand times."""
        if name not in self._unwritable:
            self._unwritable.add(name)
            self._report.not_journaled(f"the method {name}", why)


async def to_its_end(work: Coroutine[Any, Any, bool]) -> bool:
    """A race that is lost meanwhile cancels its method only after it."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise
