"""Environments of deployed projects: one for each content, made once, shared, and removed when unused."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest

from faults.small_disk import needed_small_disk
from projects_for_tests.making import written
from projects_for_tests.wheels import index, source, wheel
from windlass.config import environment
from windlass.errors import ProjectError
from windlass.projects.environments import Environments, Wanted
from windlass.projects.uv import Builder, combined, digest_of_operator, operator_settings, uv_program

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TINY = '[project]\nname = "{name}"\nversion = "{version}"\ndependencies = ["{needs}"]\n'


class Machine:
    """A folder of environments, with packages of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.wheels = folder / "wheels"
        self.place = folder / "environments"
        self.builders: list[Builder] = []
        self.lines: list[str] = []
        self.environments = Environments(self.place, self.builder)

    def builder(self) -> nullcontext[Builder]:
        variables = {**environment(), **index(self.wheels), "UV_CACHE_DIR": str(self.folder / "cache")}
        self.builders.append(Builder(uv_program(), variables, lambda _: True, downloads=False))
        return nullcontext(self.builders[-1])

    def project(self, name: str, needs: str = "tiny", version: str = "1") -> Path:
        text = TINY.format(name=name, needs=needs, version=version)
        return written(self.folder / name, {"pyproject.toml": text})

    async def wanted(
        self,
        root: Path,
        variables: Mapping[str, str] | None = None,
        snapshot: str = "s",
        framework: str | None = None,
        python: str | None = None,
        deployment: str = "d",
    ) -> Wanted:
        found = await self.environments.wanted(
            root, snapshot, python, framework, variables or {}, deployment=deployment
        )
        assert found is not None
        return found

    async def get(self, wanted: Wanted) -> Path:
        return await self.environments.get(wanted, self.lines.append)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    wheel(tmp_path / "wheels", "tiny")
    return Machine(tmp_path)


def run(command: list[str | Path], **more: Any) -> str:
    return str(subprocess.run(command, check=True, capture_output=True, text=True, **more).stdout)


async def test_an_environment_is_made_once_and_shared_by_projects_with_other_names(machine: Machine) -> None:
    first = await machine.wanted(machine.project("one"))
    again = await machine.wanted(machine.project("two", version="7"))
    assert first.key == again.key
    assert first.key.endswith(f"-py3.{sys.version_info[1]}")
    python, same = await asyncio.gather(machine.get(first), machine.get(again))
    assert python == same == machine.environments.interpreter(first.key)
    assert run([python, "-c", "import tiny; print(tiny.version)"]) == "1.0\n"
    assert [line for line in machine.lines if line.startswith("making an environment")] == [
        f"making an environment from pyproject.toml on Python 3.{sys.version_info[1]}"
    ]
    assert sorted(path.name for path in machine.place.iterdir()) == [".locks", first.key], (
        "nothing is left of the build"
    )


async def test_another_server_of_the_machine_waits_for_the_build(machine: Machine) -> None:
    wanted = await machine.wanted(machine.project("one"))
    other = Environments(machine.place, machine.builder)
    lines: list[str] = []
    found = await asyncio.gather(machine.get(wanted), other.get(wanted, lines.append))
    assert found[0] == found[1]
    made = [line for line in [*machine.lines, *lines] if line.startswith("making an environment")]
    assert len(made) == 1


async def test_other_packages_and_indexes_are_another_environment_and_a_new_password_is_not(machine: Machine) -> None:
    root = machine.project("one")
    names = {"UV_INDEX": "https://me:first@packages.test/simple", "UV_INDEX_OURS_PASSWORD": "first", "OTHER": "x"}
    changed = {"UV_INDEX": "https://me:second@packages.test/simple", "UV_INDEX_OURS_PASSWORD": "second"}
    elsewhere = {"UV_INDEX": "https://me:first@elsewhere.test/simple"}
    plain, one, two, three = [await machine.wanted(root, given) for given in ({}, names, changed, elsewhere)]
    assert one.key == two.key
    assert len({plain.key, one.key, three.key, (await machine.wanted(machine.project("two", "tiny>1"))).key}) == 4
    assert one.indexes == {name: value for name, value in names.items() if name != "OTHER"}


