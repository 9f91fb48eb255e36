"""A project must not decide on the packages of an environment that deployments of other people use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from projects_for_tests.making import written
from projects_for_tests.wheels import wheel
from windlass.config import environment
from windlass.errors import ProjectError
from windlass.projects.bounded_reader import AnsweredPackages, BoundedReader
from windlass.projects.environments import Environments
from windlass.projects.uv import Builder, uv_program

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from windlass.projects.environments import Wanted

TINY = '[project]\nname = "x"\nversion = "1"\ndependencies = ["{needs}"]\n'
NEEDS = TINY.format(needs="tiny")
WHEEL = "wheels/tiny-1.0-py3-none-any.whl"
HASH = "sha256:" + "0" * 64
REMOTE_WHEEL = 'url = "https://a.test/tiny-1.0-py3-none-any.whl"'
POETRY_LOCK = """
[[package]]
name = "tiny"
version = "1.0"
files = [{{file = "tiny-1.0-py3-none-any.whl", hash = "{hash}"}}]
{more}

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
    "reference": {"pyproject.toml": TINY.format(needs=f"tiny @ {WHEEL}")},
    "source": {"pyproject.toml": NEEDS + '[tool.uv.sources]\ntiny = { path = "own" }\n'},
    "workspace": {"pyproject.toml": NEEDS + "[tool.uv.sources]\ntiny = { workspace = true }\n"},
    "override": {"pyproject.toml": f'{NEEDS}[tool.uv]\noverride-dependencies = ["tiny @ {WHEEL}"]\n'},
    "tool of a build": {"pyproject.toml": f'{NEEDS}[tool.uv.extra-build-dependencies]\ntiny = ["own @ {WHEEL}"]\n'},
    "links of uv": {"pyproject.toml": NEEDS + '[tool.uv]\nfind-links = ["wheels"]\n'},
    "links of pip": {"pyproject.toml": NEEDS + '[tool.uv.pip]\nfind-links = ["wheels"]\n'},
    "index": {"pyproject.toml": NEEDS + '[[tool.uv.index]]\nname = "a"\nurl = "wheels"\n'},
    "links beside": {"requirements.txt": "tiny\n", "pyproject.toml": '[tool.uv]\nfind-links = ["wheels"]\n'},
    "uv.toml": {"requirements.txt": "tiny\n", "uv.toml": 'find-links = ["wheels"]\n'},
    "lock of uv": {
        "pyproject.toml": NEEDS,
        "uv.lock": UV_LOCK.format(source='registry = "wheels"', wheel='path = "tiny-1.0-py3-none-any.whl"', hash=HASH),
    },
    "folder in a lock of uv": {
        "pyproject.toml": NEEDS, "uv.lock": UV_LOCK.format(source='directory = "own"', wheel=REMOTE_WHEEL, hash=HASH),
    },
    "poetry": {"pyproject.toml": POETRY.format(value='{ path = "own" }')},
    "links of poetry": {"pyproject.toml": POETRY.format(value='"*"') + '[tool.uv]\nfind-links = ["wheels"]\n'},
    "folder in a lock of poetry": {
        "pyproject.toml": POETRY.format(value='"*"'),
        "poetry.lock": POETRY_LOCK.format(hash=HASH, more='[package.source]\ntype = "directory"\nurl = "own"'),
    },
    **{
        text: {"requirements.txt": text}
        for text in (
            "-e ./own", "-e .", "tiny\n./own", "own.whl", "own.tar.bz2", "sub/own", f"tiny @ {WHEEL}",
            "-f wheels\ntiny", "--find-links wheels\ntiny", "--find-links=wheels\ntiny", "-i wheels\ntiny",
            "--index-url=file:///x\ntiny", "--extra-index-url ./x\ntiny",
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
            wheel=REMOTE_WHEEL,
            hash=HASH,
        ),
    },
}
OF_POETRY: dict[str, dict[str, str]] = {
    "lock": {"pyproject.toml": POETRY.format(value='"*"'), "poetry.lock": POETRY_LOCK.format(hash=HASH, more="")},
    "no lock": {"pyproject.toml": POETRY.format(value='{ git = "https://a.test/b.git" }')},
}


