"""Decides the outcome of a run from the end of its process, and writes its error messages."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from windlass.kickoffs.states import Reason, State
from windlass.kickoffs.waiting import how_often
from windlass_child.protocol.messages import Asked, Failed, Inspected, Succeeded
from windlass_child.protocol.truncation import beginning

if TYPE_CHECKING:
    from windlass_child.protocol.fields import Text
    from windlass_child.protocol.messages import Tokens


@dataclass(frozen=True, slots=True)
class Outcome:
    """Describes how a run ended.

    With the `state` SUCCESS, the output is in `output`, or in the task record at the position `output_of`. `structured`
    holds the structured output, if there is one, as JSON text that is not parsed yet. With another `state`, there are a
    `reason` and an `error`, one line that a person can act on. A run that was stopped can have an output too. `trace`
    is for the log and the event `traceback`.
    With the state PENDING_HUMAN_INPUT the run is paused: it has `asked` a person.
    `final` means that another attempt would end the same way: the inputs were refused, or the process broke the
    protocol.
    """

    state: State
    output: Text | None = None
    output_of: int | None = None
    structured: Text | None = None
    reason: Reason | None = None
    error: str | None = None
    trace: str = ""
    final: bool = False
    asked: Asked | None = None

    @property
    def json(self) -> Any:
        """Returns the parsed structured output. Parsing may take seconds: other requests must not wait for it."""
        if self.structured is None or isinstance(self.structured, str):
            return json.loads(self.structured or "null")
        return self.structured.value


Answer = Inspected | Succeeded | Failed | Asked
"""The last message of a child that completed its order, or that can't go on without a person."""


@dataclass(frozen=True, slots=True)
class Termination:
    """Requests the end of a run, with the state and reason to record: a stop, or a limit that was reached.

    With `at_once` the run gets no time to end on its own.
    """

    state: State
    reason: Reason
    error: str
    at_once: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """Holds the facts about a child that has ended.

    - `status`: its wait status; None if no process waited for it, because its parent, the zygote, is gone
    - `garbled`: it sent bytes that are no message
    - `refused`: the reason why its message was not accepted
    - `over_limit`: the reason why its message was too large
    - `asked`: the termination that was requested
    - `memory_known`: the kernel counts processes that it kills for lack of memory, and it counted none
    """

    answer: Answer | None = None
    status: int | None = None
    garbled: bool = False
    refused: str = ""
    over_limit: str = ""
    asked: Termination | None = None
    memory_known: bool = False


def decide(ended: Ended) -> Outcome:
    """Returns the outcome of a run. A result counts even if the process failed after it: it may have cost much.

    A run that was stopped is cancelled, because the answer to the request has promised so. Its result is kept. A
    question to a person counts only if nothing has ended the run.
    """
    match ended:
        case Ended(answer=Succeeded(output=output, structured=structured, output_of=output_of)):
            text = output if output_of is None else None
            outcome = Outcome(State.SUCCESS, output=text, output_of=output_of, structured=structured)
            stop = ended.asked if ended.asked and ended.asked.state is State.CANCELLED else None
            return cancelled_outcome(outcome, stop.error) if stop else outcome
        case Ended(asked=Termination() as asked):
            return Outcome(asked.state, reason=asked.reason, error=asked.error)
        case Ended(answer=Failed() | Asked() as answer):
            return _failed(answer) if isinstance(answer, Failed) else Outcome(State.PENDING_HUMAN_INPUT, asked=answer)
    if ended.garbled or ended.over_limit:
        reason = Reason.LIMIT if ended.over_limit else Reason.CRASHED
        return failure(reason, ended.over_limit or ended.refused or GARBLED, final=True)
    if ended.status is None:
        return lost("the crew's process was lost: the process that started it is gone")
    return failure(Reason.CRASHED, words_for(ended.status, memory_known=ended.memory_known))


def _failed(failed: Failed) -> Outcome:
    message = f"{beginning(failed.message, LONGEST_WORDS)} {beginning(failed.hint, LONGEST_WORDS)}".strip()
    trace = beginning(failed.trace, LONGEST_TRACE)
    return failure(Reason(failed.reason), message, trace, final=failed.stage == "inputs")


