from __future__ import annotations

import os
import signal

import pytest

from windlass.kickoffs.outcome import Ended, Outcome, decide, lost, lost_too_often, words_for
from windlass.kickoffs.states import Reason, State
from windlass_child.protocol.messages import Failed, Inspected, Succeeded

pytestmark = pytest.mark.unit


EXITED_WITH_3 = 3 << 8


def test_the_answer_of_a_crew_is_its_outcome() -> None:
    found = decide(Ended(Succeeded("done", '{"n":1}'), 0))
    assert found == Outcome(State.SUCCESS, output="done", structured='{"n":1}')
    assert found.json == {"n": 1}
    assert Outcome(State.SUCCESS, output="done").json is None


@pytest.mark.parametrize("status", [0, EXITED_WITH_3, signal.SIGKILL, None])
def test_an_answer_counts_whatever_became_of_the_process_after_it(status: int | None) -> None:
    assert decide(Ended(Succeeded("done"), status)).state is State.SUCCESS
    assert decide(Ended(Failed("run", "no"), status)).reason is Reason.ERROR


def test_a_failure_is_told_with_its_hint_and_its_trace_is_for_the_log() -> None:
    found = decide(Ended(Failed("load", "No module named 'x'.", "Traceback ...", "Add x."), 0))
    assert found == Outcome(
        State.FAILED, reason=Reason.ERROR, error="No module named 'x'. Add x.", trace="Traceback ..."
    )


def test_a_process_that_ended_without_an_answer_has_crashed() -> None:
    found = decide(Ended(None, EXITED_WITH_3))
    assert (found.state, found.reason) == (State.FAILED, Reason.CRASHED)
    assert found.error is not None
    assert "exit code 3" in found.error


def test_the_answer_to_another_question_is_none() -> None:
    assert decide(Ended(Inspected({}), 0)).reason is Reason.CRASHED


def test_bytes_that_are_no_message_are_told_as_such() -> None:
    found = decide(Ended(None, int(signal.SIGKILL), garbled=True))
    assert found.reason is Reason.CRASHED
    assert found.error is not None
    assert "socket" in found.error


def test_a_process_whose_end_nobody_saw_was_lost() -> None:
    assert decide(Ended(None, None)) == lost("the crew's process was lost: the process that started it is gone")


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (signal.SIGKILL, "killed by SIGKILL. Perhaps the machine ran out of memory."),
        (signal.SIGSEGV, "killed by SIGSEGV. A library with native code failed"),
        (signal.SIGTERM, "killed by SIGTERM."),
        (signal.SIGRTMIN + 1, f"killed by signal {signal.SIGRTMIN + 1}."),
        (signal.SIGSEGV | 0x80, "killed by SIGSEGV"),  # with a core file
        (0, "exit code 0 before it gave a result. Look for os._exit in its code."),
        (os.EX_OSERR << 8, "exit code 71 before it gave a result. Most likely its code closed the socket"),
        (os.EX_SOFTWARE << 8, "exit code 70 before it gave a result. See the last lines of its output for the cause"),
    ],
)
def test_a_wait_status_is_told_in_words(status: int, words: str) -> None:
    assert words in words_for(status)


def test_how_often_a_kickoff_was_lost_is_told() -> None:
    assert "lost 4 times" in lost_too_often(3)


def test_inputs_that_were_refused_would_be_refused_again() -> None:
    assert decide(Ended(Failed("inputs", "no"), 0)).final
    assert not decide(Ended(Failed("run", "no"), 0)).final