class Machine:
    def __init__(
        self, folder: Path, more: Mapping[str, str] | None = None, reader: BoundedReader | None = None
    ) -> None:
        variables = {**environment(), "UV_CACHE_DIR": str(folder / "cache"), "UV_OFFLINE": "true", **(more or {})}
        builder = Builder(uv_program(), variables, lambda _: True, downloads=False)
        self.environments = Environments(folder / "environments", lambda: nullcontext(builder), reader)

    async def wanted(
        self, root: Path, snapshot: str, variables: Mapping[str, str] | None = None, deployment: str = "d"
    ) -> Wanted:
        found = await self.environments.wanted(root, snapshot, None, None, variables or {}, deployment=deployment)
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
async def test_packages_from_files_of_the_project_are_those_of_its_snapshot_and_of_one_deployment(
    machine: Machine, tmp_path: Path, files: dict[str, str]
) -> None:
    root, elsewhere = written(tmp_path / "project", files), written(tmp_path / "elsewhere", files)
    own = (await machine.wanted(root, "one", deployment="one")).key
    assert (await machine.wanted(root, "two", deployment="one")).key != own
    assert (await machine.wanted(root, "one", deployment="two")).key != own
    assert (await machine.wanted(elsewhere, "one", deployment="one")).key == own, "another folder is the same project"


@pytest.mark.parametrize("files", SHARED.values(), ids=SHARED)
async def test_packages_of_remote_places_are_shared(machine: Machine, tmp_path: Path, files: dict[str, str]) -> None:
    variables = {"UV_INDEX": "ours=https://packages.test/simple"}
    keys = {
        (await machine.wanted(written(tmp_path / name, files), name, variables, deployment=name)).key
        for name in ("one", "two")
    }
    assert len(keys) == 1


@pytest.mark.parametrize("files", OF_POETRY.values(), ids=OF_POETRY)
async def test_packages_of_poetry_are_shared_by_the_versions_of_one_deployment(
    machine: Machine, tmp_path: Path, files: dict[str, str]
) -> None:
    root = written(tmp_path / "project", files)
    first, second = [(await machine.wanted(root, snapshot, deployment="one")).key for snapshot in ("a", "b")]
    assert first == second
    assert (await machine.wanted(root, "a", deployment="two")).key != first


