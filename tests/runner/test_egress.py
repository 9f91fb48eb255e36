"""A run reaches what its egress permits, by whatever client it uses, and nothing else."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from projects_for_tests.another_user import config_of
from projects_for_tests.making import Bench, Heard, function_project, running_bench
from projects_for_tests.namespaces import need_namespaces
from runner.test_another_user import OPEN_INTERPRETER
from windlass.kickoffs.egress import Egress
from windlass.kickoffs.states import Reason, State
from windlass.runner import RunnerConfig
from windlass.runner.crew_account import crew_account
from windlass.runner.egress.outside import Outside
from windlass.runner.egress.proxy import Proxy
from windlass.runner.run_spec import Boundary
from windlass_child.protocol.messages import Event, Warned

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from windlass.ip_addresses import Address
    from windlass.kickoffs.outcome import Outcome

pytestmark = pytest.mark.skipif(os.name != "posix", reason="namespaces are a part of Linux")

CALLS = """
import socket, subprocess, sys, threading, urllib.request

def ask(host, port, text="hello"):
    try:
        with socket.create_connection((host, port), 20) as to:
            to.sendall(text.encode())
            to.shutdown(socket.SHUT_WR)
            answer = b""
            while more := to.recv(65536):
                answer += more
        return answer.decode()[:100]
    except OSError as error:
        return type(error).__name__

def own_server():
    with socket.create_server(("127.0.0.1", 0)) as server:
        def answer():
            with server.accept()[0] as one:
                one.recv(100)
                one.sendall(b"own")
        threading.Thread(target=answer, daemon=True).start()
        return ask("127.0.0.1", server.getsockname()[1])

def names(*wanted):
    found = {}
    for name in wanted:
        try:
            found[name] = sorted({one[4][0] for one in socket.getaddrinfo(name, 80, type=socket.SOCK_STREAM)})
        except socket.gaierror as error:
            found[name] = error.errno
    return found

def below(host, port):
    code = f"import socket; socket.create_connection(({host!r}, {port}), 5).sendall(b'x'); print('connected')"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip()

def run(asked: list = [], look_up: list = [], own: bool = False, many: int = 0):
    found = {f"{host} {port}": ask(host, port) for host, port in asked}
    for _ in range(many):
        ask(*asked[0])
    return {"asked": found, "names": names(*look_up), "own": own_server() if own else None}
"""
NAMES = {
    "api.test": ["127.0.0.1"],
    "metadata.test": ["169.254.169.254"],
    "both.test": ["2001:db8::1", "127.0.0.1"],
    "db.test": ["10.255.255.5"],
    "far.test": ["93.184.216.34"],
    "proxy.test": ["127.0.0.1"],
}
METADATA = ["169.254.169.254", "fd00:ec2::254", "100.100.100.200", "168.63.129.16", "fe80::1"]


DATABASE = 5432


class NamesOfTests(Outside):
    """Knows names of the tests, with 127.0.0.1 as an address of a host, and counts the look-ups."""

    def __init__(self, closed: list[tuple[str, int]]) -> None:
        super().__init__(closed)
        self.asked: list[str] = []

    async def addresses(self, name: str) -> list[Address]:
        self.asked.append(name)
        if name.rstrip(".") not in NAMES:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return [ipaddress.ip_address(one) for one in NAMES[name.rstrip(".")]]

    async def is_own(self, address: Address, port: int) -> bool:
        return port == DATABASE and await super().is_own(address, port)


@pytest.fixture(params=["root's", "a user's"])
def config(request: pytest.FixtureRequest) -> RunnerConfig:
    """The configuration of a server that is root, with a user of crews, and of one that is not."""
    is_root = os.geteuid() == 0
    if (request.param == "root's") != is_root:
        pytest.skip("the other kind of server")
    config = config_of(crew_account(None)) if is_root else RunnerConfig()
    need_namespaces()
    return replace(config, namespaces=True, outside=NamesOfTests([("db.test", DATABASE)]))


@pytest.fixture
async def bench(config: RunnerConfig, open_folder: Path) -> AsyncIterator[Bench]:
    async with running_bench(open_folder / "scratch", config, OPEN_INTERPRETER) as bench:
        yield bench


@asynccontextmanager
async def answering(
    answer: Callable[[bytes], bytes] = lambda asked: b"to " + asked, host: str = "127.0.0.1"
) -> AsyncIterator[int]:
    """A server of this machine, at the port that it yields."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(await reader.read()))
        writer.close()

    async with await asyncio.start_server(serve, host, 0) as server:
        yield server.sockets[0].getsockname()[1]


