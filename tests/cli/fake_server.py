"""A control API whose every answer a test chooses, to watch what the commands make of it."""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass, field
from io import BytesIO
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from cli.fake_crew import FakeCrew, Seen, problem

if TYPE_CHECKING:
    from starlette.requests import Request

TOKEN = "wlp_of_the_fake_server"
BUILD = "0199bbbb-0000-7000-8000-000000000001"
BASE = "/api/v1/"
ME = {"user": "ann", "role": "developer", "token": {"id": BUILD, "name": "laptop", "expires_at": None}}


@dataclass(slots=True)
class FakeServer(FakeCrew):
    """`answers` maps a method and a path below /api/v1, or a path of a crew, to an answer, or to a list of answers that
    are given one after the other, the last one again and again.
    """

    answers: dict[str, Any] = field(default_factory=lambda: {"GET me": ME})

    token: str = TOKEN

    @property
    def variables(self) -> dict[str, str]:
        return {"WINDLASS_URL": self.url, "WINDLASS_API_TOKEN": TOKEN}

    def requests(self) -> list[str]:
        return [f"{one.method} {one.path.removeprefix(BASE)}" for one in self.seen]

    def sent(self, request: str) -> Any:
        """The body of the only request of this kind."""
        (one,) = [seen for seen, name in zip(self.seen, self.requests(), strict=True) if name == request]
        return one.body

    def _app(self) -> Starlette:
        methods = ["GET", "POST", "PUT", "PATCH", "DELETE"]
        return Starlette(routes=[Route("/{path:path}", self._respond, methods=methods)])

    async def _respond(self, request: Request) -> Response:
        content = await request.body()
        zipped = request.headers.get("content-type") == "application/zip"
        body: Any = content if zipped else json.loads(content) if content else None
        path = f"/{request.path_params['path']}"
        self.seen.append(Seen(request.method, path, request.url.query, dict(request.headers), body))
        if self.refusal:
            return self.refusal
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return problem(401, "Unauthorized", "The request needs a valid personal access token.")
        answer = self.answers.get(f"{request.method} {path.removeprefix(BASE)}")
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        if answer is None:
            return problem(404, "Not Found", f"There is no {path}.")
        return answer if isinstance(answer, Response) else JSONResponse(answer)


def deployment(slug: str = "tea", **members: Any) -> dict[str, Any]:
    return {
        "id": BUILD,
        "slug": slug,
        "state": "online",
        "base_url": f"/crews/{slug}",
        "version": 1,
        "paused_at": None,
        "running": 0,
        "waiting": 0,
        "concurrency": None,
        "weight": 1.0,
        "last_kickoff_at": None,
        "created_at": "2026-01-02T03:04:05Z",
        "visible_to": "everybody",
        "latest_build": {"id": BUILD, "state": "ready"},
        **members,
    }


def variable(name: str, value: str | None, **members: Any) -> dict[str, Any]:
    return {
        "name": name,
        "secret": False,
        "value": value,
        "source": {"type": "value", "provider": None, "credential": None},
        "secret_name": None,
        "read": None,
        "read_at": None,
        "updated_at": "2026-01-02T03:04:05Z",
        "updated_by": "ann",
        **members,
    }


def build(state: str = "ready", **members: Any) -> dict[str, Any]:
    return {
        "id": BUILD,
        "deployment": "tea",
        "state": state,
        "origin": {"type": "folder"},
        "error": None,
        "hint": None,
        "changes": None,
        "version": 1,
        "created_by": "ann",
        "created_at": "2026-01-02T03:04:05Z",
        "started_at": "2026-01-02T03:04:06Z",
        "finished_at": "2026-01-02T03:04:08Z",
        **members,
    }


def log(*messages: str, state: str = "building", after: int = 0, level: str = "info") -> dict[str, Any]:
    """A page of a build's log."""
    lines = [
        {"seq": number, "at": "2026-01-02T03:04:06Z", "level": level, "message": message}
        for number, message in enumerate(messages, after + 1)
    ]
    return {"items": lines, "state": state, "next_after": after + len(lines)}


def names_in(content: bytes) -> set[str]:
    with zipfile.ZipFile(BytesIO(content)) as archive:
        return set(archive.namelist())


def deployed(server: FakeServer, *, exists: bool = False, state: str = "ready", **members: Any) -> None:
    """Sets the answers for `windlass deploy` of a project named tea."""
    server.answers |= {
        "GET deployments/tea": [*([] if exists else [problem(404, "Not Found", "No such deployment.")]), deployment()],
        "POST deployments": JSONResponse({"deployment": deployment(), "build": build("queued")}, 201),
        "POST deployments/tea/builds": JSONResponse({"build": build("queued")}, 202),
        f"GET builds/{BUILD}/log": [log("installing"), log("loading", state=state, after=1), log(state=state, after=2)],
        f"GET builds/{BUILD}": build(state, **members),
        "GET deployments/tea/variables": {"items": [], "next_cursor": None},
        "GET /crews/tea/inputs": {"inputs": ["leaf"], "schema": {"type": "object", "properties": {"leaf": {}}}},
    }
