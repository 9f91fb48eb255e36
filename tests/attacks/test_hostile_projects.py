"""Small uploads that take a parser gigabytes and minutes, or end its process. Builds of others go on meanwhile."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import psutil
import pytest

from attacks.other_user import CREW, as_root
from attacks.server_health import watched
from cli.the_command import ForkedCommand
from deployments.builds_of_tests import CODE, PROJECT, Server
from lifecycle.waiting import until
from projects.archives import zipped
from projects_for_tests.making import written
from windlass.errors import ProjectError
from windlass.lifecycle.worker_config import WorkerConfig
from windlass.projects import TrustedProjects
from windlass.projects.bounded_reader import AT_ONCE, PROGRAM, BoundedReader, Bounds
from windlass.projects.findings import Finding, Level
from windlass.projects.kinds import recognise
from windlass.projects.virtual_environments import markers_of
from windlass_child.process.hardening import CONFINES, landlock_version

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from windlass.accounts import Account

LONGEST_GAP = 3.0
"""Seconds in which the event loop must answer. Each of the first three took the server half a minute or a gigabyte."""
MOST_GROWTH = 100 << 20
DENSE = "a," * (200 * 1024)
POETRY = '[tool.poetry]\nname = "a"\n[tool.poetry.dependencies]\nx = "*"\n[tool.windlass]\nentrypoint = "work:run"\n'
UV = '[project]\nname = "a"\ndependencies = ["x"]\n[tool.windlass]\nentrypoint = "work:run"\n'
LIMIT = r"can't be examined within .* Make the files of the project smaller"
MERGES = "\n".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 400)}]}}" for n in range(1, 4))


def with_yaml(text: str) -> dict[str, str]:
    """A crew whose file of agents has this text."""
    crew = "from crewai.project import CrewBase\n@CrewBase\nclass A:\n    pass\n"
    pyproject = '[project]\nname = "a"\ndependencies = ["x"]\n[tool.crewai]\ntype = "crew"\n'
    return {"pyproject.toml": pyproject, "src/a/crew.py": crew, "src/a/config/agents.yaml": text}


FAILING: dict[str, tuple[dict[str, str], str]] = {
    "a constraint of spaces": (
        {"pyproject.toml": UV.replace("[tool", f'requires-python = ">=3.10{" " * 45_000}x"\n[tool')},
        "needs Python|can't be examined|can't be installed",
    ),
    "dense Python files": (
        {"pyproject.toml": '[project]\nname = "a"\n', **{f"m{number}.py": DENSE for number in range(12)}},
        "no crew, flow or function found|can't be parsed|can't be examined",
    ),
    "a key with many dots": ({"pyproject.toml": ".".join("a" * 11_500) + " = 1\n"}, LIMIT),
    "deep TOML": ({"pyproject.toml": f"a = {'[' * 100_000}{']' * 100_000}\n"}, "too deep in one another"),
    "an integer of many digits": ({"pyproject.toml": f"a = {'9' * 500_000}\n"}, "pyproject.toml can't be read"),
    "a hexadecimal option": (
        {"pyproject.toml": f"[tool.windlass]\nconcurrency = 0x{'f' * 100_000}\n"},
        "must be a whole number of 1 or more, not a number above 10000000000000",
    ),
    "deep operators": ({"pyproject.toml": "", "main.py": f"x = {'-' * 400_000}1\n"}, "main.py can't be parsed"),
    "deep attributes": ({"pyproject.toml": "", "main.py": f"x = {'a.' * 200_000}b\n"}, "main.py can't be parsed"),
    "deep branches": (
        {"pyproject.toml": "", "main.py": "if a: pass\n" + "elif a: pass\n" * 38_000},
        "main.py can't be parsed",
    ),
    "a lock of another form": (
        {"pyproject.toml": POETRY, "poetry.lock": "package = 5\n"},
        "can't be examined|can't be",
    ),
    "merges of merges in YAML": (with_yaml(f"a0: &a0 {{b: c}}\n{MERGES}\n"), LIMIT),
    "a large pyproject.toml": ({"pyproject.toml": "#" * (2 << 20)}, "it is larger than 1 MB"),
}


@pytest.fixture(params=["own user", pytest.param("user of the crews", marks=as_root)])
def account(request: pytest.FixtureRequest) -> Account | None:
    return CREW if request.param == "user of the crews" else None


@pytest.fixture
async def server(emptied_url: str, open_folder: Path, account: Account | None) -> AsyncIterator[Server]:
    async with AsyncExitStack() as stack:
        server = await Server.start(emptied_url, open_folder, stack)
        server.reader = BoundedReader(account)
        server.use(open_folder / "machine")
        yield server


@asynccontextmanager
async def responsive() -> AsyncIterator[None]:
    """Checks that the event loop goes on during the block, and that this process stays small."""
    process, gaps = psutil.Process(), [0.0]
    before = most = process.memory_info().rss

    async def watch() -> None:
        nonlocal most
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.02)
            gaps.append(time.monotonic() - began)
            most = max(most, process.memory_info().rss)

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()
    assert max(gaps) < LONGEST_GAP
    assert most - before < MOST_GROWTH


@pytest.mark.parametrize(("files", "words"), FAILING.values(), ids=FAILING)
async def test_a_hostile_upload_fails_its_build_alone(server: Server, files: dict[str, str], words: str) -> None:
    async with responsive():
        build = await server.build(files)
    assert (build.state, bool(re.search(words, f"{build.error} {build.hint}"))) == ("failed", True), build.error
    good = await server.build()
    assert good.state == "ready", good.error


@pytest.mark.timeout(900)  # a minute or two on a machine with nothing else to do
def test_a_server_answers_and_stays_small_while_all_of_them_are_deployed(open_folder: Path) -> None:
    windlass = ForkedCommand(open_folder)
    with windlass.started("serve", "--port", "0") as server:
        address = server.wait_for("Address").split()[-1]
        server.wait_for("Ctrl-C stops")
        token = windlass("tokens", "create", "--personal", "--name", "deploys").out.strip()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/zip"}
        with httpx.Client(base_url=f"{address}/api/v1", headers=headers, timeout=120, trust_env=False) as http:

            def deployed(name: str, files: dict[str, str]) -> str:
                content = zipped(open_folder / "upload.zip", files).read_bytes()
                answer = http.post("/deployments", params={"name": name}, content=content)
                assert answer.status_code == 201, answer.text
                return str(answer.json()["build"]["id"])

            def ended(build: str) -> str:
                while (state := http.get(f"/builds/{build}").json()["state"]) not in {"ready", "failed"}:
                    time.sleep(0.2)
                return str(state)

            good = {"pyproject.toml": PROJECT, "work.py": CODE}
            assert ended(deployed("before", good)) == "ready"
            with watched(address, server.process.pid) as health:
                hostile = [deployed(f"Hostile {number}", files) for number, (files, _) in enumerate(FAILING.values())]
                after = deployed("after", good)
                assert [ended(one) for one in hostile] == ["failed"] * len(FAILING)
                assert ended(after) == "ready"
            assert health.longest < LONGEST_GAP
            assert health.growth < MOST_GROWTH


async def test_hostile_projects_hold_up_no_other_one_for_ever(open_folder: Path, account: Account | None) -> None:
    hostile = written(open_folder / "hostile", FAILING["a key with many dots"][0])
    good = written(open_folder / "tea", {"pyproject.toml": PROJECT, "work.py": CODE})
    reader = BoundedReader(account)
    async with responsive():
        asked = (reader.recognised(root) for root in (hostile, hostile, hostile, good))
        ended = await asyncio.gather(*asked, return_exceptions=True)
    assert [isinstance(one, ProjectError) for one in ended] == [True, True, True, False]


def worker_of(account: Account | None, root: Path) -> WorkerConfig:
    trusted = TrustedProjects.of((), [root])
    return WorkerConfig(1, lease=15.0, renewal=3.75, max_losses=3, projects=trusted, reader=BoundedReader(account))


async def test_a_worker_does_not_parse_the_file_of_a_trusted_folder(open_folder: Path, account: Account | None) -> None:
    root = written(open_folder / "hostile", FAILING["a key with many dots"][0])
    worker = worker_of(account, root)
    async with responsive():
        with pytest.raises(ProjectError):
            await worker.code_of(str(root), declares=True)
    code = await worker.code_of(str(root), declares=False)
    assert (code.root, code.interpreter) == (root.resolve(), Path(sys.executable))


async def test_a_worker_reads_the_interpreter_from_the_file(open_folder: Path, account: Account | None) -> None:
    python = open_folder / "tea" / "kept" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    root = written(open_folder / "tea", {"pyproject.toml": '[tool.windlass]\npython = "kept"\n'})
    worker = worker_of(account, root)
    for _ in range(2):
        assert (await worker.code_of(str(root), declares=True)).interpreter == python
    for text in ("[tool", '[tool.windlass]\npython = "missing"'):
        written(root, {"pyproject.toml": text})
        with pytest.raises(ProjectError):
            await worker.code_of(str(root), declares=True)


async def test_a_project_is_recognised_as_in_this_process(open_folder: Path, account: Account | None) -> None:
    root = written(open_folder / "tea", {"pyproject.toml": PROJECT, "work.py": CODE})
    reader = BoundedReader(account)
    assert await reader.recognised(root) == recognise(root)
    written(root, {"pyproject.toml": "a = 1\nb = ["})
    with pytest.raises(ProjectError) as raised:
        await reader.recognised(root)
    with pytest.raises(ProjectError) as here:
        recognise(root)
    assert (raised.value.message, raised.value.hint) == (here.value.message, here.value.hint)


async def test_a_json_crew_with_odd_files_has_findings(open_folder: Path, account: Account | None) -> None:
    root = written(open_folder / "odd", {"crew.jsonc": '{"agents": [' + "9" * 90_000 + "]}"})
    reader = BoundedReader(account)
    project = (await reader.recognised(root)).project
    found = await reader.findings(project, [Finding("no_crew", Level.ERROR, "a: b")])
    assert [one.code for one in found] == ["jsonc_syntax", "no_crew"]
    written(root, {"crew.jsonc": "[" * 400_000})
    assert [one.code for one in await reader.findings(project, [])] == ["jsonc_syntax"]


async def test_pipes_and_circles_of_links_are_passed_over(open_folder: Path, account: Account | None) -> None:
    root = written(open_folder / "links", {"work.py": CODE, "main.py": "from work import run\nrun('a')\n"})
    os.mkfifo(root / "pyproject.toml")
    os.mkfifo(root / "pipe.py")
    (root / "loop").symlink_to(".")
    (root / "zero.py").symlink_to("/dev/zero")
    with pytest.raises(ProjectError, match="no crew, flow or function found"):
        await BoundedReader(account).recognised(root)


async def test_files_without_end_end_at_the_limits(open_folder: Path, account: Account | None) -> None:
    large = "x = 1\n" * 80_000
    root = written(open_folder / "many", {f"p{number}.py": large for number in range(100)})
    with pytest.raises(ProjectError, match=r"within 1 s of a processor; the last one that was opened is p\d+.py\."):
        await BoundedReader(account, Bounds(processor=1)).recognised(root)
    with pytest.raises(ProjectError, match="within 1 s"):
        await BoundedReader(account, Bounds(seconds=1)).recognised(root)


HOSTILE_PROCESSES = {
    "many bytes": ("[os.write(1, b'x' * 65536) for _ in iter(int, 1)]", "more than 8 MB of facts"),
    "no answer": ("os._exit(3)", "ended early \\(exit status 3\\)"),
    "a crash": ("os.kill(os.getpid(), 11)", "ended early \\(SIGSEGV\\)"),
    "another form": ("print('answer [1]')", "no usable answer"),
    "deep JSON": ("print('answer ' + '[' * 1000000)", "no usable answer"),
    "a kind that is none": (
        "print('answer ' + json.dumps(dict(kind='x', entrypoint='a', preload=None, name='a', options={})))",
        "no usable answer",
    ),
    "a way out of the project": (
        "print('answer ' + json.dumps(dict(kind='json_crew', entrypoint='../a', preload=None, name='', options={})))",
        "no usable answer",
    ),
    "an option that is none": (
        "print('answer ' + json.dumps(dict(kind='crew', entrypoint='a', preload=None, name='', options={'reuse': 0})))",
        "reuse must be a whole number",
    ),
    "an open pipe": ("os.close(0); time.sleep(600)", "within 3 s"),
}


@pytest.mark.parametrize(("code", "words"), HOSTILE_PROCESSES.values(), ids=HOSTILE_PROCESSES)
async def test_a_process_that_a_file_has_taken_over_can_only_fail_its_build(
    tmp_path: Path, code: str, words: str
) -> None:
    program = f"import json, os, sys, time; sys.stdin.read(); {code}"
    reader = BoundedReader(bounds=Bounds(seconds=3 if "sleep" in code else 60), program=program)
    with pytest.raises(ProjectError, match=words):
        await reader.recognised(tmp_path)


async def test_arguments_of_uv_that_no_project_has_are_refused(tmp_path: Path) -> None:
    inputs = {"files": {}, "arguments": ["--find-links", "/x"], "own": [], "indexes": [], "reads_project": False}
    given: dict[str, Any] = {
        "file": "uv.lock",
        "python": [],
        "fitting": [],
        "settings": "{}",
        "ignored": [],
        "poetry": None,
    }
    answer = f"answer {json.dumps({**given, 'inputs': inputs})}"
    reader = BoundedReader(program=f"import sys; sys.stdin.read(); print({answer!r})")
    with pytest.raises(ProjectError, match="no usable answer"):
        await reader.packages(tmp_path)


async def test_the_process_has_the_rights_of_the_crews_and_its_bounds(
    open_folder: Path, account: Account | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import sys; sys.path[:] = sys.argv[1:]\n"
        "from windlass.projects import bounded_process as one\n"
        "import json, os, resource\n"
        "def facts(*_):\n"
        "    limits = [resource.getrlimit(number)[0] for number in (resource.RLIMIT_AS, resource.RLIMIT_CPU,\n"
        "        resource.RLIMIT_FSIZE, resource.RLIMIT_CORE, resource.RLIMIT_NPROC)]\n"
        "    try:\n"
        "        reached = bool(open(f'/proc/{os.getppid()}/mem', 'rb'))\n"
        "    except PermissionError:\n"
        "        reached = False\n"
        "    from windlass.errors import ProjectError\n"
        "    raise ProjectError(json.dumps([os.getuid(), os.getgroups(), limits, dict(os.environ), reached]))\n"
        "one.QUESTIONS['recognised'] = facts\n"
        "one.main()\n"
    )
    monkeypatch.setenv("WINDLASS_MASTER_KEY", "secret")
    with pytest.raises(ProjectError) as raised:
        await BoundedReader(account, program=code).recognised(open_folder)
    uid, groups, limits, variables, reached_the_server = json.loads(raised.value.message)
    assert uid == (account.uid if account else os.geteuid())
    assert not (account and groups)
    assert limits == [512 << 20, 20, 0, 0, 0]
    assert not reached_the_server or landlock_version() < CONFINES
    assert not any("WINDLASS" in name for name in variables)


async def test_two_processes_run_at_once_those_for_poetrys_pins_included(tmp_path: Path) -> None:
    root = written(tmp_path / "poetry", {"pyproject.toml": POETRY})
    markers = markers_of(Path(sys.prefix))
    running, counts = tmp_path / "running", tmp_path / "counts"
    running.mkdir()
    code = (
        f"import io, os, sys, time; running, counts = {str(running)!r}, {str(counts)!r}\n"
        "question = sys.stdin.buffer.read()\n"
        "if b'packages' in question:\n"
        "    sys.stdin = io.TextIOWrapper(io.BytesIO(question))\n"
        f"    {PROGRAM}\n"
        "    os._exit(0)\n"
        "own = os.path.join(running, str(os.getpid())); open(own, 'w').close()\n"
        "print(len(os.listdir(running)), file=open(counts, 'a'))\n"
        "time.sleep(0.5); os.unlink(own)\n"
    )
    reader = BoundedReader(program=code)
    packages = await reader.packages(root)
    assert packages is not None
    pins = [asyncio.to_thread(packages.inputs_on, markers) for _ in range(3)]
    questions = [reader.recognised(root) for _ in range(3)]
    ended = await asyncio.gather(*pins, *questions, return_exceptions=True)
    assert all(isinstance(one, ProjectError) for one in ended), "the program gives no answer"
    found = [int(line) for line in counts.read_text().splitlines()]
    assert (len(found), max(found)) == (6, AT_ONCE)


async def test_a_cancelled_question_ends_its_process(tmp_path: Path) -> None:
    mark = f"time.sleep(600)  # {tmp_path}"
    reader = BoundedReader(program=f"import sys, time; sys.stdin.read(); {mark}")

    def running() -> list[int]:
        return [one.pid for one in psutil.process_iter(["cmdline"]) if mark in " ".join(one.info["cmdline"] or [])]

    async def started() -> bool:
        return bool(running())

    asking = asyncio.create_task(reader.recognised(tmp_path))
    await until(started)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert not running()
