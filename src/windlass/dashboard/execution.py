"""The page of one execution: its outcome and why, what it did and when, its files, and what a person can do with it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from starlette.responses import StreamingResponse

from windlass.api.crew_api.event_stream import HEADERS as STREAM_HEADERS
from windlass.api.crew_api.event_stream import HEARTBEAT, MEDIA_TYPE, RETRY, last_event_id
from windlass.api.crew_api.files import PROTECTION, attachment, file_response, find_file, zip_response
from windlass.api.errors import Problem
from windlass.dashboard.execution_log import log_of
from windlass.dashboard.executions import check_scope, seconds_of, short_id, shown_state
from windlass.dashboard.output import MOST_SHOWN, TextDecoder, parsed_or_none, render, value_of
from windlass.dashboard.routes import Routes, whole_number
from windlass.dashboard.timeline import Timelines, attempts_or_one, failed_step, now, spans_of_tasks
from windlass.dashboard.timeline_detail import detail_of
from windlass.dashboard.timeline_rows import chart
from windlass.dashboard.webhooks import deliveries_of
from windlass.kickoffs.ids import parse_id
from windlass.kickoffs.states import Reason, State
from windlass.kickoffs.tracebacks import own_frames
from windlass.rights import Role, Scope
from windlass.store.reading import Stored
from windlass.store.webhooks import DeliveryFilter

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from starlette.responses import Response

    from windlass.api.streaming_json import AnswerFile
    from windlass.dashboard.output import Value
    from windlass.dashboard.routes import Visit
    from windlass.kickoffs.questions import QuestionRow
    from windlass.store.executions import Execution, ExecutionStore
    from windlass.store.reading import KickoffStatus, NextEvents

ROUTES = Routes()
TABS = ("output", "timeline", "inputs", "files", "log", "attempts", "webhooks")
AT_MOST_EVERY = 0.5
"""Seconds between two messages of a stream of changes."""
LONGEST_TRACE = 20_000
MOST_FILES = 500
MOST_WARNINGS = 50
LARGEST_NUMBER = 10**18
ADVICE: dict[str, str] = {
    Reason.ERROR: "Correct what the trace names, deploy the crew again, and run it with the same inputs.",
    Reason.TIMED_OUT: "Look in the timeline for what took long. Raise the timeout of the crew if it needs more time.",
    Reason.LIMIT: "Look in the timeline for what used so much. Raise the limit of the crew if it needs more.",
    Reason.CRASHED: "Its process ended without an answer. The last lines of the log show what it did before.",
    Reason.LOST: "Its worker was lost again and again. Look at the workers on the page System, then run it again.",
    Reason.SECRETS: "Check the variables on the page Environment of the crew, and test the credential that they name.",
}
FAILED = frozenset({State.FAILED, State.TIMED_OUT})
timelines = Timelines()


@ROUTES.get("/executions/{kickoff}", Role.VIEWER)
async def redirect(visit: Visit) -> Response:
    execution = await _found(visit)
    return visit.redirect(path_of(execution))


@ROUTES.get("/crews/{slug}/executions/{kickoff}", Role.VIEWER)
async def show(visit: Visit) -> Response:
    execution = await _found(visit)
    tab = visit.query.get("tab", "")
    tab = tab if tab in TABS else await _first_tab(visit, execution)
    state, word = shown_state(execution)
    usage = parsed_or_none(execution.token_usage or "{}") or {}
    context = {
        "execution": execution,
        "state": state,
        "word": word,
        "seconds": seconds_of(execution),
        "tokens": usage.get("total_tokens"),
        "usage": usage,
        "short": short_id(execution.id),
        "tab": tab,
        "path": path_of(execution),
        "may_run": visit.allows(Scope.RUN),
        "may_delete": visit.allows(Scope.ADMIN),
        "waiting": await _waiting(visit, execution),
        "questions": await _questions(visit, execution),
        **await _failure(visit, execution),
        **await TAB_CONTEXTS[tab](visit, execution),
    }
    return visit.page("execution.html", **context)


async def _first_tab(visit: Visit, execution: Execution) -> str:
    """Returns the part that opens first: of a failed execution the timeline, if a step of it failed."""
    if execution.state in FAILED and "view" not in visit.query:
        timeline = await timelines.of(_store(visit), execution)
        if failed_step(timeline.spans()) is not None:
            return "timeline"
    return "output"


def path_of(execution: Execution) -> str:
    return f"/ui/crews/{execution.slug}/executions/{execution.id}"


def _store(visit: Visit) -> ExecutionStore:
    return visit.dashboard.control.overview.executions


async def _found(visit: Visit) -> Execution:
    """Returns the execution that the path names. Raises Problem 404."""
    kickoff = parse_id(visit.path["kickoff"])
    found = await _store(visit).get(kickoff) if kickoff else None
    if found is None or visit.path.get("slug", found.slug) != found.slug:
        raise Problem(
            404,
            "There is no execution with this id. It may have been deleted, by a person or after its retention time.",
        )
    return found


async def _waiting(visit: Visit, execution: Execution) -> Any:
    """Returns what the execution waits for, None if it runs or has ended."""
    may_wait = execution.state in {State.PENDING, State.PENDING_HUMAN_INPUT} or execution.waiting_for
    if execution.state.ended or not may_wait:
        return None
    return await visit.dashboard.crew_api.statuses.waiting(execution.id, None)


async def _questions(visit: Visit, execution: Execution) -> list[QuestionRow]:
    """Returns the questions that wait for an answer."""
    if execution.state is not State.PENDING_HUMAN_INPUT:
        return []
    found = await visit.dashboard.control.approvals.store.questions_of(execution.id)
    return [one for one in found if one.is_open]


async def _failure(visit: Visit, execution: Execution) -> dict[str, Any]:
    """Returns what to do about a failure, and its trace."""
    if execution.state not in FAILED:
        return {"advice": None, "trace": None, "whole_trace": None}
    found = await _store(visit).latest(execution.id, ["traceback"], limit=1, most=MOST_SHOWN)
    members = parsed_or_none(found[0].payload) if found and not found[0].cut else None
    trace = str(members.get("text", "")) if isinstance(members, dict) else ""
    own = own_frames(trace)[-LONGEST_TRACE:]
    whole = trace[-LONGEST_TRACE:]
    return {"advice": ADVICE.get(execution.reason or ""), "trace": own, "whole_trace": whole if whole != own else ""}


async def _output(visit: Visit, execution: Execution) -> dict[str, Any]:
    """Returns the output, as Markdown, as JSON or raw."""
    store = _store(visit)
    text = value_of(await store.member(execution.id, "output", most=MOST_SHOWN))
    structured = value_of(await store.member(execution.id, "structured", most=MOST_SHOWN))
    views = [name for name, has in (("markdown", text and text.is_text), ("json", structured or text)) if has]
    if text and not text.is_text:
        structured = structured or text
    views += ["raw"] if text else []
    asked = visit.query.get("view", "")
    usual = "json" if structured and not (structured.is_text) else "markdown"
    view = asked if asked in views else usual if usual in views else (views[0] if views else "")
    rendered = await render(text) if view == "markdown" and text else None
    json_value = structured or (_as_json(text) if text else None)
    if json_value is None:
        views = [one for one in views if one != "json"]
    return {
        "text": text,
        "structured": json_value,
        "views": views,
        "view": view,
        "rendered": rendered,
        "warnings": await _warnings(store, execution),
        "tasks": await store.tasks(execution.id) if execution.state is not State.SUCCESS else [],
    }


def _as_json(text: Value) -> Value | None:
    """Returns the value that a text is the JSON of: many crews return JSON as text."""
    if not text.is_whole or not text.text.lstrip().startswith(("{", "[")):
        return None
    parsed = parsed_or_none(text.text)
    return None if parsed is None else type(text)(text.text, parsed, is_text=False, is_whole=True, bytes=text.bytes)


async def _warnings(store: ExecutionStore, execution: Execution) -> list[dict[str, Any]]:
    found = value_of(await store.member(execution.id, "warnings", most=MOST_SHOWN))
    warnings = found.parsed if found else None
    return [one for one in warnings if isinstance(one, dict)][:MOST_WARNINGS] if isinstance(warnings, list) else []


async def _timeline(visit: Visit, execution: Execution) -> dict[str, Any]:
    store = _store(visit)
    timeline = await timelines.of(store, execution)
    attempts = await visit.dashboard.crew_api.statuses.reads.attempts(execution.id)
    roots = timeline.roots or spans_of_tasks(await store.tasks(execution.id), execution.attempt)
    known = attempts_or_one(attempts, list(timeline.spans()) or roots)
    unended = {State.CANCELLED: "stopped", State.SUCCESS: "done"}.get(execution.state, "failed")
    step = failed_step(timeline.spans()) if execution.state in FAILED else None
    drawn = None
    if known:
        drawn = chart(
            roots,
            known,
            now=now(),
            ended=execution.state.ended or execution.state is State.PENDING,
            unended=unended if execution.state.ended else "lost",
            selected=visit.query.get("row", str(step.seq) if step else ""),
            opened=visit.query.get("open", ""),
            all_rows=visit.query.get("rows") == "all",
        )
    detail = await detail_of(store, execution.id, drawn.selected) if drawn and drawn.selected else None
    why = {one.attempt: one for one in attempts}
    return {"chart": drawn, "detail": detail, "attempts_by_number": why, "kept_query": _kept_query(visit)}


def _kept_query(visit: Visit) -> str:
    """Returns what the links of rows keep: which rows are unfolded."""
    names = {"rows": visit.query.get("rows", ""), "open": visit.query.get("open", "")}
    kept = {name: value for name, value in names.items() if value}
    return f"&{urlencode(kept)}" if kept else ""


async def _inputs(visit: Visit, execution: Execution) -> dict[str, Any]:
    store = _store(visit)
    inputs = value_of(await store.member(execution.id, "inputs", most=MOST_SHOWN))
    meta = value_of(await store.member(execution.id, "meta", most=MOST_SHOWN))
    limits = parsed_or_none(execution.limits or "null")
    return {"inputs": inputs, "meta": meta, "limits": limits}


async def _files(visit: Visit, execution: Execution) -> dict[str, Any]:
    files = await visit.dashboard.crew_api.stored_files.of(execution.id) if execution.file_count else []
    return {"files": files[:MOST_FILES], "left_out": max(0, len(files) - MOST_FILES)}


async def _log(visit: Visit, execution: Execution) -> dict[str, Any]:
    given = whole_number(visit.query.get("before"), len(str(LARGEST_NUMBER)) - 1)
    before = LARGEST_NUMBER if given is None else given
    lines, earlier = await log_of(_store(visit), execution.id, before)
    return {"lines": lines, "earlier": earlier, "is_newest": before == LARGEST_NUMBER}


async def _attempts(visit: Visit, execution: Execution) -> dict[str, Any]:
    return {"attempts": list(reversed(await visit.dashboard.crew_api.statuses.reads.attempts(execution.id)))}


async def _webhooks(visit: Visit, execution: Execution) -> dict[str, Any]:
    return await deliveries_of(visit, DeliveryFilter(kickoff=execution.id))


TAB_CONTEXTS = {
    "output": _output,
    "timeline": _timeline,
    "inputs": _inputs,
    "files": _files,
    "log": _log,
    "attempts": _attempts,
    "webhooks": _webhooks,
}


@ROUTES.get("/crews/{slug}/executions/{kickoff}/changes", Role.VIEWER)
async def changes(visit: Visit) -> Response:
    """Streams a message `changed` after new events, and `ended` at the end. The page then reads its parts again."""
    execution = await _found(visit)
    last = last_event_id(visit.request)
    cookie = visit.request.cookies.get(visit.dashboard.sessions.cookie)

    async def is_valid() -> bool:
        person = await visit.dashboard.sessions.person(cookie)
        if person is None or person.user_id != visit.person.user_id:
            return False
        return await visit.dashboard.control.members.sees(execution.slug, visit.actor)

    after = execution.last_event if last is None else last
    pages = await visit.dashboard.crew_api.streams.open(
        execution.id, execution.deployment_id, after, visit.person.user_id, is_valid
    )
    return StreamingResponse(_messages(pages), media_type=MEDIA_TYPE, headers=STREAM_HEADERS)


async def _messages(pages: AsyncGenerator[NextEvents | None]) -> AsyncIterator[str]:
    yield RETRY
    async with aclosing(pages):
        async for page in pages:
            if page is None:
                yield HEARTBEAT
            elif page.is_last:
                yield "event: ended\ndata: ended\n\n"
            else:
                yield f"id: {page.events[-1].seq}\nevent: changed\ndata: {page.events[-1].seq}\n\n"
                await asyncio.sleep(AT_MOST_EVERY)


@ROUTES.get("/crews/{slug}/executions/{kickoff}/files/{path:path}", Role.VIEWER)
async def download(visit: Visit) -> Response:
    status = await _status(visit)
    file = await find_file(visit.dashboard.crew_api.stored_files, status, visit.path["path"])
    return file_response(visit.dashboard.crew_api.stored_files, status.id, file, visit.request)


@ROUTES.get("/crews/{slug}/executions/{kickoff}/files.zip", Role.VIEWER)
async def download_all(visit: Visit) -> Response:
    status, store = await _status(visit), visit.dashboard.crew_api.stored_files
    files = await store.of(status.id) if status.file_count else []
    return zip_response(store, status.id, files, visit.request)


@ROUTES.get("/crews/{slug}/executions/{kickoff}/downloads/{name}", Role.VIEWER)
async def download_value(visit: Visit) -> Response:
    """Sends the whole output: `output.txt` as text, `output.json` and `structured.json` as JSON."""
    execution = await _found(visit)
    if visit.path["name"] not in {"output.txt", "output.json", "structured.json"}:
        raise Problem(404, "There is no such download. The page of the execution links to those that exist.")
    member, _, ending = visit.path["name"].partition(".")
    decoder = TextDecoder() if ending == "txt" else None

    async def write(file: AnswerFile) -> None:
        async with visit.dashboard.crew_api.statuses.large_members(execution.id) as pieces:
            async for piece in pieces(Stored(member)):
                await file.add(decoder.decode(piece) if decoder else piece)
        if decoder:
            await file.add(decoder.decode(b"", is_last=True))

    response = visit.dashboard.crew_api.large_answers.response(object(), write)
    kind = "text/plain; charset=utf-8" if decoder else "application/json"
    name = attachment(f"{execution.slug}-{execution.id}-{member}.{ending}")
    response.headers.update({**PROTECTION, "content-type": kind, "content-disposition": name})
    return response


async def _status(visit: Visit) -> KickoffStatus:
    execution = await _found(visit)
    found = await visit.dashboard.crew_api.statuses.get(execution.id)
    if found is None:
        raise Problem(404, "The execution was deleted.")
    return found


@ROUTES.post("/crews/{slug}/executions/{kickoff}/stop", Role.DEVELOPER)
async def stop(visit: Visit) -> Response:
    check_scope(visit, Scope.RUN)
    execution = await _found(visit)
    if execution.state.ended:
        return visit.redirect(path_of(execution), notice="It had ended before: nothing is left to stop.")
    state = await visit.dashboard.crew_api.stops.stop(execution.id, visit.actor)
    # What is being stopped is shown by the page itself, as long as it is true.
    return visit.redirect(path_of(execution), notice="It is stopped." if state is State.CANCELLED else None)


@ROUTES.post("/crews/{slug}/executions/{kickoff}/delete", Role.OWNER)
async def delete(visit: Visit) -> Response:
    check_scope(visit, Scope.ADMIN)
    execution = await _found(visit)
    if not execution.state.ended:
        raise Problem(409, "The execution has not ended. Stop it first, then delete it.")
    await visit.dashboard.crew_api.deletions.delete([execution.id], visit.actor)
    notice = f"The execution {short_id(execution.id)} is deleted for good, with its events, journal and files."
    return visit.redirect(f"/ui/crews/{execution.slug}/executions", notice=notice)
