from __future__ import annotations

import json
import threading

import pytest

from windlass_child.masking.redaction import Redaction
from windlass_child.process.budget import Spending, check_result
from windlass_child.process.error_text import LimitReached, explain
from windlass_child.process.report import Report
from windlass_child.protocol.frames import TooLarge, encode
from windlass_child.protocol.messages import Budget, Event, Failed, Message, Succeeded, TaskEnded, Warned
from windlass_child.protocol.sizes import size_in_words

pytestmark = pytest.mark.unit


MB = 1 << 20


class Narrow:
    """The worker's end, which takes frames of 1000 characters at most."""

    def __init__(self) -> None:
        self.heard: list[Message] = []

    def send(self, message: Message) -> None:
        size = len(json.dumps({name: getattr(message, name) for name in message.__slots__}))
        if size > 1000:
            raise TooLarge(type(message).__name__, 300 * MB)
        self.heard.append(message)


def test_no_limit_is_no_limit() -> None:
    spending = Spending(Budget())
    spending.count_tokens(10**9)
    for _ in range(1000):
        spending.begin_call()
    check_result(Succeeded("x" * MB), None)


def test_as_many_calls_begin_as_may_from_any_threads() -> None:
    spending, begun = Spending(Budget(model_call_limit=50)), []

    def call() -> None:
        for _ in range(20):
            try:
                spending.begin_call()
            except LimitReached:
                return
            begun.append(1)

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(begun) == 50


def test_tokens_are_used_up_when_there_are_none_left() -> None:
    spending = Spending(Budget(token_limit=100))
    spending.count_tokens(99)
    spending.begin_call()
    spending.count_tokens(1)
    with pytest.raises(LimitReached, match="used 100 tokens; its limit is 100"):
        spending.begin_call()


def test_a_reached_limit_is_told_with_its_reason_and_where_to_change_it() -> None:
    with pytest.raises(LimitReached) as caught:
        check_result(Succeeded("", '{"a":"\\u00e9"}'), 5)
    failed = explain(caught.value, "run", "/")
    assert (failed.reason, failed.message) == ("limit", "its result is 14 bytes; its limit is 5 bytes.")
    assert "result_limit" in failed.hint


@pytest.mark.parametrize(
    ("result", "size"),
    [(Succeeded("é"), 4), (Succeeded("not counted, as its JSON is", "[1,2]"), 5), (Succeeded("\ud800"), 5)],
)
def test_a_result_is_measured_as_json(result: Succeeded, size: int) -> None:
    check_result(result, size)
    with pytest.raises(LimitReached):
        check_result(result, size - 1)


@pytest.mark.parametrize(
    ("size", "words"), [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 KB"), (5 * MB, "5 MB"), (1 << 31, "2 GB")]
)
def test_sizes_in_words(size: int, words: str) -> None:
    assert size_in_words(size) == words


def test_a_result_that_no_frame_can_hold_fails_the_run_in_words() -> None:
    with pytest.raises(LimitReached, match="its result is 300 MB; the limit is 256 MB"):
        Report(Narrow(), Redaction({})).send(Succeeded("x" * 1000))


def test_of_a_task_whose_output_no_frame_can_hold_the_end_is_told() -> None:
    worker = Narrow()
    Report(worker, Redaction({})).send(TaskEnded(3, "completed", 1.0, "x" * 1000, "agent", 2.0))
    assert worker.heard == [
        TaskEnded(3, "completed", 1.0, None, "agent", 2.0),
        Warned("too_large", "the output of a task is 300 MB and is not kept; the limit is 256 MB"),
    ]


def test_an_event_that_no_frame_can_hold_is_told_by_its_name() -> None:
    worker = Narrow()
    Report(worker, Redaction({})).event("llm_call_completed", {"response": "x" * 1000})
    (warned,) = worker.heard
    assert isinstance(warned, Warned)
    assert warned.message.startswith("the event llm_call_completed is 300 MB and is not kept")


def test_the_reason_of_a_failure_is_told() -> None:
    worker = Narrow()
    Report(worker, Redaction({})).fail(LimitReached("a"), "run", "/project")
    (failed,) = worker.heard
    assert isinstance(failed, Failed)
    assert (failed.stage, failed.message, failed.reason) == ("run", "a", "limit")


def test_a_frame_that_is_too_large_is_refused_with_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass_child.protocol.frames.LARGEST_FRAME", 100)
    with pytest.raises(TooLarge) as caught:
        encode(Event("a", 1.0, {"text": "x" * 100}))
    assert caught.value.size > 100
