"""A project must not decide on the packages of an environment that deployments of other people use."""

from __future__ import annotations

import subprocess
from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest

from projects_for_tests.making import written
from projects_for_tests.wheels import wheel
from windlass.config import environment
from windlass.projects.environments import Environments
from windlass.projects.uv import Builder, uv_program

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from windlass.projects.environments import Wanted

TINY = '[project]\nname = "x"\nversion = "1"\ndependencies = ["{needs}"]\n'
NEEDS = TINY.format(needs="tiny")
WHEEL = "wheels/tiny-1.0-py3-none-any.whl"
HASH = "sha256:" + "0" * 64
POETRY_LOCK = """
[[package]]
name = "tiny"
version = "1.0"
files = [{{file = "tiny-1.0-py3-none-any.whl", hash = "{hash}"}}]

[metadata]
lock-version = "2.1"
python-versions = ">=3.10"
"""
POETRY = "[tool.poetry.dependencies]\ntiny = {value}\n"
UV_LOCK = """
version = 1
requires-python = ">=3.10"

[[package]]
name = "tiny"
version = "1.0"
source = {{ {source} }}
wheels = [{{ {wheel}, hash = "{hash}" }}]

[[package]]
name = "x"
version = "1"
source = {{ virtual = "." }}
"""
OF_FILES = {
    "dynamic": {"pyproject.toml": '[project]\nname = "x"\ndynamic = ["dependencies"]\n'},
    "reference": {"pyproject.toml": TINY.format(needs="tiny @ file:///own")},
    "relative reference": {"pyproject.toml": TINY.format(needs=f"tiny @ {WHEEL}")},
    "source": {"pyproject.toml": NEEDS + '[tool.uv.sources]\ntiny = { path = "own" }\n'},
    "override": {"pyproject.toml": f'{NEEDS}[tool.uv]\noverride-dependencies = ["tiny @ {WHEEL}"]\n'},
    "links of uv": {"pyproject.toml": NEEDS + '[tool.uv]\nfind-links = ["wheels"]\n'},
    "links of pip": {"pyproject.toml": NEEDS + '[tool.uv.pip]\nfind-links = ["wheels"]\n'},
    "index": {"pyproject.toml": NEEDS + '[[tool.uv.index]]\nname = "a"\nurl = "wheels"\n'},
    "links beside": {"requirements.txt": "tiny\n", "pyproject.toml": '[tool.uv]\nfind-links = ["wheels"]\n'},
    "uv.toml": {"requirements.txt": "tiny\n", "uv.toml": 'find-links = ["wheels"]\n'},
    "lock of uv": {
        "pyproject.toml": NEEDS,
        "uv.lock": UV_LOCK.format(source='registry = "wheels"', wheel='path = "tiny-1.0-py3-none-any.whl"', hash=HASH),
    },
    "lock of poetry": {
        "pyproject.toml": POETRY.format(value='"*"'),
        "poetry.lock": POETRY_LOCK.format(hash=f"{HASH}\\n./{WHEEL}"),
    },
    "poetry": {"pyproject.toml": POETRY.format(value='{ path = "own" }')},
    **{
        text: {"requirements.txt": text}
        for text in (
            "-e ./own", "tiny\n./own", "-r more.txt", "own.whl", "own.tar.bz2", "sub/own", f"tiny @ {WHEEL}",
            "-f wheels\ntiny",
            "--find-links wheels\ntiny", "--find-links=wheels\ntiny", "-i wheels\ntiny", "--index-url=file:///x\ntiny",
            "-r \\\nsub/more.txt", "-rsub/more.txt", "--extra-index-url ./x\ntiny", "${UV_INDEX_A_PASSWORD}\ntiny",
        )
    },
}  # fmt: skip
SHARED: dict[str, dict[str, str]] = {
    "requirements": {
        "requirements.txt": "-r a-requirements.txt\n# ./x\n--index-url https://packages.test/simple  # ours\n",
        "a-requirements.txt": f"tiny[more]>=1; python_version > '3.8' \\\n    --hash={HASH}\nown @ git+https://a.test/b@c\n",
    },
    "index": {
        "pyproject.toml": NEEDS
        + '[[tool.uv.index]]\nname = "a"\nurl = "https://a.test/simple"\n[tool.uv.sources]\ntiny = { index = "a" }\n'
    },
    "lock of uv": {
        "pyproject.toml": NEEDS,
        "uv.lock": UV_LOCK.format(
            source='registry = "https://a.test/simple"',
            wheel='url = "https://a.test/tiny-1.0-py3-none-any.whl"',
            hash=HASH,
        ),
    },
    "lock of poetry": {"pyproject.toml": POETRY.format(value='"*"'), "poetry.lock": POETRY_LOCK.format(hash=HASH)},
    "poetry": {"pyproject.toml": POETRY.format(value='{ git = "https://a.test/b.git" }')},
}


