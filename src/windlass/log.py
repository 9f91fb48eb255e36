"""Log lines, all in one form: named events with fields, declared here and explained in docs/log-events.md.

A value can't forge a line: what isn't printable is escaped, in both forms.
"""

from __future__ import annotations

import json
import logging
import math
import re
import sys
import traceback
from dataclasses import dataclass
from datetime import UTC, datetime
from logging import ERROR, INFO, WARNING
from typing import Literal, TextIO

OURS = ("windlass", "windlass_crewside")
UVICORNS = ("uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi")


@dataclass(frozen=True, slots=True)
class Event:
    level: int
    meaning: str


EVENTS: dict[str, Event] = {
    "server.ready": Event(INFO, "The server takes requests."),
    "server.stopping": Event(INFO, "The server was asked to stop and finishes what it holds."),
    "master_key.created": Event(INFO, "There was no master key; one was made. Back up the file."),
    "database.started": Event(INFO, "The embedded PostgreSQL runs."),
    "database.stopped": Event(INFO, "The embedded PostgreSQL was stopped."),
    "database.migrated": Event(INFO, "The tables were brought to this version."),
    "database.away": Event(WARNING, "PostgreSQL doesn't answer; requests get 503 until it does."),
    "database.back": Event(INFO, "PostgreSQL answers again."),
    "database.refused": Event(WARNING, "PostgreSQL answers, and refuses to work for now (a full disk, say); 503 too."),
    "zygote.started": Event(INFO, "A process that forks children for kickoffs is warm."),
    "zygote.stopped": Event(INFO, "Such a process was stopped, idle or with the server."),
    "zygote.lost": Event(WARNING, "Such a process ended unasked; another takes its place."),
    "runner.watch_failed": Event(ERROR, "One look at the processes of the runs failed; the next one is on time."),
    "crews.as_root": Event(WARNING, "The server is root, and this crew's code runs as root too (docs/security.md)."),
    "kickoff.started": Event(INFO, "A worker claimed the kickoff and runs it."),
    "kickoff.ended": Event(INFO, "The kickoff came to its final state."),
    "kickoff.released": Event(INFO, "The worker put the kickoff back into the queue, to be run again."),
    "kickoff.taken": Event(INFO, "A worker's run of the kickoff counts for nothing: it ended, or is another worker's."),
    "kickoff.stop_requested": Event(INFO, "Somebody asked to stop the kickoff: from now on it only ends."),
    "kickoff.lost": Event(WARNING, "The kickoff's worker or child was lost without a word."),
    "deployment.registered": Event(INFO, "A crew was inspected and can be kicked off."),
    "project.not_reloaded": Event(
        ERROR, "`windlass dev` could not load a changed project again, for a reason that is not the project's."
    ),
    "deployment.paused": Event(INFO, "Kickoffs of the crew wait until it is resumed; those that run go on."),
    "deployment.resumed": Event(INFO, "Kickoffs of the crew are started again."),
    "request.failed": Event(ERROR, "A request got 500; its answer holds the same reference as this line."),
    "kickoff.retried": Event(WARNING, "A run failed; its crew's project wants it tried again, after a pause."),
    "worker.ready": Event(INFO, "A worker of its own claims kickoffs from now on."),
    "worker.draining": Event(INFO, "A worker claims nothing more, and waits for its runs before it stops."),
    "worker.loop_failed": Event(ERROR, "One turn of a loop failed; the loop goes on."),
    "worker.run_failed": Event(ERROR, "The worker itself failed at a kickoff, which is run again when its lease ends."),
    "side_job.failed": Event(ERROR, "Work beside the kickoffs failed; what is due again is done again."),
    "side_job.put_back": Event(WARNING, "Such work is begun again, because who did it has died or is cut off."),
    "retention.removed": Event(INFO, "Of a crew's ended kickoffs, what was to be kept no longer was removed."),
    "retention.swept": Event(WARNING, "Rows without a kickoff were found, and removed."),
    "token.created": Event(INFO, "A token was made."),
    "token.rotated": Event(INFO, "A token was replaced by a new one."),
    "token.revoked": Event(INFO, "A token was revoked."),
    "user.added": Event(INFO, "A user was added."),
}

_PLAIN_WORD = re.compile(r"[\w./:@+%,-]+", re.ASCII)
_TAKEN = frozenset({"time", "level", "logger", "event", "message"})


