"""Writes log lines: named events with fields, declared here and explained in docs/reference/log-events.md.

A value can't forge a line: characters that aren't printable are escaped, in both formats.
"""

from __future__ import annotations

import json
import logging
import math
import re
import sys
import threading
import traceback
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from logging import ERROR, INFO, WARNING
from typing import Literal, TextIO

MOST_LIKE, SECONDS_LIKE = 200, 60.0
OURS = ("windlass", "windlass_child")
UVICORNS = ("uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi")


@dataclass(frozen=True, slots=True)
class Event:
    level: int
    meaning: str


EVENTS: dict[str, Event] = {
    "server.ready": Event(INFO, "The server takes requests."),
    "server.without_tls": Event(WARNING, "The server is reached over plain HTTP; put a proxy with TLS before it."),
    "server.stopping": Event(INFO, "The server was asked to stop and finishes its requests."),
    "master_key.created": Event(INFO, "There was no master key, so the server made one. Back up the file."),
    "master_key.changed": Event(INFO, "The server encrypts with another master key from now on."),
    "master_key.unreadable": Event(
        ERROR, "The key file changed and can't be used; the server goes on with the keys that it has."
    ),
    "signing_key.created": Event(INFO, "The server made its first key for the tokens that identify it to providers."),
    "signing_key.rotated": Event(INFO, "A signing key was added, or signs at once; old ones may have been removed."),
    "signing_key.unreadable": Event(
        ERROR, "A stored signing key can't be decrypted, so it is neither published nor used."
    ),
    "database.started": Event(INFO, "The embedded PostgreSQL runs."),
    "database.stopped": Event(INFO, "The embedded PostgreSQL was stopped."),
    "database.migrated": Event(INFO, "The tables were migrated to this version."),
    "database.waiting_for_migration": Event(
        WARNING, "The tables are not those of this version, and the server waits until `windlass migrate` has run."
    ),
    "database.away": Event(WARNING, "PostgreSQL doesn't answer; requests get 503 until it does."),
    "database.back": Event(INFO, "PostgreSQL answers again."),
    "database.refused": Event(
        WARNING,
        "PostgreSQL answers, but refuses statements for now, for example because its disk is full; requests get 503.",
    ),
    "folder.not_writable": Event(
        WARNING,
        "The server can't write to this folder, for example because its disk is full; its worker claims no kickoffs "
        "until it can.",
    ),
    "zygote.started": Event(INFO, "A process that forks children for kickoffs is ready."),
    "zygote.threads": Event(
        WARNING,
        'A project with `preload = "project"` starts threads at import. A fork does not copy threads, so each of its '
        "runs starts a fresh interpreter.",
    ),
    "zygote.warm_up_failed": Event(
        ERROR,
        "The framework of `interpreter` could not run a crew as Windlass runs it, for the reason `error`. Its crews "
        "run as they do without Windlass.",
    ),
    "zygote.stopped": Event(INFO, "A process that forks children was stopped: it was idle, or the server stopped."),
    "zygote.lost": Event(WARNING, "A process that forks children ended unexpectedly; another one replaces it."),
    "zygote.refused": Event(
        ERROR, "A process that forks children did something that only hostile code does; it was ended."
    ),
    "runner.watch_failed": Event(ERROR, "One check of the processes of the runs failed; the next check runs on time."),
    "run.descriptors_refused": Event(WARNING, "A run sent open files or sockets to the server; the run was ended."),
    "boundary.holds": Event(
        INFO,
        "A part of what separates runs holds on this machine: `users`, `files` or `network`. With `holds` `partly`, "
        "`text` has what can be bypassed (docs/concepts/security.md).",
    ),
    "boundary.open": Event(WARNING, "A part of what separates runs does not hold, and `text` has what to do."),
    "limits.cgroups": Event(INFO, "Each run has a cgroup: the kernel bounds its memory, processes and CPU time."),
    "limits.polled": Event(
        INFO, "Runs have no cgroups, for this reason; the server checks their memory four times a second."
    ),
    "cgroup.failed": Event(
        WARNING, "A run could not be put into its cgroup; its memory is checked four times a second."
    ),
    "cgroup.not_removed": Event(
        WARNING, "The cgroup of a run could not be removed; the server's next start tries again."
    ),
    "shared_memory.left": Event(
        WARNING,
        "Shared memory that appeared during a run was left: another program may have made it "
        "(docs/reference/limits.md).",
    ),
    "folder.not_removed": Event(WARNING, "The folder of a run could not be removed whole; the next start tries again."),
    "checkout.damaged": Event(
        ERROR, "The files of a source on this machine have changed; they are fetched from the database again."
    ),
    "kickoff.started": Event(INFO, "A worker claimed the kickoff and runs it."),
    "kickoff.ended": Event(INFO, "The kickoff reached its final state."),
    "kickoff.released": Event(INFO, "The worker requeued the kickoff, so that it runs again."),
    "kickoff.taken": Event(
        INFO, "A worker's run of the kickoff is discarded: the kickoff has ended, or another worker runs it."
    ),
    "kickoff.stop_requested": Event(INFO, "Somebody asked to stop the kickoff; no new run of it starts."),
    "kickoffs.stop_requested": Event(INFO, "Somebody asked to stop all kickoffs that match a filter."),
    "kickoff.paused": Event(
        INFO, "The crew asked a person, and its process ended. The kickoff runs again after an answer."
    ),
    "kickoff.answered": Event(INFO, "A person answered the question of a kickoff."),
    "question.expired": Event(
        WARNING, "Nobody answered the question of a kickoff in time: its settings decided, or it ended."
    ),
    "kickoff.lost": Event(WARNING, "The kickoff's worker or child was lost without a report."),
    "files.not_stored": Event(
        WARNING,
        "The files of a run could not be stored; `why` has the reason. The result of the kickoff is not affected.",
    ),
    "kickoff.deleted": Event(INFO, "A kickoff was deleted permanently, with its events, journal and task records."),
    "deployment.registered": Event(INFO, "A crew was inspected and can be kicked off."),
    "build.queued": Event(INFO, "A build of a deployment was started; a worker does it."),
    "build.started": Event(INFO, "A worker builds a version of a deployment."),
    "build.ready": Event(INFO, "A build has made a version of its deployment."),
    "build.failed": Event(WARNING, "A build failed; the version before it is still served."),
    "environment.making": Event(INFO, "A worker makes the environment of a version, because it does not have it."),
    "environment.removed": Event(INFO, "An environment that this machine has not used for a while was removed."),
    "project.broken": Event(
        WARNING,
        "The files of a project can't be loaded; `trace` has the project's own lines. The last good ones serve.",
    ),
    "project.not_reloaded": Event(
        ERROR, "`windlass dev` could not reload a changed project, and the project is not the reason."
    ),
    "deployment.paused": Event(INFO, "Kickoffs of the crew wait until it is resumed; running kickoffs go on."),
    "deployment.resumed": Event(INFO, "Kickoffs of the crew are started again."),
    "deployment.created": Event(INFO, "A deployment was added."),
    "deployment.members_changed": Event(INFO, "The members of a deployment, or who sees it, were changed."),
    "deployment.promoted": Event(INFO, "Another version of a crew became the current one, on request."),
    "deployment.removed": Event(INFO, "A crew was removed for its clients; a side job deletes its data."),
    "deployment.deleted": Event(INFO, "The data of a removed crew was deleted permanently."),
    "deployment.settings_changed": Event(
        INFO, "Settings of a crew were changed; those of runs act from the next kickoff on."
    ),
    "variables.set": Event(INFO, "Variables of a crew were set; they act from the next kickoff on."),
    "secrets.not_read": Event(
        WARNING, "Variables of a crew can't be read from their secret manager; `why` has the reason, never a value."
    ),
    "secrets.client_failed": Event(
        ERROR, "The client of a secret manager failed unexpectedly; `error` has the type of its error."
    ),
    "variables.unset": Event(INFO, "A variable of a crew was unset."),
    "credential.added": Event(INFO, "A credential for a secret manager was added."),
    "credential.changed": Event(INFO, "A credential for a secret manager was changed."),
    "credential.removed": Event(INFO, "A credential for a secret manager was removed."),
    "request.failed": Event(ERROR, "A request got 500; its answer holds the same reference as this line."),
    "connection.refused": Event(WARNING, "The limit of connections is reached, for this address or for the server."),
    "connection.stalled": Event(WARNING, "A client did not take its answer in time; its connection was closed."),
    "authentication.failed": Event(WARNING, "Requests with invalid tokens, from one address in a minute."),
    "sign_in.accepted": Event(INFO, "A person signed in to the dashboard."),
    "sign_in.refused": Event(WARNING, "A sign-in to the dashboard was refused: the name or the password was wrong."),
    "sign_in.provider_failed": Event(WARNING, "A sign-in with OpenID Connect failed at the provider or its answer."),
    "kickoff.retried": Event(WARNING, "A run failed; the kickoff runs again after a pause, as its project asks for."),
    "worker.ready": Event(INFO, "A standalone worker claims kickoffs from now on."),
    "worker.draining": Event(INFO, "A worker claims no more kickoffs, and waits for its runs before it stops."),
    "worker.loop_failed": Event(ERROR, "One turn of a loop failed; the loop goes on."),
    "worker.run_failed": Event(
        ERROR, "The worker itself failed at a kickoff; the kickoff runs again when its lease ends."
    ),
    "run.not_removed": Event(
        ERROR,
        "A kickoff has ended, but its run left a folder or shared memory; the server removes the folder when it stops.",
    ),
    "webhook.given_up": Event(WARNING, "A webhook was not accepted in any of its attempts, and is sent no more."),
    "webhook.disabled": Event(WARNING, "An endpoint answered 410 Gone to a webhook: it gets no more of them."),
    "webhooks.changed": Event(INFO, "Webhooks of a crew were changed; they act from the next kickoff on."),
    "webhooks.secret_rotated": Event(INFO, "The signing secret of a crew's webhooks was replaced by a new one."),
    "webhook.interrupted": Event(
        ERROR, "Webhooks could not be delivered because of a fault of the server; it goes on later."
    ),
    "side_job.failed": Event(ERROR, "A side job failed. A periodic job runs again at its next time."),
    "side_job.requeued": Event(WARNING, "A side job is started again, because its server died or lost its connection."),
    "retention.removed": Event(INFO, "Data of a crew's ended kickoffs was removed after its retention time."),
    "audit.removed": Event(INFO, "Entries of the audit log were removed after WINDLASS_AUDIT_RETENTION."),
    "retention.swept": Event(WARNING, "Rows without a kickoff were found and removed."),
    "sources.removed": Event(INFO, "Stored sources of projects that no version and no build uses were removed."),
    "token.created": Event(INFO, "A token was made."),
    "token.rotated": Event(INFO, "A token was replaced by a new one."),
    "token.revoked": Event(INFO, "A token was revoked."),
    "user.added": Event(INFO, "A user was added."),
    "log.repeated": Event(WARNING, "This number of lines like an earlier line was omitted."),
    "user.role_set": Event(INFO, "A user got another role."),
    "user.disabled": Event(INFO, "A user was disabled: every server refuses the user's tokens."),
    "user.enabled": Event(INFO, "A disabled user was enabled again."),
    "user.deleted": Event(INFO, "A user was deleted permanently, with all tokens and kickoffs."),
}

