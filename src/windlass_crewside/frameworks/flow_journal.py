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
from windlass_crewside.frameworks.flow_entries import FlowEntries
from windlass_crewside.frameworks.flow_parts import called
from windlass_crewside.frameworks.flow_state import FlowState
from windlass_crewside.frameworks.values import decoded, encoded
from windlass_crewside.frameworks.within import task_keys, within

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from windlass_crewside.frameworks.flow_methods import MethodFollower
    from windlass_crewside.journal import Entry
    from windlass_crewside.report import Report

METHOD = "method/"
STATE = "the state"
"""In place of a part of the flow: the output was the state itself."""


class FlowJournal:
    """Takes the place of the one method by which a flow runs its methods."""

    def __init__(self, flow: Any, follower: MethodFollower, report: Report) -> None:
        self._flow = flow
        self._run = flow._execute_method  # noqa: SLF001 - crewai has no hook that can give a method's output
        self._follower = follower
        self._report = report
        self._times: Counter[str] = Counter()
        self._entries = FlowEntries(report.journal.take_all(METHOD))
        self._last: str | None = None
        self._in_use = 0
        self._state = FlowState(flow)
        self._restored: list[str] = []
        self._told: set[str] = set()
        self._writing = asyncio.Lock()
        object.__setattr__(flow, "_execute_method", self.execute)

    async def execute(self, name: str, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """The output of a method, and the id of the event that told of its end."""
        self._times[name] += 1
        step = f"{name}/{self._times[name]}"
        while (entry := await self._entries.taken(step)) is not None:
            if given := self._again(name, step, entry):
                return given[0], None
        try:
            return await self._executed(name, step, self._run(name, method, *arguments, **named))
        finally:
            self._entries.ran(step)

    async def _executed(self, name: str, step: str, running: Coroutine[Any, Any, Any]) -> Any:
        self._go_on()
        self._in_use += 1
        try:
            with within(step):
                output, event = await self._follower.followed(name, running)
        finally:
            self._in_use -= 1
        await self._keep(name, step, output)
        return output, event

    def end(self) -> None:
        self._tell_restored()
        self._follower.skip_the_rest()
        self._report.warn_of_leftovers(self._entries.left())

    def _again(self, name: str, step: str, entry: Entry) -> list[Any]:
        """Does what the engine does at the end of a method; its output, alone in a list, or nothing if it is unfit."""
        try:
            output = self._taken(entry)
        except Exception as error:  # noqa: BLE001 - what makes values again runs code of the project
            others = self._entries.drop(step)
            also = f", and so are {len(others)} that came after it" if others else ""
            self._report.warn("journal_unfit", f"the method {name} is run again{also}: {text_of(error)}")
            return []
        flow = self._flow
        flow._method_outputs.append({"method": name, "output": output})  # noqa: SLF001 - as _execute_method does
        flow._method_execution_counts[name] = self._times[name]  # noqa: SLF001
        flow._completed_methods.add(name)  # noqa: SLF001
        self._follower.restored(name)
        self._restored.append(name)
        self._report.journal.take_all(task_keys(step))  # crews within it are not kicked off again
        self._entries.passed(step)
        if not self._entries.left():
            self._restore()  # no code of the flow may come after it, but who asks for its state
        return [output]

    def _taken(self, entry: Entry) -> Any:
        if not self._entries.follows(entry):
            raise ValueError("what was finished before it did not come up again")
        value = entry.value
        output = decoded(value["output"]) if "output" in value else None
        self._state.take(value["state"], in_use=self._in_use > 0)
        self._last = value["id"]
        if value.get("is") == STATE:
            self._state.restore()
            return self._flow.state
        return self._state.given(value["is"]) if "is" in value else output

    def _go_on(self) -> None:
        """Before code of the flow runs, which looks at the state and changes it."""
        self._restore()
        if self._entries.left():
            self._state.watch()

    def _restore(self) -> None:
        self._state.restore()
        self._tell_restored()

    def _tell_restored(self) -> None:
        if self._restored:
            self._report.event("journal_restored", {"tasks": [], "methods": self._restored})
            self._restored = []

    async def _keep(self, name: str, step: str, output: Any) -> None:
        """One after the other: each tells what it has changed since the one before."""
        async with self._writing:
            value = {"id": self._entries.id_of(step), "after": self._last} | self._kept(name, output)
            await to_its_end(self._write(name, step, value))

    def _kept(self, name: str, output: Any) -> dict[str, Any]:
        """Of an output that can't be kept, what the method changed: those after it have changed that again. So it is
        with one that a person was asked about, whose answer would be lost.
        """
        kept: dict[str, Any] = {"state": []}
        try:
            kept["state"] = self._state.changes()
            self._tell_of_attributes()
            if self._flow._definition.methods[name].human_feedback is not None:  # noqa: SLF001
                return kept | {"again": True}
            return kept | self._output(output)
        except Exception as error:  # noqa: BLE001 - code of the project is run, and may change it meanwhile
            self._refuse(name, text_of(error))
            return kept | {"again": True}

    def _output(self, output: Any) -> dict[str, Any]:
        """What is a part of the flow is that again: who was given it may change it."""
        if output is self._flow.state:
            return {"is": STATE}
        part = self._state.part_of(output)
        return {"output": encoded(output)} if part is None else {"is": part}

    async def _write(self, name: str, step: str, value: dict[str, Any]) -> None:
        position = None if "again" in value else self._follower.position(name)
        write, called_so = self._report.finished_meanwhile, f"the method {name}"
        if not await write(METHOD + step, value, called_so, position):
            self._state.forget()
            await write(METHOD + step, {**value, "state": [], "again": True}, called_so)
        self._last = value["id"]

    def _refuse(self, name: str, why: str) -> None:
        """Told once of each method: it may be run a thousand times."""
        if f"method {name}" not in self._told:
            self._told.add(f"method {name}")
            self._report.not_journaled(f"the method {name}", why)

    def _tell_of_attributes(self) -> None:
        new = {part: why for part, why in self._state.not_kept.items() if part not in self._told}
        if new:
            self._told |= new.keys()
            self._report.warn(
                "flow_attributes_not_kept",
                f"{', '.join(map(called, new))} of the flow will not be there if the kickoff is interrupted now: "
                f"{next(iter(new.values()))}; make it in __init__, or where it is used",
            )


async def to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """A race that is lost meanwhile cancels its method only after it."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise
