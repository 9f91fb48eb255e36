"""A person who uses the server of a container from outside: logs in, deploys and starts crews."""

from __future__ import annotations

import json
import re
import ssl
from typing import TYPE_CHECKING

import httpx

from cli.the_command import Command
from image.podman import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from image.podman import Container

DEPLOY_SECONDS = 600.0
SLOW = """
import subprocess
import time
from pathlib import Path

def run(seconds: float, topic: str = "tides") -> str:
    subprocess.run(["sh", "-c", "setsid sleep 0.2 & setsid sleep 0.1 & exit 0"], check=True)
    time.sleep(seconds)
    return f"waited for {topic}"
"""


def project(folder: Path, name: str, code: str, function: str, packages: list[str], kind: str = "") -> Path:
    made = folder / name
    (made / "src" / name).mkdir(parents=True)
    (made / "src" / name / "__init__.py").write_text("")
    (made / "src" / name / "main.py").write_text(code)
    (made / "pyproject.toml").write_text(
        f'[project]\nname = "{name}"\nversion = "0.1.0"\nrequires-python = ">=3.11"\ndependencies = {packages}\n'
        f'[tool.windlass]\nentrypoint = "{name}.main:{function}"\n{kind}'
    )
    return made


class Outside:
    """A person on another machine. `container` is one of the server, for the commands of its operator.

    `authority` is the certificate that the person trusts.
    """

    def __init__(
        self, container: Container, folder: Path, url: str | None = None, authority: Path | None = None
    ) -> None:
        self.container = container
        self.url = url or f"http://127.0.0.1:{container.port()}"
        self.windlass = Command(folder, {"SSL_CERT_FILE": str(authority)} if authority else {})
        self.tls = ssl.create_default_context(cafile=str(authority)) if authority else ssl.create_default_context()
        self.windlass.deadline = DEPLOY_SECONDS

    def wait_until_ready(self) -> None:
        def ready() -> bool:
            try:
                return self.get("/ready") == 200
            except httpx.TransportError:
                return False

        wait_for(ready, f"{self.container.name} is ready")

    def get(self, path: str) -> int:
        return httpx.get(f"{self.url}{path}", timeout=10, verify=self.tls).status_code

    def log_in(self) -> None:
        self.wait_until_ready()
        self.container.run("windlass", "admin", "users", "add", "ann", "--role", "developer")
        shown = self.container.run("windlass", "tokens", "create", "--personal", "--user", "ann")
        (token,) = re.findall(r"\bwl\S{30,}", shown)
        done = self.windlass("login", self.url, typed=f"{token}\n")
        assert done.code == 0, done

    def deploy(self, path: Path) -> None:
        done = self.windlass("deploy", str(path))
        assert done.code == 0, (done, self.container.logs())

    def start(self, name: str, *inputs: str) -> str:
        done = self.windlass("kickoff", "--deployment", name, *(word for one in inputs for word in ("-i", one)))
        found = re.search(r"[0-9a-f]{8}-[0-9a-f-]{27}", done.out)
        assert found, done
        return found[0]

    def state(self, kickoff: str) -> str:
        done = self.windlass("status", kickoff, "--json")
        assert done.out, done
        return str(json.loads(done.out)["state"])

    def wait_for(self, kickoff: str, state: str) -> None:
        def reached() -> bool:
            found = self.state(kickoff)
            assert found not in {"FAILED", "STOPPED"}, self.windlass("status", kickoff)
            return found == state

        wait_for(reached, f"{kickoff} is {state}")
