"""The journal in a crew's process: what it remembers, and how it waits for what it writes."""

from __future__ import annotations

import json
import math
import os
import threading
from importlib import import_module
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projects_for_tests.driver import until
from windlass_child.journal.journal import FinishedStep, Journal
from windlass_child.masking.redaction import Redaction
from windlass_child.process.report import Report
from windlass_child.protocol.frames import TooLarge
from windlass_child.protocol.messages import Asked, JournalAppend, JournalReplay, Message, Warned
from windlass_child.protocol.truncation import LONGEST, short_or_noted, shortened

MB = 1 << 20
with_crewai = pytest.mark.xdist_group("crewai")


class Worker:
    """Takes what a run says; of entries over `largest` characters it takes none."""

    def __init__(self, largest: float = math.inf) -> None:
        self.heard: list[Message] = []
        self._largest = largest

    def send(self, message: Message) -> None:
        if isinstance(message, JournalAppend) and len(message.record) > self._largest:
            raise TooLarge("JournalAppend", 300 * MB)
        self.heard.append(message)

    def numbers(self) -> list[int]:
        return [message.number for message in self.heard if isinstance(message, JournalAppend)]


def test_what_is_recorded_is_waited_for_until_it_is_written() -> None:
    worker = Worker()
    journal = Journal(worker)
    journal.committed()
    journal.record("a", {"b": 1}, 3)
    journal.record("c", 2)
    waiting = threading.Thread(target=journal.committed)
    waiting.start()
    for number in (7, 1):
        journal.written(number)
        waiting.join(0.05)
        assert waiting.is_alive()
    journal.written(2)
    waiting.join(60)
    assert not waiting.is_alive()
    assert worker.heard == [JournalAppend(1, "a", '{"b":1}', 3), JournalAppend(2, "c", "2")]


def test_an_entry_reports_whether_the_run_has_files() -> None:
    worker = Worker()
    journal = Journal(worker)
    journal.record("a", 1)
    for files in (False, True):
        journal.has_files = lambda files=files: files  # type: ignore[misc]
        journal.record("b", 2)
    assert [message.files for message in worker.heard if isinstance(message, JournalAppend)] == [True, False, True]


def test_many_threads_record_at_once_and_each_waits_for_what_was_recorded_before() -> None:
    worker = Worker()
    journal = Journal(worker)

    def step(number: int) -> None:
        journal.record(f"key {number}", number)
        journal.committed()

    threads = [threading.Thread(target=step, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    until(lambda: len(worker.numbers()) == 20)
    assert worker.numbers() == list(range(1, 21)), "in the order in which they are sent"
    for number in reversed(worker.numbers()):
        journal.written(number)
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)


def test_numbers_count_on_from_those_that_are_remembered() -> None:
    worker = Worker()
    journal = Journal(worker)
    journal.remember(JournalReplay(4, "a", "{}"))
    journal.remember(JournalReplay(2, "b", "{}"))
    journal.record("c", None)
    assert worker.numbers() == [5]


def test_each_entry_is_taken_once_and_of_two_with_one_key_the_later() -> None:
    journal = Journal(Worker())
    for entry in (JournalReplay(1, "a/x", "1"), JournalReplay(2, "b/y", "2", "out"), JournalReplay(3, "a/x", "3")):
        journal.remember(entry)
    journal.remember(JournalReplay(4, "a/z", "{no json"))
    assert journal.take("b/y") == FinishedStep(2, 2, "out")
    assert journal.take("b/y") is None
    assert journal.take_all("a/") == {"x": FinishedStep(3, 3, None)}
    assert journal.left() == 0


def test_a_forked_process_waits_for_nothing() -> None:
    worker = Worker()
    journal = Journal(worker)
    journal.record("before", 1)
    pid = os.fork()
    if pid == 0:
        journal.record("a", 1)
        journal.committed()
        os._exit(len(worker.heard) - 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def asked(number: int, key: str, record: str, files: bool) -> Asked:
    return Asked(number, key, "Fine?", "", None, None, [], record, waits=False, files=files)


def test_a_question_is_the_last_entry_and_nothing_waits_for_it() -> None:
    worker = Worker()
    journal = Journal(worker)
    journal.record("a", 1)
    assert journal.ask("q", {"kept": 2}, asked) == 2
    journal.record("b", 1)
    journal.committed()
    assert worker.heard[1:] == [asked(2, "q", '{"kept":2}', True)]


def test_a_forked_process_can_not_ask() -> None:
    journal = Journal(Worker())
    pid = os.fork()
    if pid == 0:
        with pytest.raises(ValueError, match="in another process"):
            journal.ask("q", 1, asked)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("x" * 2000, "its output is 300 MB; the limit is 256 MB"),
        ({"a": object()}, "Object of type object is not JSON serializable"),
    ],
    ids=["large", "no json"],
)
def test_what_can_not_be_recorded_is_told_and_the_run_goes_on(value: Any, why: str) -> None:
    worker = Worker(largest=1000)
    report = Report(worker, Redaction({}))
    assert not report.finished("a", value, "the task a")
    said = f"the task a is run again if the kickoff is interrupted after it: {why}"
    assert worker.heard == [Warned("not_journaled", said)]
    assert worker.numbers() == []


