"""Without namespaces, a run with a strict egress reaches the proxy of the worker, and nothing else."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import ssl
import sys
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from projects_for_tests.another_user import config_of
from projects_for_tests.making import Bench, function_project, running_bench
from runner.test_another_user import OPEN_INTERPRETER
from runner.test_egress import DATABASE, NamesOfTests, answering, connections, refusals, run
from secrets_managers.serving import certificates
from windlass.kickoffs.egress import Egress
from windlass.kickoffs.states import State
from windlass.runner import RunnerConfig
from windlass.runner.crew_account import crew_account
from windlass.runner.egress.proxy import Proxy
from windlass.runner.namespaces import sockets_permitted
from windlass.runner.run_spec import Boundary
from windlass_child.process.places import READ
from windlass_child.process.sockets import CLOSED, TO_A_PORT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="seccomp and Landlock are parts of Linux")

CLIENTS = """
import ctypes, os, re, socket, threading, urllib.error, urllib.request

PROXY = os.environ.get("HTTPS_PROXY", "")
PLACE = re.search(r"@(.*):(\\d+)$", PROXY)

def tried(work):
    try:
        return work()
    except OSError as error:
        return type(error).__name__ + ": " + str(error)

def connected(host, port):
    with socket.create_connection((host, port), 10):
        return "connected"

def kinds():
    wanted = {
        "UDP": (socket.AF_INET, socket.SOCK_DGRAM, 0), "UDP of IPv6": (socket.AF_INET6, socket.SOCK_DGRAM, 0),
        "raw": (socket.AF_INET, socket.SOCK_RAW, 1), "packets": (socket.AF_PACKET, socket.SOCK_RAW, 0),
        "netlink": (socket.AF_NETLINK, socket.SOCK_RAW, 0), "vsock": (40, socket.SOCK_STREAM, 0),
        "MPTCP": (socket.AF_INET, socket.SOCK_STREAM, 262), "SCTP": (socket.AF_INET, socket.SOCK_STREAM, 132),
        "TCP": (socket.AF_INET, socket.SOCK_STREAM, 0), "unix": (socket.AF_UNIX, socket.SOCK_STREAM, 0),
    }
    found = {name: tried(lambda: socket.socket(*given).close()) for name, given in wanted.items()}
    call = ctypes.CDLL(None, use_errno=True).syscall
    found["io_uring"] = None if call(425, 1, None) >= 0 else os.strerror(ctypes.get_errno())
    if os.uname().machine == "x86_64":
        found["x32"] = None if call(0x40000000 + 41, 2, 1, 0) >= 0 else os.strerror(ctypes.get_errno())
    found["pair"] = tried(lambda: [one.close() for one in socket.socketpair()] and None)
    return found

def without_a_check(host, port):
    found = {}
    with socket.socket() as to:
        found["fast open"] = tried(lambda: to.sendto(b"x", socket.MSG_FASTOPEN, (host, port)))
    with socket.socket() as to:
        found["message"] = tried(lambda: to.sendmsg([b"x"], [], socket.MSG_FASTOPEN, (host, port)))
    with socket.socket() as to:
        found["protocol"] = tried(lambda: to.setsockopt(socket.IPPROTO_TCP, 31, b"smc"))
    with socket.socket() as to:
        found["bind"] = tried(lambda: to.bind(("0.0.0.0", 0)))
    return found

def answer_of(*lines):
    with socket.create_connection((PLACE[1], int(PLACE[2])), 10) as to:
        to.sendall("\\r\\n".join([*lines, "", ""]).encode())
        answer = b""
        while more := to.recv(4096):
            answer += more
    return answer.decode().splitlines()[0]

def fetch(url):
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.reason}"
    except OSError as error:
        return str(error)

def run(do: str, urls: list = [], places: list = [], lines: list = [], many: int = 1):
    if do == "fetch":
        return [fetch(url) for _ in range(many) for url in urls]
    if do == "connect":
        return [tried(lambda: connected(*place)) for place in places]
    if do == "kinds":
        return kinds()
    if do == "unchecked":
        return without_a_check(*places[0])
    if do == "answer":
        return answer_of(*lines)
    if do == "variables":
        print(PROXY)
        found = {name: value for name, value in os.environ.items() if "proxy" in name.lower()}
        return {"variables": found, "own": PROXY[::-1]}