def configure(
    format: Literal["text", "json"],  # noqa: A002 - the setting's name
    level: str,
    stream: TextIO | None = None,
) -> None:
    """Sends every line to `stream` (standard error): our own from `level` on, those of libraries from WARNING on.

    May be called again: the last call counts. uvicorn must be given `log_config=None`, or it brings a form of its own.
    """
    handler = _Handler(stream or sys.stderr)
    handler.setFormatter(TextFormatter() if format == "text" else JsonFormatter())
    root = logging.getLogger()
    root.handlers = [other for other in root.handlers if not isinstance(other, _Handler)] + [handler]
    chosen = logging.getLevelNamesMapping()[level.upper()]
    root.setLevel(max(chosen, WARNING))
    for name in OURS:
        logging.getLogger(name).setLevel(chosen)
    for name in UVICORNS:
        _hand_to_root(logging.getLogger(name))


class Logger:
    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def event(
        self, name: str, /, *, exc: BaseException | None = None, trace: str | None = None, **fields: object
    ) -> None:
        event(self._logger, name, exc=exc, trace=trace, **fields)


def logger(name: str) -> Logger:
    return Logger(name)


def event(
    logger: logging.Logger,
    name: str,
    /,
    *,
    exc: BaseException | None = None,
    trace: str | None = None,
    **fields: object,
) -> None:
    """Logs a declared event. Fields that are None are left out; `exc` adds its traceback, `trace` one from elsewhere.

    Raises LookupError for a name that EVENTS doesn't hold, ValueError for a field that every line has already.
    """
    if name not in EVENTS:
        raise LookupError(f"{name!r} is no log event: declare it in windlass.log.EVENTS and in docs/log-events.md")
    if taken := _TAKEN & fields.keys():
        raise ValueError(f"{name}: every line has its own {', '.join(taken)}; name the field otherwise")
    told = {key: value for key, value in fields.items() if value is not None}
    logger.log(EVENTS[name].level, name, exc_info=exc, extra={"event_fields": told, "event_trace": trace or ""})


class TextFormatter(logging.Formatter):
    """`2026-11-21T10:00:00Z INFO kickoff.ended state=SUCCESS seconds=1.2`, a traceback indented below it."""

    def format(self, record: logging.LogRecord) -> str:
        fields = _fields(record)
        name, told = (record.name, {"message": record.getMessage().strip()}) if fields is None else (record.msg, fields)
        words = (f"{key}={_word(value)}" for key, value in told.items())
        line = " ".join([_time(record, "seconds"), record.levelname, name, *words])
        return "\n    ".join([line, *map(_escaped, _trace(record).splitlines())])


class JsonFormatter(logging.Formatter):
    """One object a line; the fields of an event stand beside `time`, `level`, `logger` and `event`."""

    def format(self, record: logging.LogRecord) -> str:
        head = {"time": _time(record, "milliseconds"), "level": record.levelname, "logger": record.name}
        fields = _fields(record)
        told = {"message": record.getMessage().strip()} if fields is None else {"event": record.msg, **fields}
        trace = {"trace": text} if (text := _trace(record)) else {}
        return json.dumps(head | {key: _plain(value) for key, value in told.items()} | trace)


class _Handler(logging.StreamHandler[TextIO]):
    """Its class tells `configure` which handler an earlier call put there."""


def _hand_to_root(logger: logging.Logger) -> None:
    logger.handlers = []
    logger.propagate = True


def _fields(record: logging.LogRecord) -> dict[str, object] | None:
    return getattr(record, "event_fields", None)


def _time(record: logging.LogRecord, precision: str) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec=precision).replace("+00:00", "Z")


def _trace(record: logging.LogRecord) -> str:
    own = "".join(traceback.format_exception(*record.exc_info)) if record.exc_info else ""
    return own + getattr(record, "event_trace", "")


def _plain(value: object) -> str | float | None:
    """What JSON can hold as it is; anything else by its `str`, so that a Secret prints as stars."""
    if value is None or isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value)


def _word(value: object) -> str:
    plain = _plain(value)
    if isinstance(plain, str) and _PLAIN_WORD.fullmatch(plain):
        return plain
    return _escaped(json.dumps(plain, ensure_ascii=False))


def _escaped(text: str) -> str:
    """Without line ends, terminal codes, or marks that turn the direction of writing."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