async def run(bench: Bench, folder: Path, egress: list[str], **asked: Any) -> tuple[Outcome, Heard]:
    heard = Heard()
    more = {name: asked.pop(name) for name in ("environment", "reuse", "version", "start") if name in asked}
    project = folder / "project"
    if not project.exists():
        function_project(project, CALLS)
    outcome = await bench.run(project, asked, heard=heard, boundary=Boundary(egress=Egress.parse(egress)), **more)
    return outcome, heard


def connections(heard: Heard) -> list[dict[str, Any]]:
    return [one.payload for one in heard.all if isinstance(one, Event) and one.type == "connection"]


def refusals(heard: Heard) -> list[str]:
    return [one.message for one in heard.all if isinstance(one, Warned) and one.code == "egress_refused"]


@pytest.mark.parametrize("start", ["fork", "exec"])
async def test_a_permitted_host_is_reached_without_a_change_of_the_crew(
    bench: Bench, open_folder: Path, start: str
) -> None:
    async with answering() as port:
        listed = ["open", f"127.0.0.1:{port}"]
        outcome, heard = await run(bench, open_folder, listed, asked=[["127.0.0.1", port]], own=True, start=start)
    assert outcome.state is State.SUCCESS, (outcome.error, heard.lines("stderr"))
    assert outcome.json == {"asked": {f"127.0.0.1 {port}": "to hello"}, "names": {}, "own": "own"}
    (found,) = connections(heard)
    expected = {"host": "127.0.0.1", "address": "127.0.0.1", "port": port, "allowed": True, "sent": 5, "received": 8}
    assert {name: found[name] for name in expected} == expected
    assert refusals(heard) == []


@pytest.mark.parametrize("egress", ["open", "public", "none"])
async def test_metadata_services_and_the_servers_machine_are_refused(
    bench: Bench, open_folder: Path, egress: str
) -> None:
    async with answering() as port:
        asked = [[host, 80] for host in METADATA] + [["127.0.0.1", port], ["::1", 80], ["0.0.0.0", 80]]
        outcome, heard = await run(
            bench, open_folder, [egress], asked=asked, environment={"API_URL": f"http://127.0.0.1:{port}/"}
        )
    assert set(outcome.json["asked"].values()) <= {"ConnectionResetError", "OSError", "BrokenPipeError"}
    refused = {(one["address"], one["port"]) for one in connections(heard) if not one["allowed"]}
    assert {(host, 80) for host in METADATA[:4]} | {("127.0.0.1", port)} <= refused
    assert not any(one["allowed"] for one in connections(heard))
    assert "The egress of this crew does not permit 169.254.169.254:80: Settings, Egress." in refusals(heard)


async def test_a_name_is_looked_up_once_by_the_server(bench: Bench, config: RunnerConfig, open_folder: Path) -> None:
    async with answering() as port:
        listed = [f"api.test:{port}", f"127.0.0.1:{port}"]
        asked = [["api.test", port], ["api.test", port]]
        outcome, heard = await run(bench, open_folder, listed, asked=asked, look_up=["api.test", "other.test"])
    assert outcome.json["asked"] == {f"api.test {port}": "to hello"}
    assert outcome.json["names"] == {"api.test": ["127.0.0.1"], "other.test": socket.EAI_NONAME}
    assert isinstance(config.outside, NamesOfTests)
    assert config.outside.asked.count("api.test.") == 1
    assert [one["host"] for one in connections(heard) if one["allowed"]] == ["api.test"] * 2


async def test_a_name_that_is_not_permitted_is_not_looked_up(
    bench: Bench, config: RunnerConfig, open_folder: Path
) -> None:
    outcome, heard = await run(bench, open_folder, ["api.test:443"], look_up=["secret.evil.test", "api.test"])
    assert outcome.json["names"] == {"secret.evil.test": socket.EAI_NONAME, "api.test": ["127.0.0.1"]}
    assert isinstance(config.outside, NamesOfTests)
    assert set(config.outside.asked) == {"api.test."}
    assert refusals(heard) == ["The egress of this crew does not permit secret.evil.test: Settings, Egress."]
    assert [(one["host"], one["port"]) for one in connections(heard)] == [("secret.evil.test", None)]


async def test_a_name_does_not_open_a_metadata_service(bench: Bench, open_folder: Path) -> None:
    egress = ["metadata.test", "open"]
    outcome, heard = await run(bench, open_folder, egress, asked=[["metadata.test", 80]])
    assert outcome.json["asked"]["metadata.test 80"] == "ConnectionResetError"
    assert refusals(heard) == ["The egress of this crew does not permit metadata.test:80: Settings, Egress."]


