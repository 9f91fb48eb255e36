"""What Windlass can't do with a release of crewai is in /ready and in doctor, and the server stays ready."""

from __future__ import annotations

import asyncio
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

import httpx
from starlette.applications import Starlette

from windlass.api.application import health_routes
from windlass.cli.checks import Level
from windlass.cli.checks.server import server
from windlass.config import Settings
from windlass.runner.zygote import codes_in
from windlass_child.crewai import capabilities
from windlass_child.process.messages import Ready

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

CODE = "crewai_without_import_guard"


async def ready(codes: list[str]) -> httpx.Response:
    app = Starlette(routes=health_routes({}, lambda: codes))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as http:
        return await http.get("/ready")


def test_a_server_is_ready_and_names_what_it_can_not_do() -> None:
    answer = asyncio.run(ready([CODE]))
    assert (answer.status_code, answer.json()["status"], answer.json()["degraded"]) == (200, "ok", [CODE])
    assert "degraded" not in asyncio.run(ready([])).json()


def test_doctor_warns_of_it(tmp_path: Path) -> None:
    body = asyncio.run(ready([CODE])).content

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Answering) as answering:
        threading.Thread(target=answering.serve_forever, daemon=True).start()
        finding = server(Settings(home=tmp_path, host="127.0.0.1", port=answering.server_port))
        answering.shutdown()
    assert finding.level is Level.WARN
    assert CODE in finding.text


def test_a_guard_without_anything_to_guard_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert capabilities.degraded() == []
    monkeypatch.setattr("windlass_child.crewai.kickoffs.starting", lambda _: [])
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
