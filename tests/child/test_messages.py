from __future__ import annotations

import dataclasses
import json
import os
import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.kickoffs.events import stored_event
from windlass.kickoffs.outcome import Ended, TokenUsage, decide, words_for
from windlass.kickoffs.tasks import TaskRecords
from windlass.runner.incoming import Incoming, utf8_size
from windlass_child.protocol.frames import HEADER, LARGEST_FRAME, BadMessage, Frames, encode
from windlass_child.protocol.messages import (
    FROM_CHILD,
    TYPES,
    Abort,
    Answered,
    Asked,
    Begun,
    Born,
    Budget,
    Event,
    Exited,
    Failed,
    Fork,
    Forked,
    Idle,
    Inspect,
    Inspected,
    JournalAppend,
    JournalCommitted,
    JournalReplay,
    Kill,
    Lease,
    Listening,
    Loaded,
    Message,
    ModelCalled,
    NextRun,
    NotForked,
    Preload,
    ProcessEnvironment,
    Project,
    Quit,
    Ready,
    Run,
    Signal,
    Succeeded,
    TaskEnded,
    TasksKnown,
    TaskStarted,
    Tokens,
    Unready,
    Warned,
)
from windlass_child.protocol.validation import Encoded

pytestmark = pytest.mark.unit


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
PROJECT, PLACE = Project("function", "/p", "a:b"), ProcessEnvironment({"A": "é"}, "/f")
RUN = Run("id", 2, PROJECT, PLACE, {"x": [1, None]}, Budget(token_limit=5))

EVERY: list[Message] = [
    Fork("c", "/f", "exec"),
    Kill("c"),
    Signal("c", 15, below=True),
    Preload(PROJECT, {"A": "b"}),
    Ready("3.11", "crewai", "1.0", degraded=["crewai_without_hooks"]),
    Unready("no", "crewai"),
    Forked("c", 300),
    NotForked("c", "no"),
    Exited("c", 300, 9),
    Inspect(PROJECT, PLACE),
    Lease(12.5, "c"),
    JournalReplay(1, "k", '{"a":1}', "out"),
    RUN,
    NextRun(),
    Quit(),
    Abort("stop"),
    JournalCommitted(1),
    Answered(1, approved=False, feedback="shorter"),
    Listening(),
    Born(memory=True),
    Begun(),
    Loaded(),
    Idle(),
    Inspected({"name": "a"}),
    TasksKnown([{"key": "k", "name": None, "agent": "b"}]),
    TaskStarted(0, "k", "n", None, 1.5),
    TaskEnded(0, "completed", 2.5, "out", "a", 1.0),
    JournalAppend(1, "k", '{"a":1}', 0),
    Asked(2, "k", "Approve?", "draft", 0, None, ["yes"], '{"a":1}', waits=False, files=False),
    ModelCalled(),
    Tokens(1, 2, 3, 4, 5),
    Event("a", 1.5, {"b": ["c", 1, None]}),
    Warned("c", "m", 0),
    Succeeded("o", '{"a":1}'),
    Failed("run", "m", "t", "h", "limit"),
]
ASKED = Asked(1, "k", "q", "d", None, None, [], "{}", waits=False)

WRONG: list[Any] = [
    *("", "x", "\x00", "\ud800", "never", "2"),
    *(None, True, False, 0, 1, -1, 3, 1 << 31, 1 << 63, -(1 << 63), 10**30, 10**400, 0.5, -1e300, 1e18),
    *(float("nan"), float("inf"), float("-inf")),
    *([], ["x"], [[]], [1], {}, {"x": 1}, {"x": "y"}, {"key": 1, "name": None, "agent": None}, [{}], [{"key": "k"}]),
    [{"key": 5, "name": None, "agent": None}],
    [{"key": "k", "name": [], "agent": None}],
]

KINDS = {"str": str, "int": int, "float": float, "bool": bool}
"""What a field of a plain annotation holds."""


def fields_of(message: Message) -> dict[str, Any]:
    head, _, payload = encode(message)[4:].partition(b"\n")
    fields: dict[str, Any] = json.loads(head)
    return {**fields, "payload": json.loads(payload)} if fields.pop("parts", None) else fields