"""


@pytest.fixture
def config() -> RunnerConfig:
    sockets = sockets_permitted()
    if sockets == CLOSED:
        pytest.skip("this machine permits no filter of system calls")
    config = config_of(crew_account(None)) if os.geteuid() == 0 else RunnerConfig()
    return replace(config, sockets=sockets, outside=NamesOfTests([("db.test", DATABASE)]))


@pytest.fixture
async def bench(config: RunnerConfig, open_folder: Path) -> AsyncIterator[Bench]:
    function_project(open_folder / "project", CLIENTS)
    async with running_bench(open_folder / "scratch", config, OPEN_INTERPRETER) as bench:
        yield bench


@asynccontextmanager
async def web(tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A web server that answers with the head of each request. It yields its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        body = head + await reader.readexactly(int(size[1]) if size else 0)
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls) as server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize("start", ["fork", "exec"])
async def test_clients_of_http_reach_a_permitted_host(bench: Bench, open_folder: Path, start: str) -> None:
    async with web() as port:
        listed = [f"api.test:{port}", f"127.0.0.1:{port}"]
        urls = [f"http://api.test:{port}/a/b?c=d", f"http://127.0.0.1:{port}"]
        outcome, heard = await run(bench, open_folder, listed, do="fetch", urls=urls, start=start)
    assert outcome.state is State.SUCCESS, (outcome.error, heard.lines("stderr"))
    one, other = outcome.json
    assert one.startswith(f"GET /a/b?c=d HTTP/1.1\r\nHost: api.test:{port}\r\n")
    assert other.startswith(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n")
    assert "proxy" not in one.lower()
    found = connections(heard)
    assert [(one["host"], one["address"], one["port"], one["allowed"]) for one in found] == [
        ("api.test", "127.0.0.1", port, True),
        ("127.0.0.1", "127.0.0.1", port, True),
    ]
    assert all(one["sent"] > 40 and one["received"] > len(found) for one in found)
    assert refusals(heard) == []


LIBRARIES = """
import httpx, requests

def run(plain: str, encrypted: str, refused: str, authority: str):
    found = []
    with requests.Session() as session:
        found.append(session.post(plain, data="body" * 50_000).text.count("body"))
        found.append(session.post(encrypted, data="body" * 50_000, verify=authority).text.count("body"))
        for _ in range(2):
            found.append(session.get(plain).status_code)
        try:
            session.get(refused)
        except requests.exceptions.ProxyError as error:
            found.append(str(error))
    with httpx.Client(verify=authority) as client:
        found += [client.get(plain).status_code, client.get(encrypted).status_code]
        try:
            client.get(refused)
        except httpx.ProxyError as error:
            found.append(str(error))
    return found
