"""A server whose disk is full, with all that it has on this disk: database, uploads and folders of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import psycopg
import pytest

from faults.dev_server import DevServer, until
from faults.harm import full
from faults.small_disk import needed_small_disk

if TYPE_CHECKING:
    from collections.abc import Iterator

MEGABYTES = 400


@pytest.fixture
def idle_on_small_disk(idle_server: DevServer) -> Iterator[DevServer]:
    """Not started yet."""
    with needed_small_disk(idle_server.home, MEGABYTES):
        idle_server.forked = True
        yield idle_server
        idle_server.clean_up()


@pytest.fixture
def server(idle_on_small_disk: DevServer) -> DevServer:
    idle_on_small_disk.start()
    return idle_on_small_disk


def ready(server: DevServer) -> tuple[int, dict[str, Any]]:
    answer = server.client.get("/ready")
    return answer.status_code, answer.json()


def begins(server: DevServer, word: str) -> str | None:
    """The id of a kickoff, None if the server refused it."""
    answer = server.client.post("/kickoff", json={"inputs": {"seconds": 0, "word": word}})
    assert answer.status_code in {200, 503}, answer.text
    return str(answer.json()["kickoff_id"]) if answer.status_code == 200 else None


def test_a_full_disk_is_reported_and_nothing_is_lost_once_it_has_room(server: DevServer) -> None:
    assert server.process is not None
    passed = {"database": "ok", "folders": "ok", "worker": "ok", "server": "ok"}
    assert ready(server) == (200, {"status": "ok", "checks": passed})
    running = [server.kickoff(5.0, word=f"running {number}") for number in range(3)]
    until(lambda: all(server.status(one)["state"] == "STARTED" for one in running), "they run")
    printed: list[str] = []

    def doctor_reports_it() -> bool:
        fill()  # an ended run frees some space
        doctor = server.command("doctor", WINDLASS_PORT=str(httpx.URL(server.client.base_url).port))
        printed.append(doctor.stdout)
        return doctor.returncode == 1 and "disk of the database is full" in doctor.stdout

    with full(server.home) as fill:
        until(lambda: is_reported(server), "the fault is reported", lambda: f"{ready(server)}\n{server.log}")
        until(doctor_reports_it, "doctor reports it", lambda: "\n".join(printed))
        assert "is not ready: " in printed[-1]
        accepted = [begins(server, f"accepted {number}") for number in range(3)]
    until(lambda: ready(server)[0] == 200, "the server is ready again", lambda: f"{ready(server)}\n{server.log}")
    assert server.process.poll() is None
    later = [*filter(None, accepted), server.kickoff(0, word="later")]
    ended = [server.ended(one) for one in [*running, *later]]
    assert {status["state"] for status in ended} == {"SUCCESS"}, (ended, server.log)
    assert [status["result"]["output"] for status in ended[:3]] == [f"running {number}" for number in range(3)]
    assert "folder.not_writable" in server.log
    assert "database.refused" in server.log


def test_kickoffs_wait_while_the_disk_of_the_server_is_full_and_that_of_its_database_is_not(
    idle_on_small_disk: DevServer, emptied_url: str
) -> None:
    server = idle_on_small_disk
    server.variables = {"WINDLASS_DATABASE_URL": emptied_url}
    server.start()
    assert server.ended(server.kickoff(0))["state"] == "SUCCESS"
    with full(server.home):
        until(lambda: "folders" in ready(server)[1].get("problems", {}), "the fault is reported")
        assert ready(server)[1]["checks"] == {"database": "ok", "folders": "failing", "worker": "ok", "server": "ok"}
        until(lambda: slots(emptied_url) == [0], "the worker has no slots")
        kickoff = server.kickoff(0, word="later")
        looks = server.log.count("kickoff.started")
        until(lambda: "write to their folders" in reason(server, kickoff), "the reason is known", lambda: server.log)
        assert (server.status(kickoff)["state"], server.log.count("kickoff.started")) == ("PENDING", looks)
    status = server.ended(kickoff)
    assert (status["state"], status["attempt"], status["result"]["output"]) == ("SUCCESS", 1, "later")


def reason(server: DevServer, kickoff: str) -> str:
    return str(server.status(kickoff).get("waiting_for"))


def slots(url: str) -> list[int]:
    """Of the workers that are alive."""
    with psycopg.connect(url) as connection:
        return [row[0] for row in connection.execute("SELECT slots FROM workers WHERE alive_until > now()")]


def is_reported(server: DevServer) -> bool:
    status, answer = ready(server)
    assert (status == 200) is (answer["status"] == "ok")
    problems = answer.get("problems", {})
    return (
        "The disk of the database is full" in problems.get("database", "")
        and problems.get("folders", "").startswith("The server can't write to WINDLASS_HOME: No space left on device. ")
        and str(server.home) not in str(problems)
    )
