"""What Windlass can't do with a release of crewai is in /ready and in doctor, and the server stays ready."""

from __future__ import annotations

import asyncio
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

import httpx
import pytest
from starlette.applications import Starlette

from windlass.api.application import health_routes
from windlass.cli.checks import Level
from windlass.cli.checks.server import server
from windlass.config import Settings
from windlass.errors import WindlassError
from windlass.runner.zygote import codes_in
from windlass_child.crewai import capabilities
from windlass_child.protocol.messages import Ready

if TYPE_CHECKING:
    from pathlib import Path

    from windlass.cli.checks import Finding

CODE = "crewai_without_import_guard"


async def ready(codes: list[str], failed_warm_ups: int = 0) -> httpx.Response:
    app = Starlette(routes=health_routes({}, lambda: codes, lambda: failed_warm_ups))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as http:
        return await http.get("/ready")


def test_a_server_is_ready_and_names_what_it_can_not_do() -> None:
    answer = asyncio.run(ready([CODE]))
    assert (answer.status_code, answer.json()["status"], answer.json()["degraded"]) == (200, "ok", [CODE])
    assert "degraded" not in asyncio.run(ready([])).json()


def test_a_failed_warm_up_is_a_problem_of_a_server_that_is_ready() -> None:
    answer = asyncio.run(ready([], 2))
    assert (answer.status_code, answer.json()["status"]) == (200, "ok"), "the crews of other interpreters run"
    assert answer.json()["checks"] == {"warm_up": "failing"}
    assert answer.json()["problems"]["warm_up"].startswith("The warm-up of the framework failed in 2 interpreters.")


def test_doctor_warns_of_it(tmp_path: Path) -> None:
    finding = finding_of(asyncio.run(ready([CODE])).content, tmp_path)
    assert finding.level is Level.WARN
    assert CODE in finding.text


def test_doctor_fails_after_a_failed_warm_up(tmp_path: Path) -> None:
    with pytest.raises(WindlassError, match=r"but not all of it works: warm_up\. The warm-up .* 1 interpreter"):
        finding_of(asyncio.run(ready([], 1)).content, tmp_path)


def finding_of(body: bytes, home: Path) -> Finding:
    """Returns the finding of `windlass doctor` about a server that answers GET /ready with this body."""

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Answering) as answering:
        threading.Thread(target=answering.serve_forever, daemon=True).start()
        try:
            return server(Settings(home=home, host="127.0.0.1", port=answering.server_port))
        finally:
            answering.shutdown()


def test_a_guard_without_anything_to_guard_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert capabilities.degraded() == []
    monkeypatch.setattr("windlass_child.crewai.capabilities.starting", lambda _: [])
    capabilities.found.cache_clear()
    try:
        assert capabilities.degraded() == [CODE]
        assert [one.code for one in capabilities.warnings("flow")] == [CODE]
    finally:
        monkeypatch.undo()
        capabilities.found.cache_clear()


def test_a_zygote_can_not_write_what_everybody_reads() -> None:
    answer = Ready(
        "3.11", "crewai", "1", degraded=[CODE, "sk-secret", "a" * 99, "Text", *(f"{'x' * n}" for n in range(1, 99))]
    )
    assert codes_in(answer) >= {CODE}
    assert "sk-secret" not in codes_in(answer)
    assert len(codes_in(answer)) <= 20
