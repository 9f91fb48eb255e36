"""A crew over HTTP whose every status a test chooses, to watch what the commands make of it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from patience import DEADLINE
from windlass.api.server import HttpServer

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from starlette.requests import Request

Answer = TypeVar("Answer")

TOKEN = "wlo_of_the_fake_crew"
KICKOFF = "0199aaaa-0000-7000-8000-000000000001"
STOPPING = "It is being stopped: its processes are gone within 5 seconds."
SCHEMA = {
    "type": "object",
    "properties": {
        "topic": {"type": "string", "description": "What to look into."},
        "depth": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": 3},
        "tone": {"enum": ["dry", "warm"], "description": "How it sounds. " * 10},
    },
    "required": ["topic"],
}


@dataclass(frozen=True, slots=True)
class Seen:
    """A request as it arrived."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: Any


@dataclass(slots=True)
class FakeCrew:
    """`statuses` are given one after the other, the last one again and again; `refusal` in place of any answer."""

    statuses: list[dict[str, Any]] = field(default_factory=lambda: [completed()])
    attempts: list[dict[str, Any]] = field(default_factory=list)
    pages: list[dict[str, Any]] = field(default_factory=list)
    """The pages of a list or of events, given one after the other, with any query."""
    streams: list[str] = field(default_factory=list)
    """The content of streams of events, given one after the other."""
    files: list[dict[str, Any]] = field(default_factory=list)
    contents: dict[str, bytes] = field(default_factory=dict)
    refusal: Response | None = None
    seen: list[Seen] = field(default_factory=list)
    port: int = 0
    _server: HttpServer | None = None
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def open(self) -> None:
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.start()

    def close(self) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        if self._thread:
            self._thread.join(DEADLINE)
        self._loop.close()

    def start(self) -> None:
        """On the port that it had before, if it had one."""
        self._server = HttpServer(self._app(), "127.0.0.1", self.port)
        self._done(self._server.start())
        self.port = self._server.port

    def stop(self) -> None:
        if self._server:
            self._done(self._server.stop())

    def _done(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(DEADLINE)

    def _app(self) -> Starlette:
        return Starlette(routes=[Route("/{path:path}", self._answer, methods=["GET", "POST", "DELETE"])])

    async def _answer(self, request: Request) -> Response:
        text = await request.body()
        body = json.loads(text) if text else None
        path = f"/{request.path_params['path']}"
        if request.headers.get("accept") == "text/event-stream" and not self.streams:
            return problem(404, "Not Found", "There is no kickoff with this id here.")
        self.seen.append(Seen(request.method, path, request.url.query, dict(request.headers), body))
        if self.refusal:
            return self.refusal
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return problem(401, "Unauthorized", "The request needs a valid token of this crew.")
        if request.headers.get("accept") == "text/event-stream":
            return Response(self.streams.pop(0), media_type="text/event-stream")
        if (name := path.removeprefix(f"/files/{KICKOFF}/")) in self.contents:
            start, end = request.headers["range"].removeprefix("bytes=").split("-")
            return Response(self.contents[name][int(start) : int(end) + 1], 206)
        return self._of_crew(path)

    def _of_crew(self, path: str) -> Response:
        if path == f"/status/{KICKOFF}":
            status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
            return Response(json.dumps(status), media_type="application/json")
        if path in {"/kickoffs", f"/events/{KICKOFF}"}:
            return JSONResponse(self.pages.pop(0))
        answers: dict[str, dict[str, Any]] = {
            "/inputs": {"inputs": ["topic"], "schema": SCHEMA},
            "/kickoff": {"kickoff_id": KICKOFF},
            "/stop": {"stopped": 3, "message": "3 kickoffs are stopped."},
            f"/stop/{KICKOFF}": {"kickoff_id": KICKOFF, "status": "running", "state": "STARTED", "message": STOPPING},
            f"/kickoffs/{KICKOFF}": {"kickoff_id": KICKOFF, "message": "The kickoff is deleted for good."},
            f"/files/{KICKOFF}": {"kickoff_id": KICKOFF, "files": self.files},
            f"/attempts/{KICKOFF}": {"kickoff_id": KICKOFF, "attempts": self.attempts},
        }
        if path in answers:
            return JSONResponse(answers[path])
        return problem(404, "Not Found", "There is no kickoff with this id here.")


def file(path: str, content: bytes) -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    return {"path": path, "size": len(content), "sha256": digest, "media_type": "text/plain"}


def problem(status: int, title: str, message: str, **details: Any) -> JSONResponse:
    return JSONResponse({"error": title, "message": message, "details": details}, status)


def task(name: str | None, state: str, **members: Any) -> dict[str, Any]:
    given = {"task_id": name or "5d41402a", "key": "5d41402a", "name": name, "agent": "Researcher", "state": state}
    return {**given, "unregistered": False, "started_at": None, "finished_at": None, **members}


def running(*tasks: dict[str, Any], **members: Any) -> dict[str, Any]:
    current = next((task["name"] for task in tasks if task["state"] == "running"), None)
    done = sum(task["state"] == "completed" for task in tasks)
    return {
        **_always("STARTED", "running", tasks),
        "current_task": current,
        "progress": {"completed_tasks": done, "total_tasks": len(tasks)},
        **members,
    }


def waiting(code: str, message: str, place: int | None = None, **members: Any) -> dict[str, Any]:
    return {
        **running(task("research", "pending_run")),
        "state": "PENDING",
        "attempt": 0,
        "started_at": None,
        "waiting_for": {"code": code, "message": message, "place": place},
        **members,
    }


def completed(*tasks: dict[str, Any], output: str = "Tea is a leaf.", **members: Any) -> dict[str, Any]:
    return {
        **_always("SUCCESS", "completed", tasks),
        "result": {"output": output, "json": None, "tasks": []},
        "token_usage": {"total_tokens": 1234},
        "execution_time": 4.25,
        **members,
    }


def failed(*tasks: dict[str, Any], reason: str = "error", error: str = "KeyError: 'topic'") -> dict[str, Any]:
    return {**_always("FAILED", "error", tasks), "reason": reason, "error": error, "execution_time": 1.0}


def listed(number: int = 1, state: str = "SUCCESS", **members: Any) -> dict[str, Any]:
    return {
        "kickoff_id": f"0199aaaa-0000-7000-8000-{number:012}",
        "status": "completed",
        "state": state,
        "created_at": "2026-01-02T03:04:05.000000Z",
        "started_at": None,
        "finished_at": None,
        "attempt": 1,
        "user": None,
        "reason": None,
        "error": None,
        "total_tokens": None,
        "execution_time": None,
        **members,
    }


def events(*found: tuple[str, dict[str, Any]], status: str = "completed", more: bool = False) -> dict[str, Any]:
    """A page with these types and payloads."""
    rows = [
        {"seq": number, "attempt": 1, "type": kind, "at": "2026-01-02T03:04:05.006000Z", "payload": payload}
        for number, (kind, payload) in enumerate(found, 1)
    ]
    return {"kickoff_id": KICKOFF, "status": status, "events": rows, "next": len(rows), "more": more}


def attempt(number: int = 1, ended_as: str | None = None, why: str | None = None, **members: Any) -> dict[str, Any]:
    return {
        "attempt": number,
        "started_at": "2026-01-02T03:04:06.000000Z",
        "ended_at": "2026-01-02T03:04:18.500000Z" if ended_as else None,
        "ended_as": ended_as,
        "why": why,
        "host": f"host-{number}",
        "restored": 0,
        "from_journal": [],
        "ran": [],
        **members,
    }


def _always(state: str, status: str, tasks: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    return {
        "kickoff_id": KICKOFF,
        "status": status,
        "state": state,
        "created_at": "2026-01-02T03:04:05.000000Z",
        "started_at": "2026-01-02T03:04:06.000000Z",
        "finished_at": None,
        "meta": None,
        "attempt": 1,
        "tasks": list(tasks),
    }