def test_what_could_not_be_sent_takes_no_number() -> None:
    worker = Worker(largest=10)
    journal = Journal(worker)
    with pytest.raises(TooLarge):
        journal.record("a", "x" * 100)
    journal.record("b", 1)
    assert worker.numbers() == [1]


def flow_state() -> Any:
    """The module, which imports crewai: only when a test of it runs, in one process."""
    return import_module("windlass_child.journal.flow_state")


class Flow:
    """What is journaled of one: its state, and attributes that are set on it."""

    __slots__ = ("__dict__", "state")
    __pydantic_private__: ClassVar[dict[str, Any]] = {}

    def __init__(self, state: dict[Any, Any]) -> None:
        self.state = state


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers() | st.just("$"), inner, max_size=4)
    ),
    max_leaves=10,
)
STATES = st.lists(st.dictionaries(st.sampled_from(["a", "b", "é", "$", 1, (1, "a")]), VALUES), min_size=1, max_size=6)


@with_crewai
@given(STATES)
def test_any_state_comes_back_from_its_changes(states: list[dict[Any, Any]]) -> None:
    flow, again = Flow({}), Flow({"other": 1})
    before, after = flow_state().FlowState(flow), flow_state().FlowState(again)
    for state in states:
        flow.state = state
        after.take(json.loads(json.dumps(before.changes())), in_use=False)
    after.restore()
    assert again.state.pop("other") == 1, "what was not changed stays"
    assert again.state == states[-1]
    assert repr(sorted(again.state.items(), key=str)) == repr(sorted(states[-1].items(), key=str)), (
        "and of the same types"
    )


@with_crewai
def test_a_change_is_made_to_nothing_but_what_it_was_made_from() -> None:
    flow = Flow({"a": [1], "b": 1})
    state = flow_state().FlowState(flow)
    state.changes()
    flow.state["a"].append(2)
    later = state.changes()
    other = Flow({"b": 1})
    with pytest.raises(ValueError, match=r"the item a is not what it was before it"):
        flow_state().FlowState(other).take(later, in_use=False)
    assert other.state == {"b": 1}


@with_crewai
@pytest.mark.parametrize(
    ("changed", "in_use", "fits"),
    [
        ({}, False, True),
        ({}, True, False),
        ({"a": [0]}, False, False),
        ({"a": [1]}, True, True),
        ({"b": 2}, False, True),
    ],
    ids=["not touched", "in use", "changed in another way", "changed in the same way", "another part changed"],
)
def test_no_change_goes_over_what_code_has_changed_meanwhile(
    changed: dict[str, Any], *, in_use: bool, fits: bool
) -> None:
    flow, again = Flow({"a": []}), Flow({"a": []})
    before, after = flow_state().FlowState(flow), flow_state().FlowState(again)
    after.take(before.changes(), in_use=False)
    after.restore()
    flow.state["a"].append(1)
    after.watch()
    again.state |= changed
    if fits:
        after.take(before.changes(), in_use=in_use)
        after.restore()
        assert again.state == {"a": [1]} | changed
    else:
        with pytest.raises(ValueError, match=r"a method that was run again has changed the item a, or may"):
            after.take(before.changes(), in_use=in_use)


@with_crewai
def test_of_a_list_that_grows_the_new_items_are_written() -> None:
    flow = Flow({"said": ["x" * 1000], "other": "y" * 1000})
    state = flow_state().FlowState(flow)
    assert len(json.dumps(state.changes())) > 2000
    flow.state["said"].append("z")
    ((part, same, added, _),) = state.changes()
    assert (part, same, added) == ('["item","said"]', 1003, ',"z"]')
    state.forget()
    assert [changed[2] for changed in state.changes()] == [',"z"]'], "it was not written"
    assert state.changes() == []


@with_crewai
@given(st.text("ab"), st.text("ab"))
def test_the_common_beginning_is_the_longest(one: str, other: str) -> None:
    same = os.path.commonprefix([one, other])  # noqa: RUF071 - of texts it is what is wanted
    assert one[: flow_state().common(one, other)] == same


def test_long_strings_of_an_event_are_cut_wherever_they_are_with_their_size() -> None:
    long = "é" * (10 * MB)
    (cut,) = shortened({"a": [{"b": long}]})["a"]
    assert cut["b"] == "é" * LONGEST + "... (20 MB in all)"
    assert shortened({"a": "x" * LONGEST, "n": 1}) == {"a": "x" * LONGEST, "n": 1}


def test_of_a_long_state_the_size_is_told() -> None:
    assert short_or_noted({"a": 1}) == {"a": 1}
    assert short_or_noted(["x" * 1000] * 1024) == "... (1004 KB in all)"


def test_a_secret_is_redacted_before_a_string_is_cut() -> None:
    worker = Worker()
    secret = "sk-0123456789abcdef"
    Report(worker, Redaction({"KEY": secret})).event("a", {"text": "x" * (LONGEST - 5) + secret})
    assert "sk-01" not in repr(worker.heard)