async def test_another_address_of_a_name_is_tried(bench: Bench, open_folder: Path) -> None:
    async with answering() as port:
        egress = ["open", f"127.0.0.1:{port}"]
        outcome, _ = await run(bench, open_folder, egress, asked=[["both.test", port]])
    assert outcome.json["asked"] == {f"both.test {port}": "to hello"}


async def test_the_database_of_the_server_is_closed(bench: Bench, open_folder: Path) -> None:
    outcome, heard = await run(bench, open_folder, ["open"], asked=[["10.255.255.5", DATABASE]])
    assert outcome.json["asked"] == {f"10.255.255.5 {DATABASE}": "ConnectionResetError"}
    assert [one["allowed"] for one in connections(heard)] == [False]


async def test_a_port_that_nobody_takes_is_refused_at_once(bench: Bench, open_folder: Path) -> None:
    outcome, heard = await run(bench, open_folder, ["open"], asked=[["93.184.216.34", 8000]])
    assert outcome.json["asked"] == {"93.184.216.34 8000": "ConnectionRefusedError"}
    assert connections(heard) == []


async def test_the_processes_of_a_run_have_its_network(bench: Bench, open_folder: Path) -> None:
    code = CALLS + "\n\ndef run(port: int):\n    return below('127.0.0.1', port)\n"
    project = function_project(open_folder / "below", code)
    async with answering() as port:
        boundary = Boundary(egress=Egress.parse(["public"]))
        heard = Heard()
        url = {"API_URL": f"http://127.0.0.1:{port}"}
        assert (await bench.run(project, {"port": port}, url, heard, boundary=boundary)).state is State.SUCCESS
    assert [one["allowed"] for one in connections(heard)] == [False]


async def test_connections_of_a_reused_process_are_of_their_own_run(bench: Bench, open_folder: Path) -> None:
    async with answering() as port:
        egress = ["open", f"127.0.0.1:{port}"]
        given = {"version": "1", "reuse": 5}
        first, one = await run(bench, open_folder, egress, asked=[["127.0.0.1", port]], **given)
        second, other = await run(bench, open_folder, egress, asked=[["127.0.0.1", port]] * 2, **given)
    assert first.state is second.state is State.SUCCESS
    assert (len(connections(one)), len(connections(other))) == (1, 2)
    assert [one for one in (*one.all, *other.all) if isinstance(one, Warned)] == []


async def test_code_that_the_zygote_imports_has_no_network(bench: Bench, open_folder: Path) -> None:
    async with answering() as port:
        code = f"""
import socket
try:
    FOUND = socket.create_connection(("127.0.0.1", {port}), 5) and "connected"
except OSError as error:
    FOUND = type(error).__name__
def run():
    return FOUND
"""
        project = function_project(open_folder / "project", code)
        boundary = Boundary(egress=Egress.parse(["open"]))
        outcome = await bench.run(project, boundary=boundary, preload_project=True)
    assert outcome.output == "ConnectionRefusedError"


async def test_events_and_warnings_of_a_run_are_bounded(bench: Bench, open_folder: Path) -> None:
    outcome, heard = await run(bench, open_folder, ["public"], asked=[["10.1.2.3", 80]], many=300)
    assert outcome.state is State.SUCCESS
    assert len(connections(heard)) == 200
    assert len(refusals(heard)) == 1


@pytest.mark.parametrize("egress", ["public", "none", "api.test"])
async def test_without_namespaces_a_strict_egress_refuses_the_run(
    config: RunnerConfig, open_folder: Path, egress: str
) -> None:
    async with running_bench(open_folder / "scratch", replace(config, namespaces=False), OPEN_INTERPRETER) as bench:
        outcome, _ = await run(bench, open_folder, [egress])
        assert outcome.reason is Reason.ERROR
        assert "can't enforce the egress" in (outcome.error or "")
        outcome, _ = await run(bench, open_folder, ["open"])
        assert outcome.state is State.SUCCESS


@asynccontextmanager
async def proxying(answer: bytes = b"HTTP/1.1 200 OK\r\n\r\n") -> AsyncIterator[tuple[Proxy, list[bytes]]]:
    """A proxy that answers each CONNECT so, and then as the host. It yields the requests too."""
    requests = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer + b"from ")
        writer.write(await reader.read())
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        proxy = Proxy.of({"HTTPS_PROXY": f"http://user:hidden%21@proxy.test:{port}", "NO_PROXY": "direct.test"})
        assert proxy is not None
        yield proxy, requests


