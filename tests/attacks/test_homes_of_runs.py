"""A run can't leave a file where an interpreter, a library or a process of another run looks for it."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from attacks.other_user import INTERPRETER, as_root
from projects_for_tests.able import able
from projects_for_tests.another_user import config_of
from projects_for_tests.ends import alive
from projects_for_tests.making import Bench, Heard, function_project
from windlass.kickoffs.states import State
from windlass.runner import Runner, RunnerConfig, Terminator
from windlass.runner.crew_account import crew_account
from windlass.runner.run_spec import TaskBounds, machine_environment
from windlass_child.process.hardening import SCOPES_SIGNALS, landlock_version

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="attacks a server on Linux")

PLANTS = '''
import glob, os, site, sys, sysconfig, tempfile

NAMES = ("planted.pth", "usercustomize.py", "sitecustomize.py")
CODE = "import sys; sys.planted = True\\n"


def run(scratch, homes):
    """Writes into each folder that this process can find: its own, those of its zygote, and those above them."""
    named = [os.getcwd(), os.environ["HOME"], tempfile.gettempdir(), sysconfig.get_config_var("userbase") or "/nowhere"]
    found = {*homes, *glob.glob(f"{scratch}/r-*/z*"), *glob.glob(f"{scratch}/r-*/z*/*")}
    for place in filter(None, named):
        while place.startswith(scratch):
            found.add(place)
            place = os.path.dirname(place)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    for place in found:
        for folder in (place, f"{place}/.local/lib/{version}/site-packages", f"{place}/lib/{version}/site-packages"):
            for name in NAMES:
                write(f"{folder}/{name}", CODE)
        for name in (".cache/huggingface/hub/model", ".config/pip/pip.conf", ".config/uv/uv.toml", ".env", "model"):
            write(f"{place}/{name}", "planted")
    return sorted(found)


def write(path, text):
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
    except OSError:
        pass
'''

LOOKS = """
import os, pathlib, posix, site, sys, sysconfig, tempfile

AT_IMPORT = [str(pathlib.Path.home()), os.getcwd(), tempfile.gettempdir()]
DEFAULT = pathlib.Path.home() / ".cache" / "library"


class Library:
    models = {"folder": [os.path.expanduser("~/models")]}

    def load(self, place=os.path.join(tempfile.gettempdir(), "model")):
        return place


library = Library()
library.output = pathlib.Path("out").absolute()


def below(place):
    of_project = {"pyproject.toml", "work.py"}
    return {os.path.join(folder, name) for folder, _, names in os.walk(place) for name in names} - {
        os.path.join(os.getcwd(), name) for name in of_project
    }


def run():
    home = pathlib.Path.home()
    assert str(home) == os.environ["HOME"] == os.path.expanduser("~")
    at_start = os.fsdecode(posix.environ.get(b"HOME", b""))
    kept = [*AT_IMPORT, DEFAULT, Library.models["folder"][0], library.load(), library.output]
    kept += [sysconfig.get_config_var("userbase") or home, at_start if STARTS_AFRESH else home]
    found = set().union(*map(below, [*kept, home, tempfile.gettempdir()]))
    (home / "own").write_text("x")
    return {
        "home": str(home),
        "kept": sorted(map(str, kept)),
        "found": sorted(found),
        "planted": hasattr(sys, "planted"),
        "user": bool(site.ENABLE_USER_SITE),
        "path": [place for place in sys.path if not place or os.access(place, os.W_OK)],
    }
"""


@pytest.fixture(params=[pytest.param(True, marks=as_root, id="crew_user"), pytest.param(False, id="own_user")])
async def bench(request: pytest.FixtureRequest, open_folder: Path) -> AsyncIterator[Bench]:
    """A runner whose crews run as another user than the server, or as the same one."""
    has_account = bool(request.param)
    home = open_folder / "home"
    home.mkdir()
    machine = {**machine_environment(os.environ), "HOME": str(home)}  # noqa: TID251 - as windlass.config does it
    config = config_of(crew_account(None), tasks=TaskBounds(4096)) if has_account else RunnerConfig()
    runner = Runner(open_folder / "scratch", machine, config)
    await runner.start()
    yield Bench(runner, INTERPRETER if has_account else Path(sys.executable))
    await runner.stop()


def folders_of_runs(open_folder: Path) -> set[str]:
    return {path.name for path in (open_folder / "scratch").glob("r-*/*")}


@pytest.mark.parametrize(
    "how",
    [{}, {"start": "exec"}, {"isolated": True}, {"preload_project": True}],
    ids=["fork", "exec", "zygote", "preload"],
)
async def test_a_run_finds_nothing_of_another_one(bench: Bench, open_folder: Path, how: dict[str, Any]) -> None:
    scratch = str(open_folder / "scratch")
    looks = LOOKS.replace("STARTS_AFRESH", str(how.get("start") == "exec"))
    project = function_project(open_folder / "project", looks)
    await bench.run(project, **how)  # its zygote is there, and what it imported
    plants = function_project(open_folder / "plants", PLANTS)
    planted = await bench.run(plants, {"scratch": scratch, "homes": [str(open_folder / "home")]})
    assert len(planted.json) > 4
    seen = [await bench.run(project, **how) for _ in range(2)]
    for outcome in seen:
        assert outcome.state is State.SUCCESS, outcome.error
        found = outcome.json
        own = str(Path(found["home"]).parent)
        assert own.startswith(f"{scratch}/r-")
        assert [place for place in found["kept"] if not place.startswith(f"{own}/")] == []
        assert {name: found[name] for name in ("found", "planted", "user")} == {
            "found": [],
            "planted": False,
            "user": False,
        }
        if bench.interpreter == INTERPRETER:
            assert found["path"] == []
        assert own.rpartition("/")[2] not in folders_of_runs(open_folder)
    assert seen[0].json["home"] != seen[1].json["home"]


@as_root
async def test_the_folder_of_a_zygote_is_empty_and_of_the_server(bench: Bench, open_folder: Path) -> None:
    await bench.run(able(open_folder / "project"))
    (folder,) = (open_folder / "scratch").glob("r-*/z*")
    assert list(folder.iterdir()) == []
    assert (folder.stat().st_uid, oct(folder.stat().st_mode)) == (os.geteuid(), "0o40555")


SIGNALS = """
import os, signal

def run(pids):
    found = []
    for pid in pids:
        for number in (0, signal.SIGCONT):
            try:
                os.kill(pid, number)
                found.append(f"{pid} got {number}")
            except PermissionError:
                pass
    return found
"""


@pytest.mark.skipif(landlock_version() < SCOPES_SIGNALS, reason="the kernel has no scopes for signals")
@pytest.mark.parametrize("start", ["fork", "exec"])
async def test_a_run_can_not_signal_another_one(bench: Bench, open_folder: Path, start: str) -> None:
    heard, terminator = Heard(), Terminator()
    victim = able(open_folder / "victim")
    working = asyncio.create_task(bench.run(victim, {"do": "sleep"}, heard=heard, terminator=terminator, start=start))
    pids = await heard.pids()
    zygote = (await bench.run(victim, {"do": "parent"})).json
    attacker = function_project(open_folder / "attacker", SIGNALS)
    for how in ({}, {"start": "exec"}, {"isolated": True}):
        outcome = await bench.run(attacker, {"pids": [*pids, zygote, os.getpid()]}, **how)
        assert outcome.json == [], outcome
    assert all(map(alive, pids))
    working.cancel()
    await asyncio.wait([working])
    assert not any(map(alive, pids)), "the server and the zygote can signal what a run has started"