def given_to_the_worker(message: Message) -> None:
    """What a worker does with it at once: none of it may fail for what a crew's process sent."""
    records = TaskRecords(())
    match message:
        case TasksKnown():
            records.know(message)
        case TaskStarted():
            records.start(message)
        case TaskEnded():
            records.start(TaskStarted(message.position, "k", None, None, 1.0))
            records.end(message)
        case Tokens():
            usage = TokenUsage()
            usage.add(message)
            json.dumps(usage.to_json(), allow_nan=False)
        case Event():
            json.loads(stored_event(1, message.type, message.at, message.payload).payload)
        case Succeeded() | Failed():
            decide(Ended(message, 0))
        case Exited():
            words_for(message.status)


def through(*chunks: bytes) -> list[Message]:
    frames = Frames()
    return [message for chunk in chunks for message in frames.feed(chunk)]


def decode(body: bytes) -> Message:
    (message,) = through(HEADER.pack(len(body)) + body)
    return message


@given(ANY_JSON, st.text())
def test_any_json_comes_out_as_it_went_in(value: Any, text: str) -> None:
    message = Event(text, 1.0, {text: value})
    assert through(encode(message)) == [message]


@pytest.mark.parametrize("message", EVERY, ids=lambda message: type(message).__name__)
def test_every_message_comes_out_as_it_went_in(message: Message) -> None:
    assert through(encode(message)) == [message]


def test_every_type_is_tried_here() -> None:
    assert {type(message).__name__ for message in EVERY} == set(TYPES)


@given(st.integers(1, 40))
def test_how_the_bytes_arrive_makes_no_difference(size: int) -> None:
    stream = encode(RUN) + encode(Event("a", 1.5, {"b": "c"})) + encode(TaskEnded(1, "failed", 2.0))
    chunks = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert through(*chunks) == [RUN, Event("a", 1.5, {"b": "c"}), TaskEnded(1, "failed", 2.0)]


def received(*chunks: bytes) -> list[Message]:
    """As the server reads them of a child."""
    incoming = Incoming(FROM_CHILD)
    return [one.message() for chunk in chunks for one in incoming.feed(chunk)]


LARGE: list[Message] = [
    TaskEnded(0, "completed", 1.0, 'é"\\\n' * 20_000),
    Event("a", 1.0, {"a": ["x" * 20_000, {"b": None}]}),
    Succeeded("o" * 20_000, '{"a":"' + "b" * 30_000 + '"}'),
    Failed("run", "m", "t" * 20_000),
    JournalAppend(1, "k", "r" * 20_000),
    Asked(1, "k", "é" * 20_000, 'é"\\\n' * 20_000, None, "m", ["c" * 1000] * 20, "r" * 20_000, waits=True),
    TasksKnown([{"key": "k", "name": None, "agent": None}] * 1000),
    Inspected({"name": "n" * 20_000}),
]


@pytest.mark.parametrize("message", LARGE, ids=lambda message: type(message).__name__)
@given(size=st.integers(1000, 70_000))
def test_large_fields_follow_the_head_and_reach_the_server_whole(message: Message, size: int) -> None:
    stream = encode(message) + encode(ModelCalled())
    found, last = received(*(stream[at : at + size] for at in range(0, len(stream), size)))
    assert last == ModelCalled()
    for field in message.__slots__:
        value, sent = getattr(found, field), getattr(message, field)
        if isinstance(value, Encoded):
            value = str(value.data, "ascii") if field == "structured" else value.value
        assert value == sent
    assert through(stream) == [message, ModelCalled()]


def test_the_server_does_not_decode_the_payload_of_an_event() -> None:
    (found,) = received(encode(Event("a", 1.5, {"b": ["é", 1.0]})))
    assert found == Event("a", 1.5, Encoded(b'{"b":["\\u00e9",1.0]}'))  # type: ignore[arg-type]  # as the server has it
    assert isinstance(found, Event)
    assert stored_event(1, found.type, found.at, found.payload).payload == '{"b":["\\u00e9",1.0]}'


PARTS = ["a", "\\", "u", "d83c", '"', "\ud83d", "\ude00", "\udfff", "\ud800", "é"]
HALVES = st.lists(st.sampled_from(PARTS), max_size=12).map("".join)


@given(HALVES, st.sampled_from([0, 20_000]))
def test_half_a_surrogate_pair_of_a_crew_becomes_a_replacement_character(text: str, more: int) -> None:
    right = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    long, rest = text + "x" * more, "x" * more
    sent: list[Message] = [
        Succeeded(long, json.dumps({long: [long]})),
        TaskEnded(0, "completed", 1.0, long),
        Event(text, 1.0, {text: long}),
        Failed("run", text, long),
        Warned("c", text),
        TasksKnown([{"key": "k", "name": long, "agent": None}]),
    ]
    found = [dataclasses.asdict(one) for one in received(b"".join(map(encode, sent)))]
    shown = json.dumps([{name: plain(value) for name, value in one.items()} for one in found], ensure_ascii=False)
    assert shown.encode("utf-8"), "UTF-8 has no halves"
    output, structured = plain(found[0]["output"]), found[0]["structured"]
    assert output == right + rest
    assert json.loads(structured.data if isinstance(structured, Encoded) else structured) == {output: [output]}
    assert (found[2]["type"], found[4]["message"]) == (right, right)


