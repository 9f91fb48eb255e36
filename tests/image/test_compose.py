"""compose.yaml starts a server of several containers, which loses no kickoff when one of them ends."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sysconfig
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from image.person import SLOW, Outside, project
from image.podman import ENVIRONMENT, IMAGE, PODMAN, Container, needs_images, podman

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.timeout(900), pytest.mark.xdist_group("image")]

ROOT = Path(__file__).parents[2]
STAND_INS = Path(__file__).parent / "stand_ins"
DNS = [Path("/usr/lib/podman/aardvark-dns"), Path("/usr/libexec/podman/aardvark-dns")]


class Composed:
    """The containers of compose.yaml, in a copy of its folder with secrets of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = f"windlass-test-{uuid.uuid4().hex[:8]}"
        shutil.copy(ROOT / "compose.yaml", folder)
        shutil.copytree(ROOT / "deploy/compose", folder / "deploy/compose", ignore=shutil.ignore_patterns("secrets"))
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        self.url = f"https://localhost:{port}"
        self.secrets = folder / "deploy/compose/secrets"
        configuration = folder / "containers.conf"
        runtime = 'runtime = "runc"' if "runc" in PODMAN else ""
        configuration.write_text(
            '[containers]\ndefault_ulimits = ["nofile=20000:20000", "nproc=20000:20000"]\n'
            f'[engine]\n{runtime}\n[network]\nnetwork_backend = "netavark"\n'
        )
        self.environment = {
            **ENVIRONMENT,
            "CONTAINERS_CONF": str(configuration),
            "WINDLASS_IMAGE": f"{IMAGE}:server",
            "POSTGRES_IMAGE": f"{IMAGE}-test-postgres",
            "PROXY_IMAGE": f"{IMAGE}-test-nginx",
            "WINDLASS_PORT": str(port),
            "WINDLASS_PUBLIC_URL": self.url,
            "FRONT_NETWORK": "10.203.114.0/24",
        }

    def run(self, *command: str, check: bool = True) -> str:
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=180, check=False
        )
        assert done.returncode == 0 or not check, (command, done.stdout, done.stderr)
        return done.stdout

    def compose(self, *arguments: str, check: bool = True) -> str:
        program = f"{sysconfig.get_path('scripts')}/podman-compose"
        return self.run(program, "-p", self.name, *arguments, check=check)

    def container(self, service: str) -> Container:
        return Container(f"{self.name}_{service}_1", self.environment)


@pytest.fixture(scope="module")
def _stand_ins() -> None:
    """Images for the names of a registry in compose.yaml, made from Debian's packages."""
    for name in ("postgres", "nginx"):
        tag = f"--tag={IMAGE}-test-{name}"
        base = f"--build-arg=BASE={ENVIRONMENT.get('WINDLASS_TESTS_BASE', 'localhost/windlass-base:bookworm')}"
        podman("build", "--quiet", "--network=host", base, f"--target={name}", tag, str(STAND_INS), deadline=600)


@pytest.fixture
def composed(tmp_path: Path, _stand_ins: None) -> Iterator[Composed]:
    if not any(one.exists() for one in DNS):
        pytest.skip("podman has no aardvark-dns: containers can't find each other by name")
    made = Composed(tmp_path)
    made.run("deploy/compose/secrets.sh")
    try:
        made.compose("up", "-d")
        yield made
    finally:
        made.compose("down", "-v", "-t", "1", check=False)


@needs_images
def test_one_command_starts_a_server_that_loses_no_kickoff(composed: Composed, tmp_path: Path) -> None:
    authority = composed.secrets / "tls_certificate"
    person = Outside(composed.container("api-1"), tmp_path, composed.url, authority)
    person.log_in()
    person.deploy(project(tmp_path, "slow", SLOW, "run", []))
    workers = [composed.container(name) for name in ("worker-1", "worker-2")]
    killed = [person.start("slow", "seconds=12") for _ in range(6)]
    for one in killed:
        person.wait_for(one, "STARTED")
    workers[0].podman("kill", "--signal=KILL", workers[0].name)
    for one in killed:
        person.wait_for(one, "SUCCESS")
    drained = [person.start("slow", "seconds=3") for _ in range(2)]
    composed.container("api-1").podman("stop", "--time=60", composed.container("api-1").name)
    assert {person.get("/ready") for _ in range(10)} == {200}, "the other API server answers"
    workers[1].podman("stop", "--time=60", workers[1].name)
    assert workers[1].state()["ExitCode"] == 0
    workers[0].podman("start", workers[0].name)
    for one in drained:
        person.wait_for(one, "SUCCESS")
    shown = composed.run("podman", "inspect", *(one.name for one in workers))
    for secret in ("database_password", "master_key"):
        assert (composed.secrets / secret).read_text().strip() not in shown


@pytest.mark.skipif(shutil.which("openssl") is None, reason="the script makes the secrets with openssl")
def test_the_file_closes_what_it_can_and_names_secrets_that_the_script_makes(tmp_path: Path) -> None:
    found = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))
    services = found["services"]
    assert set(services) == {"postgres", "api-1", "api-2", "worker-1", "worker-2", "proxy"}
    for name, service in services.items():
        if name.startswith(("api", "worker")):
            assert (service["read_only"], service["cap_drop"], service["user"]) == (True, ["ALL"], "10001:0")
            assert set(service["secrets"]) == {"database_url", "master_key"}
            assert "ports" not in service, "only the proxy is reached from outside"
            assert service["volumes"] == [f"{name}:/var/lib/windlass"], "`down -v` removes it"
    copied = shutil.copytree(ROOT / "deploy/compose", tmp_path / "c", ignore=shutil.ignore_patterns("secrets"))
    for _ in range(2):
        done = subprocess.run([str(copied / "secrets.sh")], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "", "existing secrets are kept"
    made = {one.name: one for one in (copied / "secrets").iterdir()}
    assert set(made) == {Path(one["file"]).name for one in found["secrets"].values()}
    assert (copied / "secrets").stat().st_mode & 0o777 == 0o700
    password = made["database_password"].read_text().strip()
    assert f":{password}@postgres/" in made["database_url"].read_text()
