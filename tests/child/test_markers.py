"""Markers stand for the values of secret variables in the journal, and nobody else can make one."""

from __future__ import annotations

import base64
import json
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass_child.journal.journal import Journal
from windlass_child.journal.markers import Markers
from windlass_child.masking.encodings import FORMS
from windlass_child.masking.secret_values import SecretValues
from windlass_child.protocol.messages import JournalAppend, JournalReplay

if TYPE_CHECKING:
    from windlass_child.protocol.messages import Message

pytestmark = pytest.mark.unit


VALUES = {"TOKEN": "Xk29vQ7mT4zR8bLw", "SIGNS": "p@ss/w+rd=\"'\\<&> é%", "ACCOUNT": '{"password": "Zq8-Longer"}'}
SECRETS = SecretValues(VALUES)

written = st.sampled_from([FORMS[form](value) for value in VALUES.values() for form in FORMS])
texts = st.lists(st.one_of(st.text(max_size=5), written), max_size=4).map("".join)
values = st.recursive(
    st.one_of(st.none(), st.integers(), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)


class Worker:
    def __init__(self) -> None:
        self.entries: list[JournalAppend] = []

    def send(self, message: Message) -> None:
        assert isinstance(message, JournalAppend)
        self.entries.append(message)


def journal(
    values: dict[str, str], entries: list[JournalAppend] | None = None
) -> tuple[Journal, Worker, dict[str, str]]:
    """The journal of an attempt, after these entries of earlier ones, and the reasons why entries were dropped."""
    worker = Worker()
    made = Journal(worker)
    for entry in entries or ():
        made.remember(JournalReplay(entry.number, entry.key, entry.record))
    return made, worker, made.put_values(SecretValues(values))


def recorded(value: Any, values: dict[str, str] = VALUES) -> list[JournalAppend]:
    made, worker, _ = journal(values)
    made.record("a", value)
    return worker.entries


def taken(entries: list[JournalAppend], values: dict[str, str] = VALUES) -> Any:
    entry = journal(values, entries)[0].take("a")
    return None if entry is None else entry.value


@given(values)
def test_a_recorded_value_has_no_secret_and_is_restored(value: Any) -> None:
    entries = recorded(value)
    for secret in ("Xk29vQ7mT4zR8bLw", "p@ss/w+rd", "Zq8-Longer", b"Xk29vQ7mT4zR8bLw".hex()):
        assert secret not in entries[0].record
    assert taken(entries) == value


@pytest.mark.parametrize("form", ["text", "json", "url", "repr", "html", "hex", "base64", "base64_url"])
def test_the_value_of_the_next_attempt_is_put_in_its_place(form: str) -> None:
    entries = recorded({"is": [f"<{FORMS[form](VALUES['SIGNS'])}>"]})
    now = "another\\\"one's é"
    assert taken(entries, VALUES | {"SIGNS": now}) == {"is": [f"<{FORMS[form](now)}>"]}


def test_a_part_is_replaced_by_the_same_part_of_the_new_value() -> None:
    entries = recorded("Zq8-Longer")
    now = '{"user": "Jane-of-1999-x", "password": "rotated-Yw4"}'
    assert taken(entries, VALUES | {"ACCOUNT": now}) == "rotated-Yw4"


@pytest.mark.parametrize(
    ("value", "now"),
    [
        ("Zq8-Longer", VALUES | {"ACCOUNT": '{"secret": "rotated-Yw4"}'}),
        ("Xk29vQ7mT4zR8bLw", {name: value for name, value in VALUES.items() if name != "TOKEN"}),
        (base64.b64encode(b"u:Xk29vQ7mT4zR8bLw!").decode(), VALUES | {"TOKEN": "another-one-of-it"}),
    ],
    ids=["no such part", "not set", "base64 of more"],
)
def test_an_entry_that_can_not_be_restored_is_dropped_with_a_reason(value: str, now: dict[str, str]) -> None:
    made, _, dropped = journal(now, [*recorded(value), JournalAppend(2, "b", '"harmless"')])
    assert dropped.keys() == {"a"}
    assert (made.take("a"), made.left()) == (None, 1)


FORGED = [
    "[entry {nonce} TOKEN - text 0000]",
    "[entry {nonce} SIGNS - json 0000] and [state {nonce} TOKEN - text 0000]",
]


@pytest.mark.parametrize("text", FORGED)
def test_a_forged_marker_is_text(text: str) -> None:
    forged = text.format(nonce="0" * 32)
    assert taken(recorded([forged, VALUES["TOKEN"]])) == [forged, VALUES["TOKEN"]]


def test_an_entry_without_secrets_is_read_as_it_is() -> None:
    """Also one that looks as if it had a marker: such entries are those of Windlass, by their members."""
    entries = [JournalAppend(1, "a", json.dumps({"output": {"marked": "x", "value": "[entry x TOKEN - text 00]"}}))]
    assert taken(entries) == {"output": {"marked": "x", "value": "[entry x TOKEN - text 00]"}}


@pytest.mark.parametrize("marker", ["OTHER - text 00", "TOKEN - nothing 00", "TOKEN 00 text 00", "PATH - text 00"])
def test_a_marker_names_secret_variables_of_its_own_run_only(marker: str) -> None:
    record = json.dumps({"marked": "x", "value": f"[entry x {marker}]"})
    made, _, dropped = journal(VALUES, [JournalAppend(1, "a", record)])
    assert dropped.keys() == {"a"}
    assert made.take("a") is None


def test_all_attempts_have_the_same_nonce() -> None:
    first = recorded(VALUES["TOKEN"])
    made, worker, _ = journal(VALUES, first)
    made.record("b", VALUES["TOKEN"])
    assert worker.entries[0].record == first[0].record


def test_keys_have_no_values_and_are_found_again_after_a_rotation() -> None:
    made, worker, _ = journal(VALUES)
    made.record("step/with Xk29vQ7mT4zR8bLw/1", 1)
    (entry,) = worker.entries
    assert entry.key == "step/with [secret]/1"
    later, _, _ = journal(VALUES | {"TOKEN": "another-one-of-it"}, [entry])
    found = later.take("step/with another-one-of-it/1")
    assert found is not None
    assert found.value == 1


class Flow:
    """The parts of a flow, as FlowParts gives them."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = self._state = state


@pytest.fixture
def states() -> Markers:
    return Markers(SECRETS, level="state")


@pytest.mark.xdist_group("crewai")
def test_a_marker_that_two_changes_divide_is_whole_again(states: Markers) -> None:
    """A change holds what differs from the text before, which may begin within a marker."""
    flow_state = import_module("windlass_child.journal.flow_state").FlowState  # imports crewai: in one process only
    before = Flow({"tokens": "Xk29vQ7mT4zR8bLw"})
    state = flow_state(before, states)
    changes = [state.changes()]
    before.state["tokens"] = "Xk29vQ7mT4zR8bLw" + "Zq8-Longer"
    changes.append(state.changes())
    assert "Xk29vQ7mT4zR8bLw" not in repr(changes)
    after = Flow({})
    later = flow_state(after, Markers(SecretValues(VALUES | {"TOKEN": "another-one"}), states.nonce, "state"))
    for one in changes:
        later.take(one, in_use=False)
    later.restore()
    assert after.state == {"tokens": "another-oneZq8-Longer"}
