"""Resumes flows: a method that an earlier attempt has finished returns its journaled output and is not run.

The flow's own engine decides on the order of the methods again, from the same outputs in the same order. So routers,
joins, loops and races have the same results as before. crewai's own resumption is not used: it stores neither the
answers of routers nor the number of rounds of a loop.
"""

# See docs/decisions/journal.md#flow-methods-are-replayed-through-the-flows-engine

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from windlass_child.crewai.flow_shape import ASKS_APART, GIVES_EVENT, KEEPS_NAMES, state_of
from windlass_child.journal.flow_entries import FlowEntries
from windlass_child.journal.flow_parts import called
from windlass_child.journal.flow_state import FlowState
from windlass_child.journal.step_context import within
from windlass_child.journal.value_codec import decoded, encoded
from windlass_child.process.error_text import text_of
from windlass_child.replacements import replaced

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping

    from windlass_child.crewai.flow_methods import MethodFollower
    from windlass_child.journal.journal import FinishedStep
    from windlass_child.process.report import Report

METHOD = "method/"
STATE = "the state"
"""The value of `is` in an entry whose output was the state itself. Other values name a part of the flow."""
FEEDBACK = "the feedback"
"""The value of `is` in an entry whose output was the feedback of a person."""
JUDGED = "?"
"""The end of the step of a method's own work, before a person judges it. The step of the method follows."""