async def test_a_process_that_pretends_to_read_poetrys_files_of_another_deployment_gets_another_environment(
    machine: Machine, tmp_path: Path
) -> None:
    victim = written(tmp_path / "victim", OF_POETRY["lock"])
    theirs = await machine.wanted(victim, "v", deployment="victim")
    assert isinstance(theirs.packages, AnsweredPackages)
    assert theirs.packages.of_poetry is not None
    packages = theirs.packages
    answer = {
        "file": packages.file,
        "python": packages.python,
        "fitting": sorted(packages.fitting),
        "settings": json.dumps(packages.settings.values),
        "ignored": [],
        "inputs": None,
        "poetry": theirs.packages.of_poetry.model_dump(),
    }
    printed = f"answer {json.dumps(answer)}"
    taken_over = BoundedReader(program=f"import sys; sys.stdin.read(); print({printed!r})")
    attacker = written(tmp_path / "attacker", {"pyproject.toml": "it has taken the process over"})
    found = await Machine(tmp_path, reader=taken_over).wanted(attacker, "a", deployment="attacker")
    assert found.packages.content == theirs.packages.content
    assert found.key != theirs.key


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("UV_INDEX", "ours=https://me:{}@packages.test/simple"),
        ("UV_INDEX_OURS_PASSWORD", "{}"),
        ("UV_INDEX_OURS_USERNAME", "{}"),
    ],
)
async def test_packages_for_a_password_are_not_those_of_others_and_a_new_password_changes_nothing(
    machine: Machine, tmp_path: Path, name: str, value: str
) -> None:
    root = written(tmp_path / "project", {"requirements.txt": "private\n"})
    variables = [{"UV_INDEX": "ours=https://packages.test/simple", name: value.format(word)} for word in ("a", "b")]
    first, second = [(await machine.wanted(root, "s", given, deployment="one")).key for given in variables]
    other = (await machine.wanted(root, "s", variables[0], deployment="two")).key
    without = (await machine.wanted(root, "s", {"UV_INDEX": variables[0]["UV_INDEX"]}, deployment="two")).key
    assert first == second
    assert first not in {other, without}


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
        {"pyproject.toml": POETRY.format(value='{ url = "https://${UV_INDEX_OURS_PASSWORD}/tiny.zip" }')},
        {"requirements.txt": "tiny\n", "uv.toml": 'index-url = "https://${UV_INDEX_OURS_PASSWORD}/simple"\n'},
    ],
)
async def test_a_variable_that_names_a_place_must_be_one_of_the_deployment(
    machine: Machine, tmp_path: Path, files: dict[str, str]
) -> None:
    root = written(tmp_path / "project", files)
    own = {"UV_INDEX_OURS_PASSWORD": "word"}
    keys = {(await machine.wanted(root, "s", own, deployment=deployment)).key for deployment in ("one", "two")}
    assert len(keys) == 2
    with pytest.raises(ProjectError, match=r"has the variable \$\{UV_INDEX_OURS_PASSWORD\}, which is no variable of"):
        await machine.wanted(root, "s", {})


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"requirements.txt": "-r /etc/passwd\n"}, "/etc/passwd is not in the folder of the project"),
        ({"requirements.txt": "-c ../other/requirements.txt\n"}, "is not in the folder of the project"),
        ({"requirements.txt": "-r https://a.test/more.txt\n"}, "there is no file https://a.test/more.txt"),
        ({"requirements.txt": "tiny\n--target=/tmp\n"}, "requirements.txt, line 2, can't be used: --target"),
        ({"requirements.txt": "tiny --global-option=x\n"}, "only hashes"),
        ({"requirements.txt": "tiny @@ x\n"}, "is no requirement"),
        ({"requirements.txt": "-e /srv/other\n"}, "/srv/other, which is not in the folder of the project"),
        ({"requirements.txt": "tiny @ file:///srv/other\n"}, "file:///srv/other, which is not in the folder"),
        ({"requirements.txt": "git+file:///srv/other\n"}, "git.file:///srv/other, which is not in the folder"),
        ({"pyproject.toml": NEEDS + '[tool.uv.sources]\ntiny = { path = "../other" }\n'}, "names ../other, which is"),
        ({"pyproject.toml": POETRY.format(value='{ path = "../x" }')}, "names ../x, which is not"),
        (
            {
                "pyproject.toml": POETRY.format(value='"*"'),
                "poetry.lock": POETRY_LOCK.format(hash=HASH, more='source = { type = "file", url = "/srv/x.whl" }'),
            },
            "names /srv/x.whl, which is not",
        ),
        ({"pyproject.toml": TINY.format(needs="tiny =>> 1")}, "is no requirement"),
        (
            {"uv.lock": UV_LOCK.format(source='directory = ".."', wheel=REMOTE_WHEEL, hash=HASH)},
            "uv.lock names .., which is not in the folder",
        ),
        (
            {"uv.lock": UV_LOCK.format(source='editable = "/srv/x"', wheel=REMOTE_WHEEL, hash=HASH)},
            "uv.lock names /srv/x, which is not",
        ),
        (
            {"uv.lock": UV_LOCK.format(source='registry = "https://a.test"', wheel=REMOTE_WHEEL, hash=HASH).replace(
                'name = "x"', 'name = "tiny"'
            )},
            "uv.lock has a package with the name of the project",
        ),
    ],
)  # fmt: skip
async def test_files_of_the_server_and_lines_that_are_not_understood_are_refused(
    machine: Machine, tmp_path: Path, files: dict[str, str], why: str
) -> None:
    root = written(tmp_path / "project", files)
    with pytest.raises(ProjectError, match=why):
        await machine.wanted(root, "s")