def plain(value: Any) -> Any:
    return value.value if isinstance(value, Encoded) else value


def test_the_journal_keeps_what_a_crew_wrote() -> None:
    record = json.dumps({"a": "\ud83c"})
    for text in (record, record + " " * 20_000):
        for message in (
            JournalAppend(1, "k", text),
            Asked(1, "k", "q", "d", None, None, [], text, waits=False),
        ):
            assert received(encode(message)) == [message]


def event_with(payload: bytes) -> bytes:
    head = json.dumps({"is": "Event", "parts": {"payload": len(payload)}, "type": "a", "at": 1.0}).encode()
    return struct.pack("!I", len(head) + 1 + len(payload)) + head + b"\n" + payload


@pytest.mark.parametrize(
    "payload", [b"[1]", b'"text"', b"1", b"\xc3\xa9", b'{"a":' + b"[" * 500 + b"]" * 500 + b"}"], ids=range(5)
)
def test_a_payload_of_an_event_that_is_no_shallow_object_is_refused(payload: bytes) -> None:
    assert received(event_with(b'{"a":1}')) == [Event("a", 1.0, Encoded(b'{"a":1}'))]  # type: ignore[arg-type]
    with pytest.raises(BadMessage):
        received(event_with(payload))


@given(st.text(st.sampled_from(["a", '"', "\\", "é", "😀", "\x00", "中", "\n"]), max_size=400), st.integers(13, 99))
def test_the_size_of_a_text_in_utf_8_is_known_without_its_text(text: str, piece: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("windlass.runner.incoming.PIECE", piece)
        found = utf8_size(Encoded(json.dumps(text).encode()))
    assert found == len(json.dumps(text, ensure_ascii=False).encode())


def nested(levels: int) -> Any:
    deep: Any = None
    for _ in range(levels):
        deep = [deep]
    return deep


def test_deep_values_come_out_as_they_went_in() -> None:
    run = dataclasses.replace(RUN, inputs={"deep": nested(800)})
    assert through(encode(run)) == [run]


def test_an_event_that_is_nested_deeper_than_it_can_be_written_again_is_refused() -> None:
    event = Event("a", 1.0, {"deep": nested(300)})
    assert through(encode(event)) == [event]
    with pytest.raises(BadMessage):
        through(encode(Event("a", 1.0, {"deep": nested(500)})))


@pytest.mark.parametrize("message", EVERY, ids=lambda message: type(message).__name__)
def test_a_field_of_another_type_is_refused_and_what_is_taken_does_the_worker_no_harm(message: Message) -> None:
    before = fields_of(message)
    for name in before:
        for value in WRONG:
            body = json.dumps({**before, name: value}).encode("ascii")
            try:
                taken = decode(body)
            except BadMessage:
                continue
            assert type(taken) is type(message), f"{name} = {value!r}"
            kinds = dataclasses.fields(taken)
            for field in kinds:
                if (kind := KINDS.get(str(field.type))) is not None:
                    assert type(getattr(taken, field.name)) is kind, f"{name} = {value!r}"
            given_to_the_worker(taken)


@given(st.sampled_from(EVERY), st.data(), ANY_JSON)
def test_any_value_in_any_field_is_refused_or_does_no_harm(message: Message, data: st.DataObject, value: Any) -> None:
    before = fields_of(message)
    name = data.draw(st.sampled_from(sorted(before)))
    try:
        taken = decode(json.dumps({**before, name: value}).encode("ascii"))
    except BadMessage:
        return
    given_to_the_worker(taken)
    assert decode(encode(taken)[4:]) == taken


@pytest.mark.parametrize(
    ("message", "name", "value"),
    [
        (Event("a", 1.0), "at", "never"),
        (Event("a", 1.0), "at", True),
        (Event("a", 1.0), "at", 1e18),
        (Event("a", 1.0), "payload", []),
        (Event("a", 1.0), "payload", None),
        (Tokens(), "total", "many"),
        (Tokens(), "total", 1.5),
        (Tokens(), "total", False),
        (Failed("run", "m"), "reason", "bogus"),
        (Failed("run", "m"), "stage", "bogus"),
        (JournalAppend(1, "k", "{}"), "number", 0),
        (JournalAppend(1, "k", "{}"), "number", 1 << 31),
        (JournalAppend(1, "k", "{}"), "record", "\u00e9"),
        (JournalAppend(1, "k", "{}"), "position", -1),
        (JournalReplay(1, "k", "{}"), "record", None),
        (ASKED, "number", 0),
        (ASKED, "record", "\u00e9"),
        (ASKED, "draft", None),
        (ASKED, "question", 1),
        (ASKED, "choices", [1]),
        (ASKED, "choices", "yes"),
        (ASKED, "waits", 1),
        (Answered(1, approved=True), "approved", "yes"),
        (Answered(1, approved=True), "feedback", None),
        (JournalCommitted(1), "number", "1"),
        (TaskEnded(0, "failed", 1.0), "state", "x"),
        (TaskEnded(0, "failed", 1.0), "position", -1),
        (TaskEnded(0, "failed", 1.0), "position", 1 << 31),
        (Warned("c", "m"), "code", 5),
        (Warned("c", "m"), "task", "0"),
        (TaskStarted(0, "k", None, None, 1.0), "key", "a\x00b"),
        (TasksKnown([]), "tasks", [{"key": "k"}]),
        (TasksKnown([]), "tasks", {}),
        (Succeeded("o"), "structured", {"a": 1}),
        (Succeeded("o"), "structured", "\ud800"),
        (Forked("c", 300), "pid", 1),
        (Forked("c", 300), "pid", -300),
        (Exited("c", 300, 0), "status", 0x137F),
        (Born(), "memory", 1),
        (RUN, "project", None),
        (RUN, "budget", {"token_limit": "5"}),
        (RUN, "process_environment", {"environment": {"A": 1}, "folder": "/"}),
    ],
)
def test_what_a_field_can_not_hold_is_refused(message: Message, name: str, value: Any) -> None:
    fields = fields_of(message)
    assert name in fields
    with pytest.raises(BadMessage):
        decode(json.dumps({**fields, name: value}).encode("ascii"))


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_what_is_no_number_is_refused_wherever_it_is(number: str) -> None:
    for fields in ('"at":%s,"payload":{}', '"at":1,"payload":{"a":[{"b":%s}]}'):
        with pytest.raises(BadMessage):
            decode(('{"is":"Event","type":"a",' + fields % number + "}").encode())


def test_a_whole_number_is_a_time() -> None:
    assert decode(b'{"is":"Event","type":"a","at":2}') == Event("a", 2.0)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"is":"Nothing"}', b'{"is":"Forked","x":1}', b'{"is":{}}', b"\xff", b"[" * 100_000]
)
def test_what_is_no_message_is_refused(body: bytes) -> None:
    with pytest.raises(BadMessage):
        decode(body)