"""


async def test_requests_and_httpx_need_no_change(config: RunnerConfig, open_folder: Path) -> None:
    authority, pair = certificates(open_folder)
    authority.chmod(0o644)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(*pair)
    project = function_project(open_folder / "project", LIBRARIES)
    async with running_bench(open_folder / "scratch", config) as bench, web() as port, web(tls) as encrypted:
        boundary = Boundary(files=((str(open_folder), READ),), egress=Egress.parse(["api.test", "127.0.0.1"]))
        asked = {
            "plain": f"http://api.test:{port}/",
            "encrypted": f"https://127.0.0.1:{encrypted}/",
            "refused": "https://far.test/",
            "authority": str(authority),
        }
        outcome = await bench.run(project, asked, boundary=boundary)
    assert outcome.state is State.SUCCESS, outcome.error
    words = "The egress of this crew does not permit far.test:443: Settings, Egress."
    assert [one for one in outcome.json if not isinstance(one, str)] == [50_000, 50_000, 200, 200, 200, 200]
    assert all(words in one for one in outcome.json if isinstance(one, str))


async def test_a_refused_host_is_an_error_that_names_the_egress(bench: Bench, open_folder: Path) -> None:
    async with answering() as port:
        urls = [
            "http://evil.test/", "http://169.254.169.254/latest", "http://[fd00:ec2::254]/",
            f"http://127.0.0.1:{port}/", f"http://api.test:{port}/", f"http://[::ffff:127.0.0.1]:{port}/",
            f"http://db.test:{DATABASE}/",
        ]  # fmt: skip
        outcome, heard = await run(bench, open_folder, ["public", "db.test"], do="fetch", urls=urls)
    words = "403 The egress of this crew does not permit {}: Settings, Egress."
    places = ["169.254.169.254:80", "[fd00:ec2::254]:80", f"127.0.0.1:{port}", f"api.test:{port}"]
    places += [f"[::ffff:127.0.0.1]:{port}", f"db.test:{DATABASE}"]
    unknown, *others = outcome.json
    assert unknown == "502 evil.test: unknown"
    assert others == [words.format(place) for place in places]
    assert {one["allowed"] for one in connections(heard) if one["host"] != "evil.test"} == {False}
    assert "The egress of this crew does not permit 169.254.169.254:80: Settings, Egress." in refusals(heard)


async def test_a_name_that_is_not_permitted_is_not_looked_up(
    bench: Bench, config: RunnerConfig, open_folder: Path
) -> None:
    urls = ["https://secret.evil.test/", "https://secret.evil.test/"]
    outcome, heard = await run(bench, open_folder, ["api.test:443"], do="fetch", urls=urls)
    words = "The egress of this crew does not permit secret.evil.test:443: Settings, Egress."
    assert all(words in one for one in outcome.json)
    assert isinstance(config.outside, NamesOfTests)
    assert config.outside.asked == []
    assert refusals(heard) == [words]


async def test_a_run_connects_to_nothing_but_the_proxy(bench: Bench, config: RunnerConfig, open_folder: Path) -> None:
    async with answering() as port, answering(host="::1") as other:
        places = [["127.0.0.1", port], ["::1", other], ["169.254.169.254", 80], ["10.255.255.5", DATABASE]]
        outcome, _ = await run(bench, open_folder, ["public"], do="connect", places=places)
    if config.sockets == TO_A_PORT:
        assert all(one.startswith("PermissionError") for one in outcome.json)
    else:
        assert outcome.json[0] == "connected", "as the documentation says"


async def test_a_run_has_no_sockets_but_those_of_tcp(bench: Bench, open_folder: Path) -> None:
    outcome, _ = await run(bench, open_folder, ["public"], do="kinds")
    found = outcome.json
    assert [name for name, error in found.items() if error is None] == ["TCP", "unix", "pair"]
    assert all("Permission denied" in error for error in found.values() if error is not None)
    outcome, _ = await run(bench, open_folder, ["none"], do="kinds")
    assert [name for name, error in outcome.json.items() if error is None] == ["unix", "pair"]


async def test_nothing_connects_without_the_check_of_landlock(
    bench: Bench, config: RunnerConfig, open_folder: Path
) -> None:
    async with answering() as port:
        outcome, _ = await run(bench, open_folder, ["public"], do="unchecked", places=[["127.0.0.1", port]])
    found = outcome.json
    if config.sockets != TO_A_PORT:
        assert found.pop("bind") is None
    assert all("Permission denied" in error for error in found.values()), found


async def test_the_proxy_serves_only_runs_that_go_on_by_their_token(bench: Bench, open_folder: Path) -> None:
    egress = ["public", "127.0.0.1"]
    ended, _ = await run(bench, open_folder, egress, do="variables")
    old = re.search(r"//(.*)@", ended.json["own"][::-1])
    assert old is not None
    async with web() as port:
        head = [f"GET http://127.0.0.1:{port}/ HTTP/1.1", f"Host: 127.0.0.1:{port}"]
        for given in (None, "Basic !", "Bearer x", "run:wrong", "run:", old[1]):
            encoded = base64.b64encode(str(given).encode()).decode()
            value = given if given and " " in given else f"Basic {encoded}"
            lines = head if given is None else [*head, f"Proxy-Authorization: {value}"]
            outcome, heard = await run(bench, open_folder, egress, do="answer", lines=lines)
            assert str(outcome.output).startswith("HTTP/1.1 407 "), (given, outcome.error)
            assert connections(heard) == []
        outcome, _ = await run(bench, open_folder, egress, do="fetch", urls=[f"http://127.0.0.1:{port}/"])
        assert outcome.json[0].startswith("GET / ")


async def test_the_variables_name_the_proxy_and_are_masked(
    bench: Bench, config: RunnerConfig, open_folder: Path
) -> None:
    servers = {"HTTPS_PROXY": "http://user:hidden@proxy.test:3128", "NO_PROXY": "a.test"}
    config.outside.proxy = Proxy.of(servers)
    given = {**servers, "http_proxy": "http://own.test", "no_proxy": "b.test"}
    outcome, heard = await run(bench, open_folder, ["public"], do="variables", environment=given)
    url = outcome.json.pop("own")[::-1]
    assert re.fullmatch(r"http://run:[0-9a-f]{48}@127\.0\.0\.1:\d+", url)
    names = ["ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "all_proxy", "http_proxy", "https_proxy"]
    variables = outcome.json["variables"]
    assert sorted(variables) == sorted([*names, "NO_PROXY", "no_proxy"])
    assert variables["NO_PROXY"] == variables["no_proxy"] == ""
    assert {variables[name] for name in names} == {heard.lines("stdout")[0]}
    assert url.split(":")[2] not in repr(variables) + repr(heard.all) + repr(config)


async def test_connections_go_through_the_proxy_of_the_server_too(
    bench: Bench, config: RunnerConfig, open_folder: Path
) -> None:
    requests = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + head.partition(b"\r\n")[0])
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        config.outside.proxy = Proxy.of({"HTTPS_PROXY": f"http://proxy.test:{port}"})
        outcome, heard = await run(bench, open_folder, ["far.test:80"], do="fetch", urls=["http://far.test/"])
    assert outcome.json == ["GET / HTTP/1.1"], outcome.json
    assert [one.split(b"\r\n")[0] for one in requests] == [b"CONNECT far.test:80 HTTP/1.1"]
    assert [one["allowed"] for one in connections(heard)] == [True]


@pytest.mark.parametrize("egress", ["public", "none"])
async def test_what_the_zygote_imports_reaches_nothing(bench: Bench, open_folder: Path, egress: str) -> None:
    async with answering() as port:
        code = f"""