@pytest.mark.parametrize("text", [f"{HASH}\\n./{WHEEL}", f"{HASH} -r /etc/passwd", f"{HASH}\\\\"])
async def test_a_hash_of_a_lock_is_no_more_than_a_hash(machine: Machine, tmp_path: Path, text: str) -> None:
    files = {"pyproject.toml": POETRY.format(value='"*"'), "poetry.lock": POETRY_LOCK.format(hash=text, more="")}
    with pytest.raises(ProjectError, match=r"a package of poetry .* can't be used"):
        await machine.environments.get(await machine.wanted(written(tmp_path / "project", files), "s"), print)


async def test_an_index_in_a_folder_of_the_project_is_that_of_its_snapshot(machine: Machine, tmp_path: Path) -> None:
    root = written(tmp_path / "project", {"requirements.txt": "tiny\n"})
    for place in ("wheels", "a=./wheels", "https://good.test/simple file:///x"):
        keys = {(await machine.wanted(root, snapshot, {"UV_INDEX": place})).key for snapshot in ("one", "two")}
        assert len(keys) == 2, place


BACKEND = """
def get_requires_for_build_wheel(config_settings=None):
    return []
def prepare_metadata_for_build_wheel(folder, config_settings=None):
    import os
    os.mkdir(os.path.join(folder, "x-1.dist-info"))
    with open(os.path.join(folder, "x-1.dist-info", "METADATA"), "w") as file:
        file.write("Metadata-Version: 2.1\\nName: x\\nVersion: 1\\nRequires-Dist: tiny\\nRequires-Dist: evil\\n")
    return "x-1.dist-info"
"""
BUILT_IN_THE_TREE = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
UNREADABLE = '[project.optional-dependencies]\nmore = ["no requirement at all!"]\n'
LOCKED = """
version = 1
requires-python = ">=3.10"

[[package]]
name = "tiny"
version = "1.0"
source = {{ registry = "{index}" }}
wheels = [{{ url = "{index}/tiny/tiny-1.0-py3-none-any.whl", hash = "{hash}" }}]

[[package]]
name = "{name}"
version = "1"
source = {{ virtual = "." }}
dependencies = [{{ name = "tiny" }}]
"""
PROGRAM = """#!/bin/sh
touch {mark}
exec {python} "$@"
"""


@dataclass
class Index:
    """A package index with two packages, on an address that is remote for a project."""

    url: str
    hash: str


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Index]:
    place = written(tmp_path / "index", {"index.html": ""})
    digest = wheel(place / "tiny", "tiny", code="owner = 'index'\n")
    wheel(place / "evil", "evil")

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the standard library
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=place)) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield Index(f"http://127.0.0.1:{server.server_port}", digest)
        server.shutdown()
        thread.join()


@pytest.fixture
def online(tmp_path: Path, served: Index) -> Machine:
    return Machine(tmp_path, {"UV_DEFAULT_INDEX": served.url, "UV_OFFLINE": "false"})


def attackers(served: Index, mark: Path) -> dict[str, tuple[dict[str, str], dict[str, str]]]:
    """The files of an attacker and of a victim that seem to want the same packages."""
    lock = {"pyproject.toml": NEEDS, "uv.lock": LOCKED.format(index=served.url, hash=served.hash, name="x")}
    program = {".python-version": "./python\n", "python": PROGRAM.format(mark=mark, python=sys.executable)}
    plain = {"pyproject.toml": NEEDS}
    backend = {"backend.py": BACKEND}
    return {
        "optional dependencies that can't be read": (
            {"pyproject.toml": NEEDS + UNREADABLE + BUILT_IN_THE_TREE, **backend},
            plain,
        ),
        "a dynamic version": (
            {"pyproject.toml": NEEDS.replace('version = "1"', 'dynamic = ["version"]') + BUILT_IN_THE_TREE, **backend},
            plain,
        ),
        "a program as its Python": ({**lock, **program}, lock),
        "a program as its Python, without a lock": ({**plain, **program}, plain),
        "the name of a locked package": ({**lock, "pyproject.toml": NEEDS.replace('"x"', '"tiny"')}, lock),
        "the name of a locked package in its lock": (
            {**lock, "uv.lock": lock["uv.lock"].replace('name = "x"', 'name = "other"')},
            lock,
        ),
        "a group that is installed by default": (
            {
                "pyproject.toml": f'{NEEDS}[dependency-groups]\ng = ["evil"]\n[tool.uv]\ndefault-groups = ["g"]\n',
                "uv.lock": lock["uv.lock"]
                + f'dev-dependencies = {{ g = [{{ name = "evil" }}] }}\n[[package]]\nname = "evil"\nversion = "1.0"\n'
                f'source = {{ registry = "{served.url}" }}\n'
                f'wheels = [{{ url = "{served.url}/evil/evil-1.0-py3-none-any.whl" }}]\n',
            },
            lock,
        ),
        "a configuration": ({**plain, "uv.toml": 'constraint-dependencies = ["tiny<1"]\n'}, plain),
        "a package that another one needs": (
            {"pyproject.toml": f'{NEEDS}[[tool.uv.dependency-metadata]]\nname = "tiny"\nrequires-dist = ["evil"]\n'},
            plain,
        ),
        "another Python": ({**plain, "pyproject.toml": f'{NEEDS}[tool.uv.pip]\npython = "./python"\n'}, plain),
    }