def test_what_is_refused_is_not_repeated() -> None:
    with pytest.raises(BadMessage) as caught:
        decode(b'{"is":"Run","environment":{"KEY":"sk-secret"}}')
    assert "sk-secret" not in str(caught.value)


def test_a_frame_over_the_limit_is_refused_before_it_is_read() -> None:
    with pytest.raises(BadMessage, match="over the limit"):
        through(struct.pack("!I", LARGEST_FRAME + 1))


def test_the_server_holds_a_large_message_once() -> None:
    frame = encode(Succeeded("x" * 20_000_000))
    chunks = [frame[at : at + (1 << 20)] for at in range(0, len(frame), 1 << 20)]
    tracemalloc.start()
    try:
        (message,) = received(*chunks)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(message, Succeeded)
    assert most < 1.5 * len(frame)


def test_what_json_has_no_word_for_can_not_be_sent() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode(Event("a", float("nan")))
    with pytest.raises(TypeError):
        encode(Event("a", 1.0, {"object": object()}))


def test_every_message_has_a_name_of_its_own_and_plain_fields() -> None:
    assert all(dataclasses.is_dataclass(kind) for kind in TYPES.values())
    assert json.loads(encode(Succeeded("a"))[4:]) == {
        "is": "Succeeded",
        "output": "a",
        "structured": None,
        "output_of": None,
    }


def test_the_statuses_of_processes_that_ended_are_taken() -> None:
    for status in (0, 71 << 8, 9, 11 | 0x80):
        assert os.WIFEXITED(status) or os.WIFSIGNALED(status)
        assert decode(encode(Exited("c", 300, status))[4:]) == Exited("c", 300, status)