import os, socket
try:
    FOUND = socket.create_connection(("127.0.0.1", {port}), 5) and "connected"
except OSError as error:
    FOUND = type(error).__name__
NAMES = [name for name in os.environ if "proxy" in name.lower()]
def run():
    return [FOUND, NAMES]
"""
        project = function_project(open_folder / "imported", code)
        outcome = await bench.run(project, boundary=Boundary(egress=Egress.parse([egress])), preload_project=True)
    found, names = outcome.json
    assert names == []
    assert found == "PermissionError" or (found == "connected" and egress == "public")


async def test_a_reused_process_reaches_the_proxy_in_each_run(bench: Bench, open_folder: Path) -> None:
    async with web() as port:
        given = {"do": "fetch", "urls": [f"http://127.0.0.1:{port}/"], "version": "1", "reuse": 5}
        found = [await run(bench, open_folder, ["127.0.0.1"], **given) for _ in range(2)]
    assert all(outcome.json[0].startswith("GET / ") for outcome, _ in found)
    assert [len(connections(heard)) for _, heard in found] == [1, 1]


async def test_events_and_warnings_are_bounded(bench: Bench, open_folder: Path) -> None:
    outcome, heard = await run(bench, open_folder, ["public"], do="fetch", urls=["http://10.1.2.3/"], many=210)
    assert set(outcome.json) == {"403 The egress of this crew does not permit 10.1.2.3:80: Settings, Egress."}
    assert len(connections(heard)) == 200
    assert len(refusals(heard)) == 1


async def test_open_is_not_enforced(bench: Bench, open_folder: Path) -> None:
    async with answering() as port:
        outcome, heard = await run(bench, open_folder, ["open"], do="connect", places=[["127.0.0.1", port]])
    assert outcome.json == ["connected"]
    assert heard.all is not None
