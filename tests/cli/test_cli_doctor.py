from __future__ import annotations

import fcntl
import os
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pydantic import SecretStr
from starlette.responses import JSONResponse

from cli.the_command import Command
from projects_for_tests.refused_calls import is_possible, refusing
from windlass.cli.checks import Finding, Level, crew, examine, machine, server
from windlass.config import Settings
from windlass.embedded_postgres.home import Paths
from windlass.errors import WindlassError
from windlass.runner.namespaces import sockets_permitted
from windlass_child.process.hardening import CONNECTS, landlock_version
from windlass_child.process.sockets import CLOSED

if TYPE_CHECKING:
    from cli.fake_crew import FakeCrew
    from cli.the_command import Ended


def lines(ended: Ended) -> dict[str, tuple[str, str]]:
    """Subject -> level and text."""
    found = (re.fullmatch(r"(\w+) +(\w+): +(.+)", line) for line in ended.out.splitlines())
    return {match[2]: (match[1], match[3]) for match in found if match}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def test_all_is_well_on_a_machine_that_can_serve(windlass: Command, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.windlass]\nentrypoint = "steep:steep"\n')
    (tmp_path / "steep.py").write_text("def steep(leaf: str) -> str:\n    return leaf\n")
    (tmp_path / ".env").write_text("OPENAI_API_KEY=sk-hunter2")
    ended = windlass("doctor", f"{tmp_path}/steep.py:steep", WINDLASS_PORT=str(free_port()))
    found = lines(ended)
    of_machine = ("memory", "users", "files", "network", "orphans")  # a container may not have all of it
    assert {level for subject, (level, _) in found.items() if subject not in of_machine} == {"ok"}, ended
    assert list(found) == [
        *("Python", "home", "database", "fork", "limits", *of_machine, "interpreter", "project", "model", "server")
    ]
    assert found["project"][1] == "steep, a function, tasks: 1"
    assert "OPENAI_API_KEY is set" in found["model"][1]
    assert ended.code == 0
    assert "hunter2" not in ended.out + ended.err


@pytest.mark.skipif(not is_possible(), reason="seccomp is a part of Linux")
@pytest.mark.parametrize(
    ("refused", "words"),
    [
        (["unshare"], "and connect to nothing else"),
        (["unshare", "landlock"], "reaches everything by TCP"),
        (["unshare", "prctl"], "Runs with a stricter egress fail"),
    ],
)
def test_where_a_container_permits_no_namespaces_it_says_what_holds(
    tmp_path: Path, refused: list[str], words: str
) -> None:
    if "landlock" not in refused and landlock_version() < CONNECTS:
        pytest.skip("the Landlock of this machine knows no ports")
    windlass = Command(tmp_path)
    windlass.program = (*refusing(*refused), *windlass.program)
    level, text = lines(windlass("doctor", WINDLASS_PORT=str(free_port())))["network"]
    assert level == "warn"
    assert "Operation not permitted" in text
    assert "The egress open is not enforced" in text
    assert (words in text) == ("prctl" in refused or sockets_permitted() != CLOSED)


def test_what_is_wrong_is_told_with_how_to_mend_it_and_the_rest_is_still_checked(
    windlass: Command, database_url: str, tmp_path: Path, crew: FakeCrew
) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.windlass]\nentrypoint = "steep:steep"\n')
    (tmp_path / "steep.py").write_text("import no_such_package\n")
    variables = {"WINDLASS_DATABASE_URL": database_url, "WINDLASS_PORT": str(crew.port), "MODEL": "ollama/llama3"}
    ended = windlass("doctor", str(tmp_path), **variables)
    found = lines(ended)
    assert ended.code == 1
    assert [subject for subject, (level, _) in found.items() if level == "fail"] == ["project", "server"]
    assert "no_such_package" in found["project"][1]
    assert found["server"][1].endswith("Stop it, or choose another port with WINDLASS_PORT.")
    assert found["model"] == (
        "warn",
        "crews use the model that MODEL names; no provider's key is set, which it may need",
    )


def test_a_finding_is_one_line() -> None:
    def check() -> Finding:
        raise WindlassError("It broke\nin two.", "Mend it.")

    assert examine(check).line("thing") == "fail  thing:        It broke in two. Mend it."


def test_a_home_that_cannot_be_a_folder_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WindlassError, match="can't be used: this user can't write to"):
        machine.home(tmp_path / "file" / "windlass")


def test_a_home_that_is_not_there_yet_is_well_where_it_can_be_made(tmp_path: Path) -> None:
    assert machine.home(tmp_path / "not" / "yet").level is Level.OK
    assert not (tmp_path / "not").exists()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a file system without room")
def test_a_disk_without_room_fails() -> None:
    with pytest.raises(WindlassError, match=r"too little for a database|can't write to"):
        machine.home(Path("/proc/windlass"))