ATTACKS = list(attackers(Index("", ""), Path()))


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("first", ["attacker", "victim"])
async def test_an_attacker_decides_on_no_package_of_a_victim(
    online: Machine, served: Index, tmp_path: Path, attack: str, first: str
) -> None:
    mark = tmp_path / "program-was-started"
    files = dict(zip(("attacker", "victim"), attackers(served, mark)[attack], strict=True))
    installed: dict[str, set[str]] = {}
    for name in sorted(files, key=lambda name: name != first):
        root = written(tmp_path / name, files[name])
        for program in root.glob("python"):
            program.chmod(0o755)
        with suppress(ProjectError):  # an attack may also fail
            python = await online.environments.get(await online.wanted(root, name, deployment=name), lambda _: None)
            packages = python.parent.parent.glob("lib/python*/site-packages/*.dist-info")
            installed[name] = {path.name.partition("-")[0] for path in packages}
            assert str(root) not in os.path.realpath(python)  # noqa: ASYNC240 - a test
    assert installed["victim"] == {"tiny"}
    assert not mark.exists()


async def test_uv_gets_no_variable_of_the_server_that_decides_on_project_or_interpreter(
    served: Index, tmp_path: Path
) -> None:
    other = written(tmp_path / "other", {"pyproject.toml": TINY.format(needs="evil"), "uv.toml": "no-index = true\n"})
    given = {"UV_PROJECT": str(other), "UV_WORKING_DIR": str(other), "UV_PYTHON": "/bin/false", "UV_LOCKED": "1"}
    machine = Machine(tmp_path, {"UV_DEFAULT_INDEX": served.url, "UV_OFFLINE": "false", **given})
    lock = LOCKED.format(index=served.url, hash=served.hash, name="x")
    for name, files in {"one": {"pyproject.toml": NEEDS}, "two": {"pyproject.toml": NEEDS, "uv.lock": lock}}.items():
        wanted = await machine.wanted(written(tmp_path / name, files), name)
        python = await machine.environments.get(wanted, lambda _: None)
        assert subprocess.run([python, "-c", "import tiny; print(tiny.owner)"], check=True, stdout=-1).stdout  # noqa: ASYNC221


async def test_the_configuration_of_the_operator_counts_and_none_above_the_environments(
    served: Index, tmp_path: Path
) -> None:
    configuration = written(tmp_path / "operator", {"uv.toml": f'[[index]]\nurl = "{served.url}"\ndefault = true\n'})
    written(tmp_path, {"uv.toml": "no-index = true\n", "pyproject.toml": "[tool.uv.workspace]\nmembers = ['**']\n"})
    given = {"UV_CONFIG_FILE": str(configuration / "uv.toml"), "UV_OFFLINE": "false"}
    machine = Machine(tmp_path, given)
    lock = LOCKED.format(index=served.url, hash=served.hash, name="x")
    for name, files in {"one": {"pyproject.toml": NEEDS}, "two": {"pyproject.toml": NEEDS, "uv.lock": lock}}.items():
        wanted = await machine.wanted(written(tmp_path / name, files), name)
        assert (await machine.environments.get(wanted, lambda _: None)).exists()