_PLAIN_WORD = re.compile(r"[\w./:@+%,-]+", re.ASCII)
_TAKEN = frozenset({"time", "level", "logger", "event", "message"})


def configure(
    format: Literal["text", "json"],  # noqa: A002 - the setting's name
    level: str,
    stream: TextIO | None = None,
) -> None:
    """Sends all log lines to `stream`, by default standard error.

    Windlass's own lines are written from `level` on, those of libraries from WARNING on. A second call replaces the
    first. uvicorn must be started with `log_config=None`; otherwise it installs its own format.
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


def warnings_only() -> None:
    """Writes no more lines below WARNING."""
    for name in OURS:
        logging.getLogger(name).setLevel(WARNING)


class Logger:
    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def event(
        self, name: str, /, *, exc: BaseException | None = None, trace: str | None = None, **fields: object
    ) -> None:
        """Logs a declared event. Omits fields that are None. `exc` adds its traceback, `trace` adds the given text.

        Raises LookupError for a name that is not in EVENTS, ValueError for a field name that every line has already.
        """
        if name not in EVENTS:
            raise LookupError(
                f"{name!r} is no log event: declare it in windlass.log.EVENTS and in docs/reference/log-events.md"
            )
        if taken := _TAKEN & fields.keys():
            raise ValueError(f"{name}: every line has its own {', '.join(taken)}; rename the field")
        level = EVENTS[name].level
        if not self._logger.isEnabledFor(level):
            return
        # `Logger.log` would search for its caller, and no line of an event contains the caller
        info = None if exc is None else (type(exc), exc, exc.__traceback__)
        record = logging.LogRecord(self._logger.name, level, __file__, 0, name, (), info)
        record.event_fields = {key: value for key, value in fields.items() if value is not None}
        record.event_trace = trace or ""
        self._logger.handle(record)


def logger(name: str) -> Logger:
    return Logger(name)


class TextFormatter(logging.Formatter):
    """Writes `2026-11-21T10:00:00Z INFO kickoff.ended state=SUCCESS seconds=1.2`, with a traceback indented below."""

    def format(self, record: logging.LogRecord) -> str:
        fields = _fields(record)
        name, shown = (
            (record.name, {"message": record.getMessage().strip()}) if fields is None else (record.msg, fields)
        )
        words = (f"{key}={_word(value)}" for key, value in shown.items())
        line = " ".join([_time(record, "seconds"), record.levelname, name, *words])
        return "\n    ".join([line, *map(_escaped, _trace(record).splitlines())])


class JsonFormatter(logging.Formatter):
    """Writes one JSON object per line: `time`, `level`, `logger`, `event` and the fields of the event."""

    def format(self, record: logging.LogRecord) -> str:
        head = {"time": _time(record, "milliseconds"), "level": record.levelname, "logger": record.name}
        fields = _fields(record)
        shown = {"message": record.getMessage().strip()} if fields is None else {"event": record.msg, **fields}
        trace = {"trace": text} if (text := _trace(record)) else {}
        return json.dumps(head | {key: _plain(value) for key, value in shown.items()} | trace)


class _Handler(logging.StreamHandler[TextIO]):
    """Writes log lines, with a limit on repeated warnings and errors.

    `configure` finds the handler of an earlier call by this class. Per SECONDS_LIKE seconds, at most MOST_LIKE warnings
    and errors from one place are written. A `log.repeated` line then gives the number of the omitted lines. So a client
    that causes endless errors can't fill the disk.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._written: dict[_Place, _Lines] = {}

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno < WARNING or self._permits(record):
            super().emit(record)

    def close(self) -> None:
        for place in list(self._written):
            self._summarise(place)
        super().close()

    def _permits(self, record: logging.LogRecord) -> bool:
        place = _place_of(record)
        lines = self._written.get(place)
        if lines is None or record.created - lines.since >= SECONDS_LIKE:
            self._summarise(place)
            self._written[place] = lines = _Lines(record.created)
        lines.number += 1
        if lines.number == MOST_LIKE + 1:
            lines.timer = threading.Timer(lines.since + SECONDS_LIKE - record.created, self._summarise, [place])
            lines.timer.daemon = True
            lines.timer.start()
        return lines.number <= MOST_LIKE

    def _summarise(self, place: _Place) -> None:
        with self.lock or nullcontext():
            lines = self._written.pop(place, None)
            if lines is None or lines.timer is None:
                return
            lines.timer.cancel()
            name, where, error = place
            summary = logging.LogRecord(name, WARNING, __file__, 0, "log.repeated", (), None)
            summary.event_fields = {"of": where, "error": error, "lines": lines.number - MOST_LIKE}
            super().emit(summary)


@dataclass(slots=True)
class _Lines:
    since: float
    number: int = 0
    timer: threading.Timer | None = None


_Place = tuple[str, str, str]


def _place_of(record: logging.LogRecord) -> _Place:
    """Returns the logger, the event and the class of the error.

    For a line without an event, file and line number replace the event. The number of places is therefore limited by
    the size of the code.
    """
    is_event = _fields(record) is not None
    error = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else ""
    return record.name, record.msg if is_event else f"{record.filename}:{record.lineno}", error


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
    """Returns a value that JSON can hold unchanged, and the `str` of any other value. So a Secret prints as stars."""
    if value is None or isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value)


def _word(value: object) -> str:
    plain = _plain(value)
    if isinstance(plain, str) and _PLAIN_WORD.fullmatch(plain):
        return plain
    return _escaped(json.dumps(plain, ensure_ascii=False))


def _escaped(text: str) -> str:
    """Escapes line ends, terminal codes and marks that change the writing direction."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
