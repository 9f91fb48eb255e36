from __future__ import annotations

import io
import json
import logging
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn
from uuid import UUID

import pytest
import uvicorn
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.kickoffs.states import State
from windlass.log import EVENTS, MOST_LIKE, JsonFormatter, TextFormatter, configure, logger
from windlass.secrets.secret import STARS, Secret

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.unit


PAGE = Path(__file__).parents[1] / "docs" / "reference" / "log-events.md"
OURS = logger("windlass.test")
LOGGER = logging.getLogger("windlass.test")
NAMES = (None, "windlass", "windlass_child", "uvicorn", "uvicorn.error", "uvicorn.access", "psycopg")
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"


class Log(io.StringIO):
    def use(self, form: Literal["text", "json"], level: str = "INFO") -> None:
        configure(form, level, self)

    @property
    def lines(self) -> list[str]:
        return self.getvalue().splitlines()

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]


@pytest.fixture
def log() -> Iterator[Log]:
    touched = [logging.getLogger(name) for name in NAMES]
    before = [(one.level, list(one.handlers), one.propagate) for one in touched]
    yield Log()
    for one, (level, handlers, propagate) in zip(touched, before, strict=True):
        one.setLevel(level)
        one.handlers, one.propagate = handlers, propagate


def record_of(message: str, **fields: object) -> logging.LogRecord:
    record = LOGGER.makeRecord(LOGGER.name, logging.INFO, __file__, 1, message, (), None)
    record.event_fields = fields
    return record


def refuse(why: str) -> NoReturn:
    raise ValueError(why)


def failure(why: str) -> ValueError:
    try:
        refuse(why)
    except ValueError as error:
        return error


def test_the_page_lists_every_event_with_its_level_and_meaning() -> None:
    rows = re.findall(r"^\| `(\S+)` \| (\w+) \| (.+) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    declared = [(name, logging.getLevelName(one.level), one.meaning) for name, one in EVENTS.items()]
    assert rows == declared


def test_a_text_line_has_time_level_name_and_fields(log: Log) -> None:
    log.use("text")
    OURS.event("kickoff.ended", kickoff_id=UUID(int=1), state=State.SUCCESS, seconds=1.2)
    fields = "kickoff_id=00000000-0000-0000-0000-000000000001 state=SUCCESS seconds=1.2"
    assert re.fullmatch(f"{TIME} INFO kickoff.ended {fields}\n", log.getvalue())


def test_the_time_is_utc_in_both_forms() -> None:
    record = record_of("server.ready")
    record.created = datetime(2026, 11, 21, 10, 0, 0, 250_000, UTC).timestamp()
    assert TextFormatter().format(record).startswith("2026-11-21T10:00:00Z ")
    assert json.loads(JsonFormatter().format(record))["time"] == "2026-11-21T10:00:00.250Z"


def test_a_json_line_is_one_object_with_the_fields_beside_the_rest(log: Log) -> None:
    log.use("json")
    OURS.event("kickoff.ended", kickoff_id=UUID(int=1), state=State.SUCCESS, seconds=1.2, retried=False)
    (line,) = log.objects
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "INFO",
        "logger": "windlass.test",
        "event": "kickoff.ended",
        "kickoff_id": "00000000-0000-0000-0000-000000000001",
        "state": "SUCCESS",
        "seconds": 1.2,
        "retried": False,
    }


def test_an_event_has_the_level_that_it_was_declared_with(log: Log) -> None:
    log.use("json")
    OURS.event("database.away")
    OURS.event("request.failed", reference="r1")
    assert [line["level"] for line in log.objects] == ["WARNING", "ERROR"]


def test_an_undeclared_event_is_refused() -> None:
    with pytest.raises(LookupError, match=r"'kickoff.forgotten' is no log event"):
        OURS.event("kickoff.forgotten")


@pytest.mark.parametrize("name", ["time", "level", "logger", "event", "message"])
def test_a_field_cannot_take_the_place_of_what_every_line_has(name: str) -> None:
    fields: dict[str, Any] = {name: "x"}
    with pytest.raises(ValueError, match=f"its own {name};"):
        OURS.event("server.ready", **fields)


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ("http://127.0.0.1:8000/crews/a", "http://127.0.0.1:8000/crews/a"),
        ("two words", '"two words"'),
        ("", '""'),
        ('a "b" \\c', r'"a \"b\" \\c"'),
        ("state=SUCCESS", '"state=SUCCESS"'),
        ("a\nb\r\tc", r'"a\nb\r\tc"'),
        ("\x1b[31mred\x7f\x85", r'"\u001b[31mred\x7f\x85"'),
        ("\u2028\u202e\ud800", r'"\u2028\u202e\ud800"'),
        ("Zürich 東京", '"Zürich 東京"'),
        (None, "null"),
        (True, "true"),
        (12, "12"),
        (float("nan"), "nan"),
        (["a", "b\n"], r'''"['a', 'b\\n']"'''),
        (Secret("hunter2"), f'"{STARS}"'),
        ([Secret("hunter2")], f"\"[Secret('{STARS}')]\""),
    ],
)
def test_a_value_is_one_word_of_the_text_line(value: object, word: str) -> None:
    assert TextFormatter().format(record_of("server.ready", value=value)).endswith(f" server.ready value={word}")


@settings(deadline=None)
@given(st.text(st.characters()))
def test_no_value_forges_a_line_or_a_terminal_code(value: str) -> None:
    for formatter in (TextFormatter(), JsonFormatter()):
        line = formatter.format(record_of("server.ready", value=value))
        assert line.isprintable()
    assert json.loads(line)["value"] == value


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_secret_prints_as_stars(log: Log, form: Literal["text", "json"]) -> None:
    log.use(form)
    OURS.event("token.created", token=Secret("hunter2"))
    LOGGER.error("made %s", Secret("hunter2"))
    assert log.getvalue().count(STARS) == 2
    assert "hunter2" not in log.getvalue()