def test_bounds_of_a_container_that_runs_meet_first_are_named(tmp_path: Path) -> None:
    bound, none = tmp_path / "memory.max", tmp_path / "memory.limit_in_bytes"
    bound.write_text("max\n")
    none.write_text("9223372036854771712\n")
    assert machine.memory(2 << 30, tmp_path, (bound, none)).text.startswith("no bound of a container")
    bound.write_text(f"{1 << 30}\n")
    assert machine.memory(1 << 30, tmp_path, (bound, none)).level is Level.OK
    found = machine.memory(2 << 30, tmp_path, (bound, none))
    assert (found.level, "may use 1,024 MB, less than one run may" in found.text) == (Level.WARN, True)
    absent = machine.memory(2 << 30, tmp_path / "shm", (none,))
    assert absent == Finding(f"{tmp_path}/shm can't be used: No such file or directory.", Level.WARN)


def test_a_container_whose_first_process_reaps_nothing_is_named(tmp_path: Path) -> None:
    (tmp_path / "comm").write_text("windlass\n")
    (tmp_path / "cmdline").write_bytes(b"/opt/windlass/bin/python\0/opt/windlass/bin/windlass\0serve\0")
    assert machine.orphans(tmp_path).level is Level.WARN
    (tmp_path / "comm").write_text("tini\n")
    (tmp_path / "cmdline").write_bytes(b"tini\0--\0windlass\0serve\0")
    assert machine.orphans(tmp_path) == Finding("process 1 (tini) reaps them")
    assert machine.orphans(tmp_path / "none").level is Level.OK


def test_a_root_without_the_rights_to_run_crews_as_another_user_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        assert f"the server's own user ({os.geteuid()})" in machine.boundary("users", Settings()).text
        return
    assert "can't read the server's files" in machine.boundary("users", Settings()).text
    assert machine.boundary("users", Settings(crew_user="root")).level is Level.WARN
    (tmp_path / "status").write_text("CapEff:\t0000000000000000\n")
    monkeypatch.setattr(machine, "STATUS", tmp_path / "status")
    with pytest.raises(WindlassError, match=r"it has no capability CHOWN and no .* Give the container"):
        machine.boundary("users", Settings())


@pytest.mark.skipif(os.geteuid() == 0, reason="root opens every file")
def test_a_home_of_another_user_is_named(tmp_path: Path) -> None:
    lock = Paths(tmp_path).server_lock
    lock.touch(0)
    finding = examine(lambda: server.server(Settings(home=tmp_path)))
    assert (finding.level, f"can't read {tmp_path}" in finding.text) == (Level.FAIL, True)


def test_an_outside_database_that_is_away_fails_without_its_password() -> None:
    settings = Settings(database_url=SecretStr("postgresql://ann:hunter2@127.0.0.1:1/x"))
    finding = examine(lambda: server.database(settings))
    assert finding.level is Level.FAIL
    assert "Connection refused" in finding.text
    assert finding.text.endswith("Check that PostgreSQL runs, and check WINDLASS_DATABASE_URL.")
    assert "hunter2" not in finding.text


def test_without_a_key_the_offline_model_is_named() -> None:
    assert "offline model" in crew.model({"OPENAI_API_KEY": ""}).text


def test_a_server_that_runs_is_asked_whether_it_is_ready(crew: FakeCrew) -> None:
    settings = Settings(port=crew.port, host="0.0.0.0")
    crew.refusal = JSONResponse({"status": "ok", "checks": {"database": "ok", "worker": "ok"}})
    assert server.server(settings) == Finding(f"the one at http://127.0.0.1:{crew.port} is ready")
    crew.refusal = JSONResponse({"status": "failing", "checks": {"database": "failing", "worker": "ok"}}, 503)
    with pytest.raises(WindlassError, match="is not ready: database"):
        server.server(settings)
    problems = {"database": "The disk of the database is full. Free some space."}
    checks = {"database": "failing", "worker": "ok"}
    crew.refusal = JSONResponse({"status": "failing", "checks": checks, "problems": problems}, 503)
    with pytest.raises(WindlassError, match=r"is not ready: database. The disk of the database is full. Free some spa"):
        server.server(settings)


def test_the_server_of_the_home_is_found_on_another_port(crew: FakeCrew, tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, port=free_port())
    crew.refusal = JSONResponse({"status": "ok", "checks": {"database": "ok", "worker": "ok"}})
    settings.address_file.write_text(f"http://127.0.0.1:{crew.port}\n")
    none = f"none runs on {tmp_path}, and 127.0.0.1:{settings.port} is free for one "
    assert server.server(settings).text.startswith(none), "a killed server has left its address"
    lock = Paths(tmp_path).server_lock
    lock.touch()
    with lock.open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert server.server(settings) == Finding(f"the one at http://127.0.0.1:{crew.port} is ready")
    outside = settings.model_copy(update={"database_url": SecretStr("postgresql://127.0.0.1:1/x")})
    assert server.server(outside) == Finding(f"the one at http://127.0.0.1:{crew.port} is ready")
    settings.address_file.write_text(f"http://127.0.0.1:{free_port()}\n")
    assert server.server(outside).text.startswith(none)


def test_an_address_that_is_not_this_machines_fails() -> None:
    with pytest.raises(WindlassError, match=r"listen on 192\.0\.2\.1:8000"):
        server.server(Settings(host="192.0.2.1", port=8000))
