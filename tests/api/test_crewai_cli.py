"""The official crewai command line deploys to the shared server."""

from __future__ import annotations

import asyncio
import io
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import pytest_asyncio

from api.control import Person
from windlass.cli.login_crewai import NEVER, save_address, save_login
from windlass.config import environment
from windlass.rights import Role
from windlass.secrets.secret import Secret

if TYPE_CHECKING:
    from api.serving import Server

pytestmark = pytest.mark.asyncio(loop_scope="session")

CREWAI = Path(sys.executable).parent / "crewai"
API = "/crewai_plus/api/v1"
PYPROJECT = """
[project]
name = "Tide tables"
version = "0.1.0"
dependencies = ["crewai"]

[tool.crewai]
type = "crew"

[tool.windlass]
entrypoint = "tides:high"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pyproject.toml").write_text(PYPROJECT)
    (folder / "uv.lock").write_text('version = 1\nrequires-python = ">=3.11"\n')
    (folder / "tides.py").write_text("def high(harbour: str) -> str:\n    return harbour\n")
    (folder / ".env").write_text("TIDES_KEY=hunter2\n")
    return folder


class CrewaiProgram:
    def __init__(self, home: Path, project: Path) -> None:
        self._home, self._project = home, project

    async def __call__(self, *arguments: str) -> str:
        return await asyncio.to_thread(self._run, *arguments)

    def _run(self, *arguments: str) -> str:
        given = {name: value for name, value in environment().items() if not name.startswith(("CREWAI", "GIT_"))}
        quiet = {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true", "BROWSER": "true", "COLUMNS": "200"}
        done = subprocess.run(
            [CREWAI, "deploy", *arguments],
            check=False,
            cwd=self._project,
            env={**given, **quiet, "HOME": str(self._home), "NO_PROXY": "127.0.0.1"},
            capture_output=True,
            text=True,
            timeout=120,
            stdin=subprocess.DEVNULL,
        )
        return done.stdout + done.stderr


async def test_the_crewai_program_creates_lists_pushes_and_removes(
    server: Server, tmp_path: Path, project: Path
) -> None:
    person = await Person.of(server, Role.DEVELOPER)
    home = tmp_path / "home"
    save_login(home, Secret(person.token), NEVER)
    save_address(home / ".config/crewai/settings.json", server.url)
    crewai = CrewaiProgram(home, project)
    created = await crewai("create", "-y", "--skip-validate")
    assert "Deployment created successfully!" in created
    assert "Status: Building" in created
    listed = await crewai("list")
    assert "- tide-tables (" in listed
    shown = await crewai("status")
    assert "Building" in shown
    assert "Uuid" in await crewai("push", "--skip-validate")
    assert "Fetching deployment logs" in await crewai("logs")
    variables = await person.value("GET", "/deployments/tide-tables/variables")
    assert [(one["name"], one["secret"], one["value"]) for one in variables["items"]] == [("TIDES_KEY", True, None)]
    builds = await person.value("GET", "/deployments/tide-tables/builds")
    assert [one["origin"]["type"] for one in builds["items"]] == ["zip", "zip"]
    assert "removed successfully" in await crewai("remove")
    await person.refused("GET", "/deployments/tide-tables", status=404)


def archive(**files: str) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as opened:
        for name, text in files.items():
            opened.writestr(name, text)
    return made.getvalue()


class Api:
    """Its errors have the form that the program reads, so it has a client of its own."""

    def __init__(self, server: Server, person: Person) -> None:
        self._server, self._person = server, person

    async def __call__(self, method: str, path: str, **more: Any) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {self._person.token}"}
        async with httpx.AsyncClient(headers=headers) as http:
            answer = await http.request(method, self._server.url + API + path, **more)
        return answer.status_code, answer.json() if answer.content else None


@pytest_asyncio.fixture(loop_scope="session")
async def api(server: Server) -> Api:
    return Api(server, await Person.of(server, Role.DEVELOPER))


async def test_a_repository_is_fetched_by_the_server(api: Api) -> None:
    spec = {"name": "Ferry", "repo_clone_url": "git@git.example.com:crews/ferry.git", "env": {"A": "1"}}
    status, made = await api("POST", "/crews", json={"deploy": spec})
    assert (status, made["status"]) == (201, "Building")
    status, shown = await api("GET", "/crews/by-name/Ferry/status")
    assert (shown["source_type"], shown["uuid"]) == ("any_git", made["uuid"])
    assert (await api("POST", f"/crews/{made['uuid']}/deploy"))[0] == 200
    assert (await api("DELETE", f"/crews/{made['uuid']}"))[0] == 204
    assert (await api("GET", f"/crews/{made['uuid']}/status"))[0] == 404


async def test_a_push_keeps_variables_that_come_from_a_secret_manager(server: Server, api: Api) -> None:
    files = {"zip_file": archive(**{"main.py": "x = 1"})}
    _, made = await api("POST", "/crews/zip", data={"name": "Buoy", "env[A]": "1", "env[B]": "2"}, files=files)
    owner = await Person.of(server, Role.OWNER)
    configuration = {"address": "http://127.0.0.1:9", "token": "t"}
    credential = {"name": "of-buoy", "provider": "vault", "method": "token", "configuration": configuration}
    await owner.value("POST", "/credentials", status=201, json=credential)
    path, source = "/deployments/buoy/variables", {"type": "credential", "credential": "of-buoy"}
    await owner.value("PUT", f"{path}/A", json={"source": source, "secret_name": "app"})
    given = {"env[A]": "local", "env[B]": "3", "env[C]": "4"}
    status, _ = await api("POST", f"/crews/{made['uuid']}/zip_update", data=given, files=files)
    assert status == 200
    found = {one["name"]: one for one in (await owner.value("GET", path))["items"]}
    assert {name: one["secret_name"] for name, one in found.items()} == {"A": "app", "B": None, "C": None}
    await owner.value("DELETE", "/deployments/buoy", status=202)
    assert (await owner.request("DELETE", "/credentials/of-buoy")).status_code == 204


@pytest.mark.parametrize(
    ("method", "path", "more", "status", "words"),
    [
        ("GET", "/crews/by-name/nowhere/status", {}, 404, "There is no deployment 'nowhere'"),
        ("GET", "/crews/not-an-id/status", {}, 404, "There is no deployment"),
        ("POST", "/crews", {"json": {}}, 400, "`deploy`"),
        ("POST", "/crews", {"json": {"deploy": {"name": "x"}}}, 400, "`repo_clone_url`"),
        (
            "POST",
            "/crews",
            {"json": {"deploy": {"name": "x", "repo_clone_url": "file:///etc"}}},
            400,
            "a path of a machine",
        ),
        ("POST", "/crews/zip", {"data": {"name": "x"}, "files": {"other": b""}}, 400, "`zip_file`"),
        ("POST", "/crews/zip", {"data": {"name": "x"}, "files": {"zip_file": b"no zip"}}, 400, "no zip file"),
        ("POST", "/crews/zip", {"files": {"zip_file": archive(a="")}}, 400, "`name`"),
        ("POST", "/crews/zip", {"content": b"--x", "headers": {}}, 400, "multipart/form-data"),
        (
            "POST",
            "/crews/zip",
            {"data": {"name": "x", "env[A B]": "1"}, "files": {"zip_file": archive(a="b")}},
            400,
            "no name of a variable",
        ),
    ],
)
async def test_bad_requests_are_refused_in_words(
    api: Api, method: str, path: str, more: dict[str, Any], status: int, words: str
) -> None:
    more.pop("headers", None)
    found, answer = await api(method, path, **more)
    assert found == status, answer
    assert words in answer["error"]
    assert (await api("GET", "/crews/by-name/x/status"))[0] == 404, "nothing is left of it"


async def test_a_viewer_reads_and_changes_nothing(server: Server) -> None:
    viewer = Api(server, await Person.of(server, Role.VIEWER))
    assert (await viewer("GET", "/crews"))[0] == 200
    status, answer = await viewer(
        "POST", "/crews", json={"deploy": {"name": "x", "repo_clone_url": "https://a.example/b"}}
    )
    assert status == 403
    assert "role developer" in answer["error"]
    viewer._person.token = "wlp_no"
    assert (await viewer("GET", "/crews"))[0] == 401
