"""An output of many megabytes is sent once, though it is the task's and the result's."""

from __future__ import annotations

import pytest

from windlass_child.masking.redaction import Redaction
from windlass_child.process.report import LARGE, Report
from windlass_child.protocol.messages import Message, Succeeded, TaskEnded, TaskStarted

pytestmark = pytest.mark.unit


OUTPUT = "x" * (LARGE + 1)


class Worker:
    def __init__(self) -> None:
        self.heard: list[Message] = []

    def send(self, message: Message) -> None:
        self.heard.append(message)


def ended(position: int, output: str | None) -> TaskEnded:
    return TaskEnded(position, "completed", 1.0, output, "agent", 2.0)


def result_after(*told: Message, output: str = OUTPUT) -> Message:
    worker = Worker()
    report = Report(worker, Redaction({}))
    for message in [*told, Succeeded(output, "{}")]:
        report.send(message)
    return worker.heard[-1]


def test_a_result_that_is_a_tasks_output_is_not_sent_again() -> None:
    assert result_after(ended(0, "a"), ended(1, OUTPUT)) == Succeeded("", "{}", 1)
    assert result_after(ended(0, OUTPUT), ended(1, OUTPUT)) == Succeeded("", "{}", 1)
    assert result_after(ended(1, OUTPUT), ended(0, "short")) == Succeeded("", "{}", 1)


@pytest.mark.parametrize(
    "told",
    [
        [],
        [ended(0, OUTPUT + "y")],
        [ended(0, None)],
        [ended(0, OUTPUT), TaskStarted(0, "key", "a", "agent", 2.0)],
        [ended(0, OUTPUT), ended(0, "of a second kickoff")],
    ],
    ids=["alone", "another", "not kept", "task begun again", "task ended again"],
)
def test_a_result_that_no_task_record_holds_is_sent(told: list[Message]) -> None:
    assert result_after(*told) == Succeeded(OUTPUT, "{}")


def test_a_short_result_is_sent_with_the_answer() -> None:
    assert result_after(ended(0, "done"), output="done") == Succeeded("done", "{}")
