"""A crew over HTTP that takes batches; what becomes of a kickoff is chosen by its topic."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse

from cli.fake_crew import FakeCrew, completed, failed, problem, running
from patience import DEADLINE

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.responses import Response

    from cli.the_command import Command, Ended

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
    begun: int = 0
    lose_answers: int = 0
    room: int | None = None
    refused_batches: Response | None = None
    unended: set[str] = field(default_factory=set)
    most_open: int = 0
    _asked: dict[str, threading.Event] = field(default_factory=lambda: defaultdict(threading.Event))

    @property
    def batches(self) -> list[list[dict[str, Any]]]:
        return [seen.body["kickoffs"] for seen in self.seen if seen.path == "/kickoffs"]

    def lose_all(self) -> None:
        """As another database does."""
        self.ids.clear()
        self.topics.clear()
        self.unended.clear()

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
            return problem(503, "Service Unavailable", "The database is unavailable.")
        return JSONResponse({"kickoffs": answers})

    def _accept(self, item: dict[str, Any]) -> dict[str, Any]:
        topic, key = item["inputs"]["topic"], item["idempotencyKey"]
        if topic in self.unwanted:
            return {"error": UNWANTED}
        if key not in self.ids:
            if self.room is not None and len(self.unended) >= self.room:
                return {"error": NO_ROOM}
            self.begun += 1
            self.ids[key] = f"kickoff-{self.begun}"
            self.topics[self.ids[key]] = topic
            self.unended.add(self.ids[key])
        return {"kickoff_id": self.ids[key]}

    def _status(self, kickoff: str) -> Response:
        topic = self.topics.get(kickoff)
        if topic is None or topic in self.gone:
            return problem(404, "Not Found", "There is no kickoff with this id here.")
        self._asked[topic].set()
        if topic in self.held:
            return JSONResponse(running())
        self.unended.discard(kickoff)
        return JSONResponse(failed() if topic in self.failing else completed(output=f"All about {topic}."))


def write(file: Path, *topics: str) -> Path:
    file.write_text("".join(json.dumps({"topic": topic}) + "\n" for topic in topics), encoding="utf-8")
    return file


def records(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def results(out: Path) -> list[dict[str, Any]]:
    """Of a batch that has come to its end."""
    found = records(out.read_text("utf-8"))
    assert len({(record["batch"], record["url"]) for record in found}) == 1
    return found


def write_as_before(out: Path) -> None:
    """As earlier releases did: the batch stands in a first line of its own."""
    found = results(out)
    batch = {name: found[0][name] for name in ("batch", "url")}
    lines = [batch, *({name: record[name] for name in record if name not in {*batch, "retry"}} for record in found)]
    out.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def each(windlass: Command, crew: BatchCrew, inputs: Path, *more: object) -> Ended:
    return windlass("kickoff", crew.url, "--each", str(inputs), *map(str, more))