GARBLED = "the crew's code wrote to the socket that its process reports on. Look for os.write."
LONGEST_WORDS = 2000
LONGEST_TRACE = 200_000
"""Characters of the message and of the trace of a failure that are kept."""


def failure(reason: Reason, error: str, trace: str = "", *, final: bool = False) -> Outcome:
    return Outcome(State.FAILED, reason=reason, error=error, trace=trace, final=final)


def cancelled_outcome(outcome: Outcome, error: str) -> Outcome:
    """Returns the outcome of a run that was stopped and ended like `outcome`."""
    return replace(outcome, state=State.CANCELLED, reason=Reason.CANCELLED, error=error)


def lost(error: str) -> Outcome:
    """Returns the outcome of a lost run. The crew did not cause the loss, so the kickoff may be run again."""
    return failure(Reason.LOST, error)


def lost_too_often(max_losses: int) -> str:
    return (
        f"The process or the worker that ran this kickoff was lost {how_often(max_losses + 1)}, so the kickoff is not "
        "run again. Look in the server's log for the cause (often: out of memory)."
    )


MOST_UNSTARTED = 10
"""Attempts in a row that may end before a process has started. Such an attempt is no loss, but can't go on for ever."""


def never_started(max_losses: int) -> str:
    if not max_losses:
        return lost_too_often(max_losses)
    return (
        f"No process of this kickoff started in {MOST_UNSTARTED} attempts in a row, so the kickoff is not run again. "
        "Look in the server's log for the cause (often: a slow database, or too many processes)."
    )


def words_for(status: int, *, memory_known: bool = False) -> str:
    """Returns the error for a process that ended with this wait status and without an answer."""
    if not os.WIFSIGNALED(status):
        code = os.waitstatus_to_exitcode(status)
        look = WHERE_TO_LOOK.get(code, "Look for os._exit in its code.")
        return f"the crew's process ended with exit code {code} before it gave a result. {look}"
    number = os.WTERMSIG(status)
    advice = NOT_FOR_MEMORY if memory_known and number == signal.SIGKILL else ADVICE.get(number, "")
    return f"the crew's process was killed by {signal_name(number)}. {advice}".strip()


def signal_name(number: int) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


WHERE_TO_LOOK = {
    os.EX_SOFTWARE: "See the last lines of its output for the cause; if they show none, look for os._exit in its code.",
    os.EX_OSERR: "Most likely its code closed the socket that the process reports on: look for os.closerange, os.close "
    "and os._exit.",
}
"""Advice for two exit codes of a child. EX_SOFTWARE: code of Windlass failed and printed its trace (child.live).
EX_OSERR: the child could not reach the worker (report.end_without_reader).
"""

NOT_FOR_MEMORY = "Memory did not run out: the kernel counts that. Look for the process that sent the signal."
NATIVE = "A library with native code failed: see the last lines of its output for its name."
ADVICE: dict[int, str] = {
    signal.SIGKILL: "Perhaps the machine ran out of memory.",
    signal.SIGSEGV: NATIVE,
    signal.SIGABRT: NATIVE,
    signal.SIGBUS: NATIVE,
}


STOPPED = "the kickoff was stopped on request."
SUPERSEDED = "a newer kickoff with the same concurrencyKey took its place."


def stopped() -> Termination:
    return Termination(State.CANCELLED, Reason.CANCELLED, STOPPED)


@dataclass(slots=True)
class TokenUsage:
    """Sums the tokens of a kickoff's model calls. The names of the fields are the framework's."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    cached_prompt_tokens: int = 0
    reasoning_tokens: int = 0
    successful_requests: int = 0

    def add(self, call: Tokens) -> None:
        self.prompt_tokens += call.prompt
        self.completion_tokens += call.completion
        self.total_tokens += call.total
        self.cached_prompt_tokens += call.cached_prompt
        self.reasoning_tokens += call.reasoning
        self.successful_requests += 1

    def to_json(self) -> dict[str, int]:
        return asdict(self)
