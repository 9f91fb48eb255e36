from __future__ import annotations

import signal

import pytest

from windlass.kickoffs.outcome import Ended, Outcome, decide
from windlass.kickoffs.states import Reason, State
from windlass_child.protocol.messages import Failed, Succeeded

pytestmark = pytest.mark.unit


KILLED = int(signal.SIGKILL)
EXITED_3 = 3 << 8


@pytest.mark.parametrize("status", [0, KILLED, EXITED_3, None])
def test_an_answer_counts_whatever_came_after_it(status: int | None) -> None:
    assert decide(Ended(Succeeded("out", "[1]"), status)) == Outcome(State.SUCCESS, output="out", structured="[1]")
    failed = decide(Ended(Failed("run", "It broke.", "trace", "Mend it."), status))
    assert failed == Outcome(State.FAILED, reason=Reason.ERROR, error="It broke. Mend it.", trace="trace")


def test_a_failure_without_advice_ends_with_what_happened() -> None:
    assert decide(Ended(Failed("run", "It broke"), 0)).error == "It broke"


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (0, "the crew's process ended with exit code 0 before it gave a result."),
        (EXITED_3, "the crew's process ended with exit code 3 before it gave a result."),
        (KILLED, "the crew's process was killed by SIGKILL. Perhaps the machine ran out of memory."),
        (int(signal.SIGSEGV), "the crew's process was killed by SIGSEGV. A library with native code failed:"),
        (int(signal.SIGSEGV) | 0x80, "the crew's process was killed by SIGSEGV."),
        (int(signal.SIGTERM), "the crew's process was killed by SIGTERM."),
        (50, "the crew's process was killed by signal 50."),
    ],
)
def test_without_an_answer_the_wait_status_says_what_happened(status: int, words: str) -> None:
    outcome = decide(Ended(None, status))
    assert (outcome.state, outcome.reason) == (State.FAILED, Reason.CRASHED)
    assert str(outcome.error).startswith(words)


def test_an_end_that_no_one_saw_is_a_loss() -> None:
    assert decide(Ended(None, None)).reason is Reason.LOST


def test_garbage_is_a_crash_of_its_own() -> None:
    outcome = decide(Ended(None, KILLED, garbled=True))
    assert outcome.reason is Reason.CRASHED
    assert "socket" in str(outcome.error)