@pytest.mark.parametrize(
    ("egress", "host", "asked_for"),
    [
        ("open", "far.test", b"far.test:443"),
        ("far.test:443", "far.test", b"far.test:443"),
        ("93.184.216.0/24", "far.test", b"93.184.216.34:443"),
        ("public", "93.184.216.34", b"93.184.216.34:443"),
    ],
)
async def test_connections_go_through_the_proxy_of_the_server(
    bench: Bench, config: RunnerConfig, open_folder: Path, egress: str, host: str, asked_for: bytes
) -> None:
    async with proxying() as (config.outside.proxy, requests):
        outcome, heard = await run(bench, open_folder, [egress], asked=[[host, 443]])
    assert outcome.json["asked"] == {f"{host} 443": "from hello"}
    assert [one["allowed"] for one in connections(heard)] == [True]
    (request,) = requests
    assert request.startswith(b"CONNECT " + asked_for + b" HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic dXNlcjpoaWRkZW4h\r\n" in request


@pytest.mark.parametrize(
    ("egress", "name", "reached"),
    [
        ("open", "unknown.test", True),
        ("*.test:443", "unknown.test", True),
        ("public", "unknown.test", False),
        ("10.0.0.0/8", "unknown.test", False),
        ("unknown.test:8443", "unknown.test", False),
        ("open", "unknown.search.test", False),
        ("open", "direct.test", False),
        ("open", "metadata.internal", False),
        ("open", "unknown", False),
    ],
)
async def test_a_name_that_only_the_proxy_knows_is_reached_if_the_egress_permits_the_name(
    bench: Bench, config: RunnerConfig, open_folder: Path, egress: str, name: str, reached: bool
) -> None:
    config.outside.resolver = open_folder / "resolv.conf"
    config.outside.resolver.write_text("search search.test\nnameserver 127.0.0.1\n")
    async with proxying() as (config.outside.proxy, requests):
        outcome, heard = await run(bench, open_folder, [egress], asked=[[name, 443], [name, 443]])
    if reached:
        assert outcome.json["asked"] == {f"{name} 443": "from hello"}
        assert [one.split()[1] for one in requests] == [f"{name}:443".encode()] * 2
        assert [(one["host"], one["address"]) for one in connections(heard)] == [(name, None)] * 2
    else:
        assert outcome.json["asked"][f"{name} 443"] in ("gaierror", "ConnectionResetError")
        assert requests == []


async def test_what_the_egress_refuses_does_not_reach_the_proxy(
    bench: Bench, config: RunnerConfig, open_folder: Path
) -> None:
    async with proxying() as (config.outside.proxy, requests), answering() as port:
        egress = ["api.test", f"127.0.0.1:{port}"]
        asked = [["93.184.216.34", 443], ["169.254.169.254", 80], ["127.0.0.1", port]]
        outcome, _ = await run(bench, open_folder, egress, asked=asked)
    assert [*outcome.json["asked"].values()] == ["ConnectionResetError"] * 2 + ["to hello"]
    assert requests == []


async def test_a_connection_that_the_proxy_refuses_is_an_error_of_the_event(
    bench: Bench, config: RunnerConfig, open_folder: Path
) -> None:
    async with proxying(b"HTTP/1.1 407 hidden!\r\n\r\n") as (config.outside.proxy, _):
        outcome, heard = await run(bench, open_folder, ["open"], asked=[["far.test", 443]])
    assert outcome.json["asked"] == {"far.test 443": "ConnectionResetError"}
    (found,) = connections(heard)
    assert found["error"] == "the proxy of the server refused the connection with the status 407"
    assert "hidden" not in repr(heard.all) + repr(config)


@pytest.mark.parametrize(("egress", "has_proxy"), [("open", False), ("unrestricted", True)])
async def test_only_a_run_with_the_network_of_the_machine_gets_the_variables_of_the_proxy(
    bench: Bench, config: RunnerConfig, open_folder: Path, egress: str, has_proxy: bool
) -> None:
    servers = {"HTTPS_PROXY": "http://proxy.test:3128", "NO_PROXY": "a.test"}
    config.outside.proxy = Proxy.of(servers)
    code = """
import os
def run():
    return {name: value for name, value in os.environ.items() if "proxy" in name.lower()}
"""
    project = function_project(open_folder / "project", code)
    boundary = Boundary(egress=Egress.parse([egress]))
    given = {**servers, "http_proxy": "http://own.test"}
    outcome = await bench.run(project, environment=given, boundary=boundary)
    assert ("HTTPS_PROXY" in outcome.json) is has_proxy
    assert ("a.test" in outcome.json["NO_PROXY"]) is has_proxy
    assert outcome.json["http_proxy"] == "http://own.test", "a variable of the deployment itself"
