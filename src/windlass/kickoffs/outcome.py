from __future__ import annotations

import json
import os
import signal
from dataclasses import dataclass
from typing import Any

from windlass.kickoffs.numbers import how_often
from windlass.kickoffs.states import Reason, State
from windlass_crewside.messages import Failed, Inspected, Succeeded


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended, before anything acts on it.

    `state` is SUCCESS with `output`, or with `output_of`, the position of the task record that holds it (and
    `structured` where there is structured output: JSON text that nobody has read yet), or FAILED with `reason` and
    `error`, one line that a person can act on. `trace` is for the log alone. `final` says that another attempt would
    end the same way: the inputs were refused.
    """

    state: State
    output: str | None = None
    output_of: int | None = None
    structured: str | None = None
    reason: Reason | None = None
    error: str | None = None
    trace: str = ""
    final: bool = False

    @property
    def json(self) -> Any:
        """The structured output. Reading it may take seconds: nothing that others wait for should."""
        return None if self.structured is None else json.loads(self.structured)


Answer = Inspected | Succeeded | Failed
"""The last message of a child that came to its end."""


@dataclass(frozen=True, slots=True)
class Ending:
    """What a run is to end as, decided outside of it: it was stopped, or a limit was reached.

    `at_once` leaves it no time to come to an end by itself.
    """

    state: State
    reason: Reason
    error: str
    at_once: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """What is known of a child that is no more.

    `status` its wait status, None when no one saw it end (the
    zygote, its parent, is gone); `garbled` that it sent bytes that are no message; `asked` why it was made to end.
    """

    answer: Answer | None = None
    status: int | None = None
    garbled: bool = False
    asked: Ending | None = None


def decide(ended: Ended) -> Outcome:
    """A result counts whatever became of the process after it, for it may have cost much."""
    match ended:
        case Ended(answer=Succeeded(output=output, structured=structured, output_of=output_of)):
            told = output if output_of is None else None
            return Outcome(State.SUCCESS, output=told, output_of=output_of, structured=structured)
        case Ended(asked=Ending() as asked):
            return Outcome(asked.state, reason=asked.reason, error=asked.error)
        case Ended(answer=Failed() as failed):
            words = f"{failed.message} {failed.hint}".strip()
            return failure(Reason(failed.reason), words, failed.trace, final=failed.stage == "inputs")
    if ended.garbled:
        return failure(
            Reason.CRASHED, "the crew's code wrote to the socket that its process reports on. Look for os.write."
        )
    if ended.status is None:
        return lost("the crew's process was lost: the process that started it is gone")
    return failure(Reason.CRASHED, words_for(ended.status))


def failure(reason: Reason, error: str, trace: str = "", *, final: bool = False) -> Outcome:
    return Outcome(State.FAILED, reason=reason, error=error, trace=trace, final=final)


def lost(error: str) -> Outcome:
    """Not the crew's fault: it may be tried again."""
    return failure(Reason.LOST, error)


def lost_too_often(max_losses: int) -> str:
    return (
        f"The process or the worker that ran this kickoff was lost {how_often(max_losses + 1)}, so it is not tried "
        "again. Look in the server's log for what ended them (often: out of memory)."
    )


def words_for(status: int) -> str:
    """What a wait status says of a process that ended without an answer."""
    if not os.WIFSIGNALED(status):
        code = os.waitstatus_to_exitcode(status)
        look = WHERE_TO_LOOK.get(code, "Look for os._exit in its code.")
        return f"the crew's process ended with exit code {code} before it gave a result. {look}"
    number = os.WTERMSIG(status)
    return f"the crew's process was killed by {signal_name(number)}. {ADVICE.get(number, '')}".strip()


def signal_name(number: int) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


WHERE_TO_LOOK = {
    os.EX_SOFTWARE: "The last lines of its output tell why; if none do, look for os._exit in its code.",
    os.EX_OSERR: "Most likely its code closed the socket that the process reports on: look for os.closerange, os.close "
    "and os._exit.",
}
"""For the exit codes of a child that failed in code of Windlass's own, which prints the trace (child.live), or that
could not reach the worker (report.end_unheard).
"""

NATIVE = "A library with native code failed: the last lines of its output tell which."
ADVICE: dict[int, str] = {
    signal.SIGKILL: "Perhaps the machine ran out of memory.",
    signal.SIGSEGV: NATIVE,
    signal.SIGABRT: NATIVE,
    signal.SIGBUS: NATIVE,
}
