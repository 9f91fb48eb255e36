"""OpenBao's own server, and a proxy before it that can fail. It verifies tokens of an OIDC issuer itself."""

from __future__ import annotations

import json
import secrets
import socket
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import httpx
from werkzeug.wrappers import Request, Response

from secrets_managers.serving import Faults, served
from windlass.secrets.providers.endpoints import Endpoints

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

BINARY = str(Path(sys.executable).with_name("bao"))
ROOT_TOKEN = f"root-token-{secrets.token_hex(8)}"
"""Another process that tests has another one, so that its server is not taken for ours."""
READING = 'path "secret/data/*" { capabilities = ["read"] } path "secret/metadata/*" { capabilities = ["list"] }'
NOTHING = 'path "secret/other/*" { capabilities = ["read"] }'
SECONDS_TO_START = 60


class VaultServer:
    name = "vault"
    endpoints = Endpoints()

    def __init__(self, server: str) -> None:
        self._root = httpx.Client(base_url=f"{server}/v1/", headers={"X-Vault-Token": ROOT_TOKEN}, trust_env=False)
        self.faults = Faults(self, lambda: Response('{"errors": ["request path rate limit quota exceeded"]}', 429))
        self.address = ""

    def set_up(self, address: str) -> None:
        self.address = address
        for path, kind in (("auth/jwt", "jwt"), ("auth/approle", "approle")):
            self.write(f"sys/{path}", type=kind)
        self._permit(READING)
        self.write("auth/approle/role/windlass", token_policies=["reading", "default"])
        self._token = str(self.write("auth/token/create", policies=["reading", "default"])["auth"]["client_token"])
        role = "auth/approle/role/windlass"
        self._role_id = self._root.get(f"{role}/role-id").json()["data"]["role_id"]
        self._secret_id = self.write(f"{role}/secret-id")["data"]["secret_id"]

    def write(self, path: str, **document: Any) -> dict[str, Any]:
        answer = self._root.post(path, json=document).raise_for_status()
        return dict(answer.json()) if answer.content else {}

    def trust(self, issuer: str, subject: str) -> None:
        self.write("auth/jwt/config", oidc_discovery_url=issuer, bound_issuer=issuer)
        self.write(
            "auth/jwt/role/windlass",
            role_type="jwt",
            user_claim="sub",
            bound_audiences=[self.address],
            bound_subject=subject,
            token_policies=["reading", "default"],
            token_ttl="20m",
        )

    def configuration(self, method: str) -> dict[str, Any]:
        own = {
            "token": {"token": self._token},
            "approle": {"role_id": self._role_id, "secret_id": self._secret_id},
            "workload_identity": {"role": "windlass"},
        }
        return {"address": self.address, **own[method]}

    def put(self, name: str, value: str) -> None:
        self.write(f"secret/data/{name}", data=json.loads(value))

    def delete(self, name: str) -> None:
        self._root.delete(f"secret/data/{name}").raise_for_status()

    @contextmanager
    def forbidden(self) -> Iterator[None]:
        self._permit(NOTHING)
        try:
            yield
        finally:
            self._permit(READING)

    def end_tokens(self) -> None:
        for path in ("jwt", "approle"):
            self.write(f"sys/leases/revoke-prefix/auth/{path}", sync=True)

    def unreachable(self, port: int) -> Endpoints:
        """Its address is in the configuration of each credential."""
        return self.endpoints

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        request = Request(environ)
        passed = ("X-Vault-Token", "X-Vault-Request", "X-Vault-Namespace", "Content-Type")
        answer = self._root.request(
            request.method,
            request.path.removeprefix("/v1/"),
            headers={
                "X-Vault-Token": "",
                **{name: request.headers[name] for name in passed if name in request.headers},
            },
            content=request.get_data(),
        )
        return Response(answer.content, answer.status_code, content_type="application/json")(environ, start)

    def _permit(self, policy: str) -> None:
        self.write("sys/policies/acl/reading", policy=policy)

    def close(self) -> None:
        self._root.close()


@contextmanager
def vault_server(port: int = 0) -> Iterator[VaultServer]:
    with openbao() as address, closing(VaultServer(address)) as server, served(server.faults, port=port) as own:
        server.set_up(own)
        yield server


@contextmanager
def openbao() -> Iterator[str]:
    """Starts OpenBao without any settings, and returns its address. ROOT_TOKEN may do everything."""
    with TemporaryDirectory() as folder, _process(Path(folder)) as address:
        yield address


@contextmanager
def _process(folder: Path) -> Iterator[str]:
    """Starts the server, and waits until it answers. Another process may take the port first, so it tries a few."""
    log = folder / "log"
    for _ in range(5):
        port = _free_port()
        options = ["-dev", "-dev-no-store-token", f"-dev-root-token-id={ROOT_TOKEN}"]
        command = [BINARY, "server", *options, f"-dev-listen-address=127.0.0.1:{port}"]
        with log.open("wb") as file:
            process = subprocess.Popen(command, env={"HOME": str(folder)}, stdout=file, stderr=file)
        try:
            if _answers(process, f"http://127.0.0.1:{port}"):
                yield f"http://127.0.0.1:{port}"
                return
        finally:
            process.terminate()
            process.wait(60)
    raise AssertionError(f"OpenBao did not start: {log.read_text('utf-8', 'replace')[-2000:]}")


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _answers(process: subprocess.Popen[bytes], address: str) -> bool:
    """Waits until this server answers. Returns False when it has ended instead, as another one had the port."""
    until = time.monotonic() + SECONDS_TO_START
    with httpx.Client(trust_env=False, headers={"X-Vault-Token": ROOT_TOKEN}) as http:
        while process.poll() is None and time.monotonic() < until:
            try:
                if http.get(f"{address}/v1/auth/token/lookup-self").status_code == 200:
                    return True
            except httpx.HTTPError:
                pass
            time.sleep(0.02)
    return False
