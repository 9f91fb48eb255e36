"""A crew over HTTP that takes batches; what becomes of a kickoff is chosen by its topic."""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse

from cli.fake_crew import DEADLINE, FakeCrew, completed, failed, problem, running

if TYPE_CHECKING:
    from starlette.responses import Response

UNWANTED = {"status": 400, "error": "Bad Request", "message": "Not this topic.", "details": {}}
NO_ROOM = {"status": 429, "error": "Too Many Requests", "message": "Full.", "details": {}, "retry_after": 0}


@dataclass(slots=True)
class BatchCrew(FakeCrew):
    """`ids` are those of accepted keys. Topics in `held` run on, those in `failing` fail, those in `unwanted` are
    refused; with `room`, no more than so many are open.
    """

    ids: dict[str, str] = field(default_factory=dict)
    topics: dict[str, str] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)
    failing: set[str] = field(default_factory=set)
    unwanted: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    lose_answers: int = 0
    room: int | None = None
    refused_batches: Response | None = None
    unended: set[str] = field(default_factory=set)
    most_open: int = 0
    _asked: dict[str, threading.Event] = field(default_factory=lambda: defaultdict(threading.Event))

    @property
    def batches(self) -> list[list[dict[str, Any]]]:
        return [seen.body["kickoffs"] for seen in self.seen if seen.path == "/kickoffs"]

    def wait_until_asked_for(self, topic: str) -> None:
        """The status of its kickoff: it has begun then, and whoever began it knows its id."""
        assert self._asked[topic].wait(DEADLINE)

    def _of_crew(self, path: str) -> Response:
        if path == "/kickoffs":
            return self._batch(self.seen[-1].body["kickoffs"])
        if path == "/kickoff":
            return JSONResponse(self._accept(self.seen[-1].body))
        if path.startswith("/status/"):
            return self._status(path.removeprefix("/status/"))
        return FakeCrew._of_crew(self, path)  # super() does not know a class with slots

    def _batch(self, items: list[dict[str, Any]]) -> Response:
        answers = [self._accept(item) for item in items]
        self.most_open = max(self.most_open, len(self.unended))
        if self.refused_batches:
            return self.refused_batches
        if self.lose_answers:
            self.lose_answers -= 1
            return problem(503, "Service Unavailable", "The database is away for now.")
        return JSONResponse({"kickoffs": answers})

    def _accept(self, item: dict[str, Any]) -> dict[str, Any]:
        topic, key = item["inputs"]["topic"], item["idempotencyKey"]
        if topic in self.unwanted:
            return {"error": UNWANTED}
        if key not in self.ids:
            if self.room is not None and len(self.unended) >= self.room:
                return {"error": NO_ROOM}
            self.ids[key] = f"kickoff-{len(self.ids) + 1}"
            self.topics[self.ids[key]] = topic
            self.unended.add(self.ids[key])
        return {"kickoff_id": self.ids[key]}

    def _status(self, kickoff: str) -> Response:
        topic = self.topics[kickoff]
        self._asked[topic].set()
        if topic in self.gone:
            return problem(404, "Not Found", "There is no kickoff with this id here.")
        if topic in self.held:
            return JSONResponse(running())
        self.unended.discard(kickoff)
        return JSONResponse(failed() if topic in self.failing else completed(output=f"All about {topic}."))