class FlowJournal:
    """Replaces `_execute_method`, with which a flow runs its methods."""

    def __init__(self, flow: Any, methods: Mapping[str, Any], follower: MethodFollower, report: Report) -> None:
        self._flow = flow
        self._methods = methods
        self._run = flow._execute_method  # noqa: SLF001 - crewai has no hook that can set a method's output
        self._follower = follower
        self._report = report
        self._times: Counter[str] = Counter()
        self._entries = FlowEntries(report.journal.take_all(METHOD))
        self._last: str | None = None
        self._in_use = 0
        self._state = FlowState(flow, report.journal.of_states)
        self._restored: list[str] = []
        self._reported: set[str] = set()
        self._writing = asyncio.Lock()

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        with replaced("crewai.flow.flow:Flow._execute_method", lambda _: self.execute, self._flow):
            yield

    async def execute(self, name: str, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Returns what the engine expects of a method: its output, with the id of the event that reported its end where
        this crewai has one.
        """
        self._times[name] += 1
        step = f"{name}/{self._times[name]}"
        if ASKS_APART and self._methods[name].human_feedback is not None:
            method = await self._judged(name, step, method)
        while (entry := await self._entries.taken(step)) is not None:
            if given := self._again(name, step, entry):
                return (given[0], None) if GIVES_EVENT else given[0]
        try:
            return await self._executed(name, step, partial(self._run, name, method, *arguments, **named))
        finally:
            self._entries.ran(step)

    async def _executed(self, name: str, step: str, run: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        with self._report.questions.running(step, self._follower.position(name)):
            self._go_on()
            self._in_use += 1
            try:
                with within(step):
                    given = await self._follower.followed(name, run())
            finally:
                self._in_use -= 1
            await self._keep(name, step, given[0] if GIVES_EVENT else given)
        return given

    async def _judged(self, name: str, step: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the method with its own work journaled: a person judges its output, perhaps in a later attempt."""
        own = step + JUDGED
        while (entry := await self._entries.waited(own)) is not None:
            if given := self._decoded(name, own, entry):
                self._entries.passed(own)
                self._report.questions.keeps.add(step)
                return partial(repeated, given[0])

        async def work(*arguments: Any, **named: Any) -> Any:
            output = await worked(method, *arguments, **named)
            async with self._writing:
                value = {"id": self._entries.id_of(own), "after": self._last} | self._kept(name, output, judged=False)
                if await to_its_end(self._write(name, own, value)):
                    self._report.questions.keeps.add(step)
                self._entries.ran_again(own)
            return output

        return work

    def end(self) -> None:
        self._report_restored()
        self._follower.skip_the_rest()
        self._report.warn_of_leftovers(self._entries.left())

    def _again(self, name: str, step: str, entry: FinishedStep) -> list[Any]:
        """Replays a method: does the engine's work at the end of the method without a run.

        Returns a list with the output alone, or an empty list if the entry does not fit.
        """
        if not (taken := self._decoded(name, step, entry)):
            return []
        (output,) = taken
        flow = self._flow
        kept_output = self._output_of(name, output, entry) if KEEPS_NAMES else output
        flow._method_outputs.append(kept_output)  # noqa: SLF001 - as _execute_method does
        flow._method_execution_counts[name] = self._times[name]  # noqa: SLF001
        if hasattr(flow, "_completed_methods"):
            flow._completed_methods.add(name)  # noqa: SLF001
        self._follower.restored(name)
        self._restored.append(name)
        self._report.journal.drop_within(step)  # crews in this method are not kicked off again
        self._entries.passed(step)
        if not self._entries.left():
            self._restore()  # no more code of the flow may run, but the flow's state can still be read
        return [output]

    def _decoded(self, name: str, step: str, entry: FinishedStep) -> list[Any]:
        """Returns a list with the output of a step alone, or an empty list if the entry does not fit."""
        try:
            return [self._taken(entry)]
        except Exception as error:  # noqa: BLE001 - decoding runs code of the project
            others = self._entries.drop(step)
            also = f", and so are {len(others)} that came after it" if others else ""
            self._report.warn("journal_unfit", f"the method {name} is run again{also}: {text_of(error)}")
            return []

    def _output_of(self, name: str, output: Any, entry: FinishedStep) -> dict[str, Any]:
        """Returns what the engine stores of a method. Restores the feedback on its output."""
        if "feedback" not in entry.value:
            return {"method": name, "output": output}
        feedback = output if entry.value.get("is") == FEEDBACK else decoded(entry.value["feedback"])
        self._flow.human_feedback_history.append(feedback)
        self._flow.last_human_feedback = feedback
        if feedback is output:
            return {"method": name, "output": output}
        return {"method": name, "output": feedback.output, "human_feedback": feedback}

    def _taken(self, entry: FinishedStep) -> Any:
        if not self._entries.follows(entry):
            raise ValueError("the method that was finished before it was not repeated")
        value = entry.value
        output = decoded(value["output"]) if "output" in value else None
        feedback = decoded(value["feedback"]) if "feedback" in value else None
        self._state.take(value["state"], in_use=self._in_use > 0)
        self._last = value["id"]
        if value.get("is") == STATE:
            self._state.restore()
            return state_of(self._flow)
        if value.get("is") == FEEDBACK:
            return feedback
        return self._state.given(value["is"]) if "is" in value else output

    def _go_on(self) -> None:
        """Restores the state before code of the flow runs, which reads and changes the state."""
        self._restore()
        if self._entries.left():
            self._state.watch()

    def _restore(self) -> None:
        self._state.restore()
        self._report_restored()

    def _report_restored(self) -> None:
        if self._restored:
            self._report.event("journal_restored", {"tasks": [], "methods": self._restored})
            self._restored = []

    async def _keep(self, name: str, step: str, output: Any) -> None:
        """Writes the entry of a method. Only one is written at a time: each holds the changes since the one before."""
        async with self._writing:
            value = {"id": self._entries.id_of(step), "after": self._last} | self._kept(name, output)
            await to_its_end(self._write(name, step, value))

    def _kept(self, name: str, output: Any, *, judged: bool = True) -> dict[str, Any]:
        """Returns the state changes and the output of a method, or of its own work if no person has judged it yet.

        An output that can't be journaled is omitted, and the method is marked to be run again. Its changes are kept,
        because later entries hold changes to them. The same applies to a method whose own code asks a person, because
        the answer would be lost.
        """
        kept: dict[str, Any] = {"state": []}
        try:
            kept["state"] = self._state.changes()
            self._warn_of_attributes()
            if self._methods[name].human_feedback is not None and not ASKS_APART:
                return kept | {"again": True}
            asked = judged and self._methods[name].human_feedback is not None
            return kept | (self._feedback(name, output) if asked else self._output(output))
        except Exception as error:  # noqa: BLE001 - runs code of the project, which may change the state meanwhile
            self._refuse(name, text_of(error))
            return kept | {"again": True}

    def _output(self, output: Any) -> dict[str, Any]:
        """Returns the output, by reference if it is a part of the flow.

        A method that receives the part may change it, so a replay must return the very same object.
        """
        if output is self._flow.state or output is state_of(self._flow):
            return {"is": STATE}
        part = self._state.part_of(output)
        return {"output": encoded(output)} if part is None else {"is": part}

    def _feedback(self, name: str, output: Any) -> dict[str, Any]:
        """Returns the output of a method with the feedback on it: a choice of the person, or the feedback itself."""
        stored: Any = next(one for one in reversed(self._flow._method_outputs) if one["method"] == name)  # noqa: SLF001 - crewai's only list
        feedback = stored.get("human_feedback", output)
        if feedback is output:
            return {"is": FEEDBACK, "feedback": encoded(feedback)}
        return {"feedback": encoded(feedback), "output": encoded(output)}

    async def _write(self, name: str, step: str, value: dict[str, Any]) -> bool:
        """Returns whether the output is in the journal."""
        position = None if "again" in value or step.endswith(JUDGED) else self._follower.position(name)
        write, called_so = self._report.finished_meanwhile, f"the method {name}"
        if not await write(METHOD + step, value, called_so, position):
            self._state.forget()
            value = {**value, "state": [], "again": True}
            await write(METHOD + step, value, called_so)
        self._last = value["id"]
        return "again" not in value

    def _refuse(self, name: str, why: str) -> None:
        """Reports only once for each method that it is not journaled. A method may run a thousand times."""
        if f"method {name}" not in self._reported:
            self._reported.add(f"method {name}")
            self._report.not_journaled(f"the method {name}", why)

    def _warn_of_attributes(self) -> None:
        new = {part: why for part, why in self._state.not_kept.items() if part not in self._reported}
        if new:
            self._reported |= new.keys()
            self._report.warn(
                "flow_attributes_not_kept",
                f"{', '.join(map(called, new))} of the flow will not be there if the kickoff is interrupted now: "
                f"{next(iter(new.values()))}; make it in __init__, or where it is used",
            )


async def worked(method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Runs a method as the flow's engine does: one that is not async runs in a thread."""
    if asyncio.iscoroutinefunction(method):
        return await method(*arguments, **named)
    result = await asyncio.to_thread(contextvars.copy_context().run, partial(method, *arguments, **named))
    return await result if asyncio.iscoroutine(result) else result


async def repeated(output: Any, *_: Any, **__: Any) -> Any:
    return output


async def to_its_end(work: Coroutine[Any, Any, bool]) -> bool:
    """Awaits `work` to its end. If the method loses a race meanwhile, its cancellation is delayed until then."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise
