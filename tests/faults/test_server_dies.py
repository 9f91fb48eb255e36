from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from faults.dev_server import CODE, DevServer, until
from projects_for_tests.ends import kickoff_folders

if TYPE_CHECKING:
    import httpx

TEN = 10


@pytest.fixture
def server(idle_server: DevServer) -> DevServer:
    idle_server.forked = True
    idle_server.start()
    return idle_server


def test_kill_9_of_the_server_in_the_middle_of_ten_kickoffs_loses_none(server: DevServer) -> None:
    kickoffs = [server.kickoff(0.5, word=f"word {number}") for number in range(TEN)]
    until(lambda: server.status(kickoffs[1])["state"] == "STARTED", "some of them run")
    server.end(signal.SIGKILL)
    until(lambda: not server.processes(), "nothing of the killed server lives on")
    server.start()
    ended = [server.ended(kickoff) for kickoff in kickoffs]
    assert [status["state"] for status in ended] == ["SUCCESS"] * TEN
    assert [status["result"]["output"] for status in ended] == [f"word {number}" for number in range(TEN)]
    assert max(status["attempt"] for status in ended) == 2
    until(lambda: not kickoff_folders(server.home / "runs"), "the folders of all runs are removed")


def test_what_runs_when_the_server_is_told_to_stop_goes_on_at_the_next_start(server: DevServer) -> None:
    kickoff = server.kickoff(1.0)
    until(lambda: server.status(kickoff)["state"] == "STARTED", "it runs")
    assert server.end(signal.SIGINT) == 0
    assert server.processes() == []
    server.start()
    status = server.ended(kickoff)
    assert (status["state"], status["attempt"]) == ("SUCCESS", 2)


def test_what_ends_soon_may_end_when_the_server_is_asked_to_stop(server: DevServer) -> None:
    kickoff = server.kickoff(1.0)
    until(lambda: server.status(kickoff)["state"] == "STARTED", "it runs")
    assert server.end(signal.SIGTERM) == 0
    assert server.processes() == []
    server.start()
    status = server.ended(kickoff)
    assert (status["state"], status["attempt"]) == ("SUCCESS", 1)


def test_postgresql_that_is_killed_comes_back_and_nothing_that_was_answered_is_lost(server: DevServer) -> None:
    kickoffs = [server.kickoff(2.0) for _ in range(3)]
    until(lambda: server.status(kickoffs[0])["state"] == "STARTED", "they run")
    keeper = next(process for process in server.processes() if "keeper.py" in " ".join(process.cmdline()))
    keeper.suspend()  # it would start another before anybody missed the first
    (postmaster,) = keeper.children()
    postmaster.kill()
    until(lambda: asked(server).status_code == 503, "a request is told to come back")
    refused = asked(server)
    assert refused.headers["Retry-After"].isdigit()
    assert refused.json()["error"] == "Service Unavailable"
    keeper.resume()
    until(lambda: asked(server).status_code == 200, "the server takes requests again")
    assert [server.ended(kickoff)["state"] for kickoff in kickoffs] == ["SUCCESS"] * 3


def test_nobody_misses_a_postgresql_that_is_killed_while_its_keeper_lives(server: DevServer) -> None:
    before = [server.kickoff(0) for _ in range(5)]
    keeper = next(process for process in server.processes() if "keeper.py" in " ".join(process.cmdline()))
    keeper.children()[0].kill()
    until(lambda: asked(server).status_code == 200, "the server takes requests")
    assert [server.ended(kickoff)["state"] for kickoff in before] == ["SUCCESS"] * 5


def test_a_second_server_on_the_same_home_says_so(server: DevServer) -> None:
    second = server.command("dev", str(server.project), "--port", "0")
    assert second.returncode == 1
    assert "is in use by another Windlass server" in second.stderr
    assert "database.stopped" not in second.stderr, "it is that of the first server"
    assert "WINDLASS_HOME" in second.stderr
    assert server.client.get("/ready").status_code == 200


def test_a_project_that_changed_is_served_as_it_is_now(server: DevServer) -> None:
    assert server.client.get("/inputs").json()["inputs"] == ["seconds"]
    server.end(signal.SIGTERM)
    server.start()
    assert "loading the project" not in server.log.rpartition("stopping")[2]
    server.end(signal.SIGTERM)
    server.write_project(CODE.replace('word: str = "done"', "word: str"))
    server.start()
    assert server.client.get("/inputs").json()["inputs"] == ["seconds", "word"]


def asked(server: DevServer) -> httpx.Response:
    return server.client.post("/kickoff", json={"inputs": {"seconds": 0}})
