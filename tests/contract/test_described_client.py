"""A client that follows the public guides of the API alone: kickoff with webhooks, feedback, approval, result."""

from __future__ import annotations

import json
import queue
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

import httpx
import pytest

from cli.the_command import ForkedCommand
from patience import DEADLINE
from projects_for_tests.making import written

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.xdist_group("served_crews")

PROJECT = {
    "pyproject.toml": '[project]\nname = "guide"\n\n[tool.windlass]\nentrypoint = "guide:crew"\n',
    "guide.py": """
        from crewai import Agent, Crew, Task


        def crew() -> Crew:
            writer = Agent(role="Writer", goal="Write.", backstory="You write.")
            plan = Task(name="plan", description="Plan a page about {topic}.", expected_output="A plan.", agent=writer)
            page = Task(
                name="page", description="Write the page.", expected_output="A page.", agent=writer, human_input=True
            )
            return Crew(agents=[writer], tasks=[plan, page])
    """,
}
SECRET = "the-token-of-the-receiver"
Received = queue.Queue[tuple[str, dict[str, Any], str | None]]


class Client:
    """What a program does that has the base URL and the Bearer token of a crew, and a URL for webhooks."""

    def __init__(self, base_url: str, token: str, hooks: str) -> None:
        self._http = httpx.Client(headers={"Authorization": f"Bearer {token}"}, timeout=DEADLINE)
        self._base_url = base_url.rstrip("/")
        authentication = {"strategy": "bearer", "token": SECRET}
        self._webhooks = {
            "taskWebhookUrl": f"{hooks}/task",
            "stepWebhookUrl": f"{hooks}/step",
            "crewWebhookUrl": f"{hooks}/crew",
        }
        self._asks = {"humanInputWebhook": {"url": f"{hooks}/human", "authentication": authentication}}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def inputs(self) -> list[str]:
        found: list[str] = self._call("GET", "/inputs")["inputs"]
        return found

    def kickoff(self, **inputs: str) -> str:
        return str(self._call("POST", "/kickoff", {"inputs": inputs, **self._webhooks, **self._asks})["kickoff_id"])

    def resume(self, execution: str, task: str, feedback: str, *, approve: bool) -> None:
        body = {"execution_id": execution, "task_id": task, "human_feedback": feedback, "is_approve": approve}
        self._call("POST", "/resume", {**body, **self._webhooks})

    def status(self, kickoff: str) -> dict[str, Any]:
        return self._call("GET", f"/status/{kickoff}")

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        answer = self._http.request(method, f"{self._base_url}{path}", json=body)
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found


@contextmanager
def receiving() -> Iterator[tuple[str, Received]]:
    """A program that gets webhooks: its URL, and the path, body and credentials of each in their order."""
    got: Received = queue.Queue()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(204)
            self.end_headers()
            got.put((self.path, body, self.headers["authorization"]))

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", got
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.timeout(600)
def test_it_gives_feedback_approves_and_gets_the_result(open_folder: Path) -> None:
    windlass = ForkedCommand(open_folder, {"WINDLASS_WEBHOOK_ALLOW": "127.0.0.1"})
    with windlass.started("dev", str(written(open_folder / "project", PROJECT)), "--port", "0") as server:
        url = server.wait_for("Base URL").split()[-1]
        for profile in ("documented", "live"):
            token = windlass("tokens", "create", "--profile", profile).out.strip()
            with receiving() as (hooks, got), Client(url, token, hooks) as client:
                gives_feedback_and_approves(client, got, profile)
        server.interrupt()
        assert server.end() == 0


def gives_feedback_and_approves(client: Client, got: Received, profile: str) -> None:
    assert client.inputs() == ["topic"]
    kickoff = client.kickoff(topic="tides")
    seen = []

    def next_of(path: str) -> dict[str, Any]:
        while True:
            found, body, credentials = got.get(timeout=4 * DEADLINE)
            assert credentials == (f"Bearer {SECRET}" if found == "/human" else None)
            seen.append(found)
            if found == path:
                return body

    first = next_of("/human")
    assert first["execution_id"] == kickoff
    assert first["task_output"]
    waiting = client.status(kickoff)
    assert waiting["state"] == {"documented": "PENDING_HUMAN_INPUT", "live": "PAUSED"}[profile]
    client.resume(kickoff, first["task_id"], "Name the moon.", approve=False)
    second = next_of("/human")
    assert second["task_id"] != first["task_id"]
    client.resume(kickoff, second["task_id"], "", approve=True)
    end = next_of("/crew")
    done = client.status(kickoff)
    assert (end["kickoff_id"], end["status"], end["result"]) == (kickoff, "completed", second["task_output"])
    assert seen.count("/task") == 2
    assert "/step" in seen
    assert done["state"] == "SUCCESS"
    assert (done["result"] if profile == "live" else done["result"]["output"]) == end["result"]
