"""`windlass serve` without a crew, and the stop of `windlass api`."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import httpx

from cli.the_command import ForkedCommand
from faults.cluster import free_port
from windlass.wiring.serve import MOST_NAMED, startup_banner

if TYPE_CHECKING:
    from pathlib import Path

    from cli.the_command import Command


def test_a_server_without_a_crew_prints_its_address_and_how_to_deploy(open_folder: Path) -> None:
    windlass = ForkedCommand(open_folder)
    with windlass.started("serve", "--port", "0") as server:
        address = server.wait_for("Address").split()[-1]
        server.wait_for("Ctrl-C stops")
        assert "Windlass serves no crew yet" in server.out
        assert "  windlass deploy my_crew\n" in server.out
        assert "no model key is set here" in server.out
        nothing = windlass("tokens", "show")
        assert (nothing.code, "There is no crew on this server yet." in nothing.err) == (1, True)
        second = windlass("serve", "--port", address.rpartition(":")[2])
        assert (second.code, "is taken" in second.err or "in use" in second.err) == (1, True), second.err
        server.interrupt()
        assert server.end() == 0


def test_the_banner_names_some_crews_and_counts_the_others() -> None:
    slugs = [f"crew-{number}" for number in range(MOST_NAMED + 5)]
    lines = startup_banner("http://127.0.0.1:8000", slugs, 4)
    assert lines[1] == f"Windlass serves {len(slugs)} crews, 4 kickoffs at once."
    assert sum("/crews/" in line for line in lines) == MOST_NAMED
    assert any("5 more: windlass deployments list" in line for line in lines)


def test_a_server_that_stops_goes_on_for_the_delay_of_load_balancers(windlass: Command, database_url: str) -> None:
    port = free_port()
    own = {"WINDLASS_DATABASE_URL": database_url, "WINDLASS_MASTER_KEY": "A" * 43 + "=", "WINDLASS_STOP_DELAY": "600"}
    with windlass.started("api", "--port", str(port), **own) as api:
        api.wait_for("serving every crew")
        api.process.send_signal(signal.SIGTERM)
        api.wait_for("stopping")
        ready = httpx.get(f"http://127.0.0.1:{port}/ready", trust_env=False)  # a new connection
        assert (ready.status_code, ready.json()["checks"]["server"]) == (503, "failing")
        assert ready.json()["problems"] == {"server": "The server is stopping."}
        health = httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False)
        assert (health.status_code, health.headers["connection"]) == (200, "close")
        api.process.send_signal(signal.SIGTERM)
        assert api.end() == 0
