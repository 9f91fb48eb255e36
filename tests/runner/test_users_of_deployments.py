"""As root, the runs of each deployment have a user of their own, of one zygote where the machine permits it."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from projects_for_tests.another_user import config_of
from projects_for_tests.driver import until
from projects_for_tests.making import Bench, function_project, running_bench
from projects_for_tests.namespaces import need_namespaces
from runner.test_another_user import OPEN_INTERPRETER, as_root, command_of, processes_of
from windlass.kickoffs.limits import Limits
from windlass.kickoffs.states import Reason, State
from windlass.runner.crew_account import crew_account
from windlass.runner.processes import users_of
from windlass.runner.run_spec import Boundary

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

ONE, OTHER = 64_990, 64_991
BOMBS = 64_992

ABLE = """
import os, signal, subprocess, sys, time

def capabilities():
    lines = open("/proc/self/status").read().splitlines()
    return {line.split(":")[0]: int(line.split()[1], 16) for line in lines if line.startswith("Cap")}

def run(do: str, paths: list = [], pid: int = 0):
    if do == "who":
        open("mine", "w").close()
        caps = capabilities()
        return {
            "uid": os.getresuid(), "gid": os.getresgid(), "groups": os.getgroups(),
            "owner": os.stat("mine").st_uid, "zygote": os.getppid(), "capabilities": caps,
        }
    if do == "become":
        tried = {}
        for uid in (0, 59999, 64991):
            try:
                os.setuid(uid)
                tried[uid] = "became it"
            except OSError as error:
                tried[uid] = error.strerror
        return tried
    if do == "reach":
        found = {}
        for path in paths:
            try:
                found[path] = os.listdir(path) if os.path.isdir(path) else open(path).read(10)
            except OSError as error:
                found[path] = error.strerror
        try:
            os.kill(pid, 0)
            found["signal"] = "sent"
        except OSError as error:
            found["signal"] = error.strerror
        return found
    if do == "wait":
        with open("writing", "w") as file:
            file.write(str(os.getpid()))
        os.rename("writing", "begun")
        time.sleep(600)
    if do == "bomb":
        held = []
        while True:
            held.append(subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"]))
"""


@pytest.fixture(params=[True, False], ids=["namespaces", "no namespaces"])
def namespaces(request: pytest.FixtureRequest) -> bool:
    if request.param:
        need_namespaces()
    return bool(request.param)


@pytest.fixture
async def bench(namespaces: bool, open_folder: Path) -> AsyncIterator[Bench]:
    config = config_of(crew_account(None), namespaces=namespaces)
    async with running_bench(open_folder / "scratch", config, OPEN_INTERPRETER) as bench:
        yield bench


async def who(bench: Bench, project: Path, **changes: Any) -> dict[str, Any]:
    outcome = await bench.run(project, {"do": "who"}, **changes)
    assert outcome.state is State.SUCCESS, outcome.error
    found: dict[str, Any] = outcome.json
    return found


@as_root
@pytest.mark.parametrize("start", ["fork", "exec"])
async def test_a_run_is_the_user_of_its_deployment_and_no_other(bench: Bench, open_folder: Path, start: str) -> None:
    project = function_project(open_folder / "project", ABLE)
    one, other = [await who(bench, project, boundary=Boundary(user), start=start) for user in (ONE, OTHER)]
    assert (one["uid"], other["uid"]) == ([ONE] * 3, [OTHER] * 3)
    assert (one["owner"], other["owner"]) == (ONE, OTHER)
    assert one["groups"] == []
    assert {one["capabilities"][name] for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {0}
    tried = (await bench.run(project, {"do": "become"}, boundary=Boundary(ONE), start=start)).json
    assert "became it" not in tried.values()


@as_root
async def test_one_zygote_serves_many_users_where_the_machine_permits_it(
    bench: Bench, open_folder: Path, namespaces: bool
) -> None:
    project = function_project(open_folder / "project", ABLE)
    zygotes = {(await who(bench, project, boundary=Boundary(user)))["zygote"] for user in (ONE, OTHER)}
    assert len(zygotes) == (1 if namespaces else 2)


@as_root
async def test_a_project_that_its_zygote_imports_has_the_user_there_too(bench: Bench, open_folder: Path) -> None:
    code = "import os\nIMPORTED_BY = os.getuid()\ndef run():\n    return IMPORTED_BY\n"
    project = function_project(open_folder / "project", code)
    assert (await bench.run(project, preload_project=True, boundary=Boundary(ONE))).json == ONE


@as_root
async def test_a_run_reaches_nothing_of_another_user(bench: Bench, open_folder: Path) -> None:
    project = function_project(open_folder / "project", ABLE)
    victim = asyncio.create_task(bench.run(project, {"do": "wait"}, boundary=Boundary(OTHER)))
    begun = await asyncio.to_thread(begun_below, open_folder / "scratch")
    pid = int(begun.read_text())
    assert users_of(pid) == {OTHER}
    paths = [str(begun.parent), f"/proc/{pid}/environ", f"/proc/{pid}/mem", f"/proc/{pid}/cwd", f"/proc/{pid}/fd"]
    found = (await bench.run(project, {"do": "reach", "paths": paths, "pid": pid}, boundary=Boundary(ONE))).json
    assert found == {**dict.fromkeys(paths, "Permission denied"), "signal": "Operation not permitted"}
    victim.cancel()


@as_root
async def test_what_a_user_of_a_deployment_starts_ends_with_its_run(bench: Bench, open_folder: Path) -> None:
    project = function_project(open_folder / "project", ABLE)
    outcome = await bench.run(project, {"do": "bomb"}, boundary=Boundary(BOMBS), limits=Limits(process_limit=20))
    assert outcome.reason is Reason.LIMIT
    until(lambda: all("__main__.py" in command_of(pid) for pid in processes_of(BOMBS)))


def begun_below(scratch: Path) -> Path:
    deadline = time.monotonic() + 30
    while not (found := list(scratch.rglob("begun"))):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found[0]