async def test_the_configuration_of_uv_is_part_of_what_an_environment_is_made_of(machine: Machine) -> None:
    plain = machine.project("one")
    configured = written(machine.project("two"), {"uv.toml": 'index-strategy = "unsafe-best-match"\n'})
    assert (await machine.wanted(plain)).key != (await machine.wanted(configured)).key


async def test_a_file_that_names_packages_and_is_huge_is_an_error(machine: Machine) -> None:
    root = written(machine.folder / "huge", {"requirements.txt": "tiny\n" * (1 << 20)})
    with pytest.raises(ProjectError, match="larger than 4 MB"):
        await machine.wanted(root)


async def test_a_locked_project_shares_by_its_lock(machine: Machine) -> None:
    keys = []
    for name in ("one", "two"):
        root = machine.project(name)
        run([uv_program(), "lock"], cwd=root, env={**environment(), **index(machine.wheels)})
        keys.append((await machine.wanted(root)).key)
    assert keys[0] == keys[1]


async def test_a_project_that_names_no_packages_needs_no_environment(machine: Machine) -> None:
    root = written(machine.folder / "bare", {"pyproject.toml": '[tool.windlass]\nentrypoint = "work:run"\n'})
    assert await machine.environments.wanted(root, "s", None, "crewai", {}, deployment="d") is None


async def test_the_reason_of_the_resolver_is_the_error_and_nothing_is_left(machine: Machine) -> None:
    wanted = await machine.wanted(machine.project("one", "nowhere-to-be-found"))
    with pytest.raises(ProjectError, match=r"pyproject.toml can't be installed.*nowhere-to-be-found"):
        await machine.get(wanted)
    assert machine.environments.interpreter(wanted.key) is None
    assert [path.name for path in machine.place.iterdir()] == [".locks"]


async def test_an_environment_without_the_framework_of_the_project_is_refused(machine: Machine) -> None:
    wanted = await machine.wanted(machine.project("one"), framework="crewai")
    with pytest.raises(ProjectError, match="does not name crewai"):
        await machine.get(wanted)


@pytest.mark.parametrize(
    ("python", "why"),
    [("3.9", "and this machine has none"), ("/bin/sh", r"python under \[tool.windlass\] is '/bin/sh'")],
)
async def test_a_python_that_no_crew_can_have_is_an_error(machine: Machine, python: str, why: str) -> None:
    with pytest.raises(ProjectError, match=why):
        await machine.wanted(machine.project("one"), python=python)


async def test_a_build_that_is_cancelled_ends_with_its_processes(machine: Machine) -> None:
    hangs = "    import time; open(os.environ['UV_CACHE_DIR'] + '/hangs', 'w').write(str(os.getpid())); time.sleep(600)"
    source(machine.wheels, "slow", hangs)
    wanted = await machine.wanted(machine.project("one", "slow"))
    making = asyncio.create_task(machine.get(wanted))
    began = machine.folder / "cache" / "hangs"
    async with asyncio.timeout(60):
        while not began.exists() or not began.read_text():  # noqa: ASYNC110 - another process writes the file
            await asyncio.sleep(0.02)
    making.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(making, 60)
    with pytest.raises(ProcessLookupError):
        await until_gone(int(began.read_text()))
    assert [path.name for path in machine.place.iterdir()] == [".locks"]


async def until_gone(pid: int) -> None:
    async with asyncio.timeout(60):
        while True:
            os.kill(pid, 0)
            with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123, ASYNC230
                if file.read().split()[2] == "Z":  # nobody waits for it in a container
                    raise ProcessLookupError
            await asyncio.sleep(0.02)


async def test_unused_environments_are_removed(machine: Machine) -> None:
    used = await machine.wanted(machine.project("one"))
    old = await machine.wanted(machine.project("two", "tiny>=1"))
    for one in (used, old):
        await machine.get(one)
    assert await machine.environments.remove_unused([]) == [], "both were used just now"
    for one in (used, old):
        os.utime(machine.place / one.key, (1, 1))
    assert await machine.environments.remove_unused([used.key]) == [old.key]
    assert machine.environments.interpreter(old.key) is None
    assert machine.environments.interpreter(used.key) is not None
    assert (machine.place / used.key).stat().st_mtime > time.time() - 60