class Machine:
    def __init__(self, folder: Path) -> None:
        variables = {**environment(), "UV_CACHE_DIR": str(folder / "cache"), "UV_OFFLINE": "true"}
        builder = Builder(uv_program(), variables, lambda _: True, downloads=False)
        self.environments = Environments(folder / "environments", lambda: nullcontext(builder))

    async def wanted(self, root: Path, snapshot: str, variables: Mapping[str, str] | None = None) -> Wanted:
        found = await self.environments.wanted(root, snapshot, None, None, variables or {})
        assert found is not None
        return found


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


async def test_two_projects_with_the_same_requirements_and_other_wheels_get_their_own(
    machine: Machine, tmp_path: Path
) -> None:
    found = []
    for name in ("attacker", "victim"):
        root = written(tmp_path / name, {"requirements.txt": "--find-links wheels\ntiny\n"})
        wheel(root / "wheels", "tiny", code=f"owner = {name!r}\n")
        python = await machine.environments.get(await machine.wanted(root, name), lambda _: None)
        ask = [str(python), "-c", "import tiny; print(tiny.owner)"]
        found.append(subprocess.run(ask, check=True, capture_output=True, text=True).stdout.strip())  # noqa: ASYNC221
    assert found == ["attacker", "victim"]


@pytest.mark.parametrize("files", OF_FILES.values(), ids=OF_FILES)
async def test_packages_from_files_of_the_project_are_those_of_its_snapshot(
    machine: Machine, tmp_path: Path, files: dict[str, str]
) -> None:
    root = written(tmp_path / "project", files)
    assert (await machine.wanted(root, "one")).key != (await machine.wanted(root, "two")).key


@pytest.mark.parametrize("files", SHARED.values(), ids=SHARED)
async def test_packages_of_remote_places_are_shared(machine: Machine, tmp_path: Path, files: dict[str, str]) -> None:
    root = written(tmp_path / "project", files)
    names = {"UV_INDEX": "ours=https://me:{}@packages.test/simple", "UV_INDEX_OURS_PASSWORD": "{}"}
    keys = {
        (await machine.wanted(root, word, {name: value.format(word) for name, value in names.items()})).key
        for word in ("first", "second")
    }
    assert len(keys) == 1


@pytest.mark.parametrize(
    "other",
    [
        "https://evil.test\\@good.test/simple",
        "https://evil.test?@good.test/simple",
        "https://evil.test#@good.test/simple",
        "https://evil.test/@good.test/simple",
    ],
)
async def test_an_index_whose_address_looks_like_credentials_is_another_one(
    machine: Machine, tmp_path: Path, other: str
) -> None:
    root = written(tmp_path / "project", {"requirements.txt": "tiny\n"})
    places = ("https://me:word@good.test/simple", other)
    keys = {(await machine.wanted(root, "s", {"UV_DEFAULT_INDEX": place})).key for place in places}
    assert len(keys) == 2


@pytest.mark.parametrize(
    "files",
    [
        {"requirements.txt": "--index-url https://me:${UV_INDEX_OURS_PASSWORD}@good.test/simple\ntiny\n"},
        {"pyproject.toml": TINY.format(needs="tiny @ https://me:${UV_INDEX_OURS_PASSWORD}@good.test/tiny.zip")},
    ],
)
async def test_a_password_that_can_name_another_host_counts(
    machine: Machine, tmp_path: Path, files: dict[str, str]
) -> None:
    root = written(tmp_path / "project", files)
    words = ("first", "x@evil.test/")
    keys = {(await machine.wanted(root, "s", {"UV_INDEX_OURS_PASSWORD": word})).key for word in words}
    assert len(keys) == 2


async def test_an_index_in_a_folder_of_the_project_is_that_of_its_snapshot(machine: Machine, tmp_path: Path) -> None:
    root = written(tmp_path / "project", {"requirements.txt": "tiny\n"})
    for place in ("wheels", "a=./wheels", "https://good.test/simple file:///x"):
        keys = {(await machine.wanted(root, snapshot, {"UV_INDEX": place})).key for snapshot in ("one", "two")}
        assert len(keys) == 2, place
