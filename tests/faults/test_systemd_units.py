"""The units in deploy/systemd: systemd reads them, and what they start serves and stops as they say."""

from __future__ import annotations

import base64
import os
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections import defaultdict
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from faults.cluster import free_port
from projects_for_tests.driver import until
from windlass.config import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

UNITS = Path(__file__).parents[2] / "deploy" / "systemd"
NAMES = sorted(path.name for path in UNITS.glob("*.service"))
PROGRAM = "/usr/local/bin/windlass"
ANALYZE = shutil.which("systemd-analyze")


def options(name: str, port: int = 8000) -> dict[str, list[str]]:
    """The values of each option, also of those that are given more than once. `port` is the name of the instance."""
    found = defaultdict(list)
    for line in (UNITS / name).read_text("utf-8").replace("%i", str(port)).splitlines():
        option, is_option, value = line.partition("=")
        if is_option and not line.startswith("#"):
            found[option].append(value)
    return dict(found)


def test_there_is_a_unit_for_each_kind_of_process() -> None:
    assert NAMES == ["windlass-api@.service", "windlass-migrate.service", "windlass-worker.service"]


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed: `apt-get install systemd` brings it.")
@pytest.mark.parametrize("name", NAMES)
def test_systemd_accepts_the_unit(name: str, tmp_path: Path) -> None:
    for other in NAMES:
        (tmp_path / other).write_text((UNITS / other).read_text("utf-8").replace(PROGRAM, sys.executable))
    order = [str(ANALYZE), "verify", "--man=no", str(tmp_path / name.replace("@", "@8000"))]
    if "@" in name:
        (tmp_path / name.replace("@", "@8000")).symlink_to(tmp_path / name)
    given = {"SYSTEMD_UNIT_PATH": f"{tmp_path}:", "PATH": os.defpath}
    done = subprocess.run(order, check=False, capture_output=True, text=True, env=given)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["windlass-api@.service", "windlass-worker.service"])
def test_a_service_has_time_to_drain(name: str) -> None:
    usual = Settings()
    (seconds,) = options(name)["TimeoutStopSec"]
    assert float(seconds) >= usual.drain_grace + usual.stop_delay + 15
    assert options(name)["Type"] == ["notify"]


class Unit:
    """The processes of a unit, as systemd starts and stops them, but for its user and its sandbox."""

    def __init__(self, name: str, home: Path, settings: dict[str, str], port: int = 8000) -> None:
        self.options = options(name, port)
        home.mkdir()
        home.chmod(0o755)
        own = dict(value.split("=", 1) for value in self.options["Environment"])
        assert own["WINDLASS_HOME"] == f"/var/lib/{self.options['StateDirectory'][0]}"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(home / "notify"))
        self.socket.settimeout(60)
        machine = {"PATH": os.defpath, "LANG": "C.UTF-8", "HOME": str(home), "NOTIFY_SOCKET": str(home / "notify")}
        self.environment = {**machine, **settings, **own, "WINDLASS_HOME": str(home)}
        program, *arguments = shlex.split(self.options["ExecStart"][0])
        assert program == PROGRAM
        self.order = [sys.executable, "-m", "windlass", *arguments]
        self.log = home / "log"

    @contextmanager
    def started(self) -> Iterator[subprocess.Popen[bytes]]:
        with self.log.open("wb") as log:
            process = subprocess.Popen(self.order, env=self.environment, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.kill()
            process.wait(60)
            self.socket.close()

    def notified(self, word: str) -> None:
        assert self.socket.recv(100).decode() == word, self.log.read_text()

    def stop(self, process: subprocess.Popen[bytes]) -> int:
        process.send_signal(signal.SIGTERM)
        self.notified("STOPPING=1")
        return process.wait(float(self.options["TimeoutStopSec"][0]))


def settings_of_the_file(url: str) -> dict[str, str]:
    """Those of windlass.env, with a database that exists."""
    lines = (UNITS / "windlass.env").read_text("utf-8").splitlines()
    found = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    assert {"WINDLASS_DATABASE_URL", "WINDLASS_MASTER_KEY"} < found.keys()
    return found | {
        "WINDLASS_DATABASE_URL": url,
        "WINDLASS_MASTER_KEY": base64.b64encode(secrets.token_bytes(32)).decode(),
    }


def test_the_units_serve_in_their_order(open_folder: Path, database_url: str) -> None:
    settings, port = settings_of_the_file(database_url), free_port()
    migrate = Unit("windlass-migrate.service", open_folder / "migrate", settings)
    with migrate.started() as migrating:
        assert migrating.wait(60) == 0, migrate.log.read_text()
    api = Unit("windlass-api@.service", open_folder / "api", settings, port)
    worker = Unit("windlass-worker.service", open_folder / "worker", settings)
    with api.started() as serving, worker.started() as working:
        api.notified("READY=1")
        answer = httpx.get(f"http://127.0.0.1:{port}/ready", trust_env=False)
        assert (answer.status_code, answer.json()["status"]) == (200, "ok")
        worker.notified("READY=1")
        until(lambda: "worker.ready" in worker.log.read_text())
        assert (api.stop(serving), worker.stop(working)) == (0, 0)