async def test_what_a_killed_build_left_is_removed(machine: Machine) -> None:
    wanted = await machine.wanted(machine.project("one"))
    await machine.get(wanted)
    left = machine.place / f".{wanted.key}.0123abcd"
    (left / "env").mkdir(parents=True)
    await machine.environments.remove_unused([wanted.key])
    assert sorted(path.name for path in machine.place.iterdir()) == [".locks", wanted.key]


async def test_a_disk_that_is_full_is_an_error_and_nothing_is_left(machine: Machine) -> None:
    wheel(machine.wheels, "large", code="text = '" + "x" * (3 << 20) + "'\n")
    wanted = await machine.wanted(machine.project("one", "large"))
    with needed_small_disk(machine.folder / "small", 2):
        machine.environments = Environments(machine.folder / "small" / "environments", machine.builder)
        with pytest.raises(ProjectError, match="No space left on device") as caught:
            await machine.get(wanted)
        assert "disk" in caught.value.hint
        assert [path.name for path in (machine.folder / "small" / "environments").iterdir()] == [".locks"]


async def test_an_environment_whose_python_was_removed_is_made_again(machine: Machine) -> None:
    wanted = await machine.wanted(machine.project("one"))
    python = await machine.get(wanted)
    python.unlink()
    assert machine.environments.interpreter(wanted.key) is None
    assert (await machine.get(wanted)).exists()


async def test_a_row_can_name_no_other_folder(machine: Machine) -> None:
    for key in ("../../bin", "", "x" * 32, f"{'0' * 32}-py3.11/.."):
        with pytest.raises(ProjectError, match="is no environment"):
            machine.environments.interpreter(key)


async def test_a_folder_that_cannot_be_made_is_an_error_in_words(machine: Machine) -> None:
    wanted = await machine.wanted(machine.project("one"))
    machine.place.write_text("in the way")
    with pytest.raises(ProjectError, match=r"can't be made: .* disk of the server"):
        await machine.get(wanted)


async def test_other_settings_of_the_machine_make_another_environment_of_the_same_key(machine: Machine) -> None:
    wanted = await machine.wanted(machine.project("one"))
    former = await machine.get(wanted)
    given = {"UV_DEFAULT_INDEX": "https://me:{}@packages.test/simple", "UV_INDEX_OURS_PASSWORD": "{}", "UV_X": "{}"}
    digests = {
        digest_of_operator({name: text.format(word) for name, text in given.items()}, as_root=True) for word in "ab"
    }
    assert len(digests) == 1, "a new password changes nothing"
    other = Environments(machine.place, machine.builder, machine=digests.pop())
    assert other.interpreter(wanted.key) is None
    python = await other.get(wanted, machine.lines.append)
    assert python != former
    os.utime(former.parent.parent, (1, 1))
    os.utime(python.parent.parent, (1, 1))
    assert await other.remove_unused([wanted.key]) == [wanted.key]
    assert other.interpreter(wanted.key) == python
    assert not digest_of_operator({"UV_CACHE_DIR": "/x", "UV_HTTP_TIMEOUT": "9"}, as_root=True)


def test_the_configuration_of_the_operator_counts(tmp_path: Path) -> None:
    written(tmp_path, {".config/uv/uv.toml": "no-index = true\n", "more.toml": "offline = true\n"})
    home = {"HOME": str(tmp_path)}
    assert operator_settings(home, as_root=False)["no-index"] is True
    assert "no-index" not in operator_settings(home, as_root=True)
    assert operator_settings({**home, "UV_CONFIG_FILE": str(tmp_path / "more.toml")}, as_root=True) == {"offline": True}
    assert digest_of_operator(home, as_root=False) != digest_of_operator({}, as_root=False)
    both = combined({"find-links": ["a"], "pip": {"x": 1}}, {"find-links": ["b"], "pip": {"x": 2, "y": 3}})
    assert both == {"find-links": ["a", "b"], "pip": {"x": 1, "y": 3}}