def test_the_traceback_of_an_event_is_indented_below_it(log: Log) -> None:
    log.use("text")
    forged = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} INFO token.revoked\x1b[2J\r2026"
    OURS.event("worker.loop_failed", exc=failure(f"first\n{forged}"), loop="claim")
    first, *rest = log.lines
    assert first.endswith("ERROR worker.loop_failed loop=claim")
    assert "    ValueError: first" in rest
    assert all(line.startswith("    ") and line.isprintable() for line in rest)


def test_the_traceback_of_an_event_is_a_member_of_its_object(log: Log) -> None:
    log.use("json")
    OURS.event("worker.loop_failed", exc=failure("first\nsecond"), loop="claim")
    (line,) = log.objects
    assert line["trace"].startswith("Traceback")
    assert line["trace"].endswith("ValueError: first\nsecond\n")
    assert line["loop"] == "claim"


def test_a_traceback_from_elsewhere_takes_the_same_place(log: Log) -> None:
    log.use("text")
    OURS.event("kickoff.ended", state=State.FAILED, trace="Traceback of the crew\n  File x")
    log.use("json")
    OURS.event("kickoff.ended", state=State.FAILED, trace="Traceback of the crew")
    first, *rest, line = log.lines
    assert first.endswith("INFO kickoff.ended state=FAILED")
    assert rest == ["    Traceback of the crew", "      File x"]
    assert json.loads(line)["trace"] == "Traceback of the crew"


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_field_that_is_none_is_left_out(log: Log, form: Literal["text", "json"]) -> None:
    log.use(form)
    OURS.event("kickoff.ended", reason=None, trace=None)
    assert "reason" not in log.getvalue()
    assert "trace" not in log.getvalue()


@pytest.mark.parametrize("name", ["uvicorn.error", "uvicorn.access", "httpx", "asyncio"])
def test_what_libraries_log_takes_the_same_form(log: Log, name: str) -> None:
    log.use("text")
    uvicorn.Config(lambda: None, log_config=None)
    logging.getLogger(name).warning("no answer from %s\nat all", "x")
    logging.getLogger(name).info("chatter")
    log.use("json")
    logging.getLogger(name).warning("no answer")
    text, line = log.lines
    assert re.fullmatch(rf'{TIME} WARNING {name} message="no answer from x\\nat all"', text)
    assert json.loads(line) | {"time": ""} == {"time": "", "level": "WARNING", "logger": name, "message": "no answer"}


def test_a_form_that_uvicorn_brought_is_taken_away_again(log: Log) -> None:
    its_own = io.StringIO()
    for name in ("uvicorn", "uvicorn.access"):
        logging.getLogger(name).addHandler(logging.StreamHandler(its_own))
        logging.getLogger(name).propagate = False
    log.use("text")
    logging.getLogger("uvicorn.error").warning("once")
    logging.getLogger("uvicorn.access").warning("twice")
    assert len(log.lines) == 2
    assert its_own.getvalue() == ""


def test_the_level_holds_for_ours_and_libraries_speak_from_warning_on(log: Log) -> None:
    log.use("text", "DEBUG")
    LOGGER.debug("ours")
    logging.getLogger("httpx").info("theirs")
    log.use("text", "ERROR")
    OURS.event("database.away")
    logging.getLogger("httpx").warning("theirs")
    assert [line.split(" ", 2)[2] for line in log.lines] == ["windlass.test message=ours"]


def test_configuring_again_replaces_the_form(log: Log) -> None:
    log.use("text")
    log.use("json")
    OURS.event("server.ready")
    assert [line["event"] for line in log.objects] == ["server.ready"]


def test_lines_go_to_standard_error_unless_told_otherwise(log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    configure("text", "INFO")
    OURS.event("server.ready", url="http://127.0.0.1:8000")
    shown = capsys.readouterr()
    assert "INFO server.ready url=http://127.0.0.1:8000\n" in shown.err
    assert shown.out == ""


def test_a_level_that_does_not_exist_is_refused() -> None:
    with pytest.raises(KeyError):
        configure("text", "LOUD")


def test_a_line_without_end_is_written_some_times_and_then_counted(log: Log) -> None:
    log.use("json")
    for number in range(MOST_LIKE + 300):
        OURS.event("kickoff.lost", number=number)
        LOGGER.info("lines of this level are not counted")
    OURS.event("database.away")
    (handler,) = [one for one in logging.getLogger().handlers if type(one).__module__ == "windlass.log"]
    handler.close()
    lost = [line for line in log.objects if line.get("event") == "kickoff.lost"]
    assert [line["number"] for line in lost] == list(range(MOST_LIKE))
    assert len([line for line in log.objects if "message" in line]) == MOST_LIKE + 300
    (entry,) = [line for line in log.objects if line.get("event") == "database.away"]
    assert entry["level"] == "WARNING"
    (summary,) = [line for line in log.objects if line.get("event") == "log.repeated"]
    assert (summary["of"], summary["lines"], summary["logger"]) == ("kickoff.lost", 300, "windlass.test")


def test_after_its_time_a_line_is_written_again_with_the_number_of_those_left_out(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.log.SECONDS_LIKE", 1.0)
    log.use("text")
    for _ in range(MOST_LIKE + 5):
        OURS.event("kickoff.lost")
    deadline = time.monotonic() + 10
    while "log.repeated" not in log.getvalue():  # it comes though nothing else is logged
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert "lines=5" in log.lines[-1]
    OURS.event("kickoff.lost")
    assert log.lines[-1].endswith(" kickoff.lost")
