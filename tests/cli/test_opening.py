"""`windlass open`, and what a shell completes, against a control API whose answers the test chooses."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cli.fake_server import FakeServer
from cli.the_command import CommandHere, ForkedCommand

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.the_command import Command

KICKOFF = "0199bbbb-0000-7000-8000-00000000000a"


@pytest.fixture
def server() -> Iterator[FakeServer]:
    server = FakeServer()
    server.open()
    yield server
    server.close()


@pytest.fixture
def windlass(tmp_path: Path, server: FakeServer) -> Command:
    return CommandHere(tmp_path, server.variables)


def test_the_address_of_a_page_is_printed(windlass: Command, server: FakeServer) -> None:
    server.answers["GET deployments/tea"] = {"slug": "tea"}
    server.answers[f"GET kickoffs/{KICKOFF}"] = {"kickoff_id": KICKOFF}
    assert windlass("open").out == f"{server.url}/ui/\n"
    assert windlass("open", "tea").out == f"{server.url}/ui/crews/tea\n"
    assert windlass("open", KICKOFF.upper(), "--print").out == f"{server.url}/ui/executions/{KICKOFF}\n"


def test_an_unknown_crew_is_refused(windlass: Command) -> None:
    ended = windlass("open", "coffee")
    assert (ended.code, ended.out) == (3, "")


def completed(windlass: Command, line: str, **variables: str) -> list[str]:
    """Runs a process of its own, as a shell does: click writes bytes for the shell."""
    place = str(len(line.split(" ")) - 1)
    words = {"_WINDLASS_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": place}
    return ForkedCommand(Path(windlass.environment["HOME"]), {**windlass.environment, **variables})(**words).out.split()


def test_a_shell_completes_crews_and_kickoffs(windlass: Command, server: FakeServer) -> None:
    server.answers["GET deployments"] = {"items": [{"slug": "tea"}, {"slug": "coffee"}]}
    server.answers["GET kickoffs"] = {"items": [{"kickoff_id": KICKOFF, "state": "SUCCESS", "deployment": "tea"}]}
    assert completed(windlass, "windlass deployments show t") == ["plain,tea"]
    assert completed(windlass, "windlass inputs --deployment ") == ["plain,tea", "plain,coffee"]
    assert completed(windlass, "windlass env list c") == ["plain,coffee"]
    assert completed(windlass, "windlass status 0199") == [f"plain,{KICKOFF}"]
    assert completed(windlass, "windlass kickoffs delete ") == [f"plain,{KICKOFF}"]
    assert completed(windlass, "windlass kickoffs de") == ["plain,delete"]
    assert completed(windlass, "windlass kickoffs --sta") == ["plain,--state"]
    assert completed(windlass, "windlass deployments --state pau") == ["plain,paused"]
    assert completed(windlass, "windlass deployments promo") == ["plain,promote"]
    assert completed(windlass, "windlass open ") == ["plain,tea", "plain,coffee", f"plain,{KICKOFF}"]


def test_a_server_that_does_not_answer_does_not_hold_the_shell(windlass: Command) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert completed(windlass, "windlass inputs --deployment ", WINDLASS_URL=url) == []
