"""Projects from git repositories: which commit and folder are fetched, and what an error explains."""

from __future__ import annotations

import re
import shutil
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from projects.archives import CREW, names
from projects.git_server import commit, git, repository, serving
from windlass.errors import ProjectError
from windlass.projects.git import Fetched, check_origin, fetch
from windlass.projects.snapshot import content_of, pack

if TYPE_CHECKING:
    from collections.abc import Iterator

First = tuple[Path, str]
pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


@pytest.fixture(scope="module")
def first_commit(tmp_path_factory: pytest.TempPathFactory) -> First:
    """The folder with the repository `crew`, and its first commit. It has two branches, a tag and a subfolder."""
    root = tmp_path_factory.mktemp("repositories")
    folder = repository(root / "crew", {**CREW, "crews/one/work.py": "one", ".env": "KEY=1", "run.sh": "echo"})
    (folder / "run.sh").chmod(0o755)
    first = commit(folder, {"data.csv": "a"})
    git(folder, "tag", "-a", "v1", "-m", "release")
    commit(folder, {"work.py": "second"})
    git(folder, "switch", "--quiet", "-c", "feature/x")
    commit(folder, {"work.py": "third"})
    git(folder, "switch", "--quiet", "main")
    return root, first


@pytest.fixture(scope="module")
def server(first_commit: First) -> Iterator[str]:
    with serving(first_commit[0]) as (port, _):
        yield f"http://127.0.0.1:{port}"


def fetched(url: str, to: Path, ref: str | None = None, subfolder: str | None = None, **more: Any) -> Fetched:
    lines: list[str] = []
    return fetch(url, ref, subfolder, to / "source.zip", allow_local=True, report=lines.append, **more)


def code(found: Fetched) -> str:
    return (content_of(found.snapshot.file, "work.py") or b"").decode()


@pytest.mark.parametrize(("ref", "text"), [(None, "second"), ("main", "second"), ("feature/x", "third")])
def test_a_branch_and_the_default_branch(server: str, tmp_path: Path, ref: str | None, text: str) -> None:
    assert code(fetched(f"{server}/crew", tmp_path, ref)) == text


def test_a_tag_and_a_commit_are_the_same_source(server: str, tmp_path: Path, first_commit: First) -> None:
    root, first = first_commit
    by_tag = fetched(f"{server}/crew", tmp_path, "v1")
    by_commit = fetched(f"{server}/crew", tmp_path, first)
    assert by_tag == by_commit
    assert by_tag.commit == first
    assert code(by_tag) == CREW["work.py"]
    git(root / "crew", "worktree", "add", "--quiet", str(tmp_path / "tree"), "v1")
    assert pack(tmp_path / "tree", tmp_path / "packed.zip").digest == by_tag.snapshot.digest
    assert by_tag.snapshot.left_out == (".env",)


def test_a_subfolder_is_the_root(server: str, tmp_path: Path) -> None:
    found = fetched(f"{server}/crew", tmp_path, subfolder="crews/one/")
    assert names(found.snapshot.file) == ["work.py"]
    found = fetched(f"{server}/crew", tmp_path, subfolder="crews")
    assert names(found.snapshot.file) == ["one/work.py"]
    for missing in ("crews/two", "work.py"):
        with pytest.raises(ProjectError, match=rf"/crew can't be fetched: it has no folder '{missing}'"):
            fetched(f"{server}/crew", tmp_path, subfolder=missing)


def test_what_is_reported(server: str, tmp_path: Path, first_commit: First) -> None:
    lines: list[str] = []
    folder = repository(first_commit[0] / "lfs", {**CREW, ".gitattributes": "*.bin filter=lfs", ".gitmodules": "x"})
    fetch(f"{server}/lfs", "main", None, tmp_path / "source.zip", allow_local=True, report=lines.append)
    assert lines[0] == f"fetching main of {server}/lfs"
    assert re.fullmatch(rf"fetched the commit {git(folder, 'rev-parse', 'HEAD')}: 4 files, \d+ KB", lines[1])
    assert [line.split(",")[0] for line in lines[2:]] == [
        "warning: submodules are not fetched",
        "warning: files of Git LFS are not fetched",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["source.zip"]


@pytest.mark.parametrize(
    ("place", "ref", "words"),
    [
        ("crew", "nowhere", "it has no branch, tag or commit of this name"),
        ("crew", "0" * 40, "it has no branch, tag or commit of this name"),
        ("missing", None, "there is no repository at this address, or it is private"),
    ],
)
def test_what_is_not_there(server: str, tmp_path: Path, place: str, ref: str | None, words: str) -> None:
    with pytest.raises(ProjectError, match=f"{server}/{place} can't be fetched: {words}"):
        fetched(f"{server}/{place}", tmp_path, ref)
    assert not list(tmp_path.iterdir())


def test_a_private_repository(tmp_path: Path, first_commit: First) -> None:
    with serving(first_commit[0], password="s3cret/ö") as (port, _):
        url = f"http://127.0.0.1:{port}/crew"
        assert fetched(url, tmp_path, variables={"GIT_PASSWORD": "s3cret/ö"}).snapshot.files
        for variables in ({}, {"GIT_PASSWORD": "wr0ng"}, {"GIT_USERNAME": "other", "GIT_PASSWORD": "s3cret/ö"}):
            with pytest.raises(
                ProjectError, match=r"asks for other credentials.*GIT_USERNAME and GIT_PASSWORD"
            ) as error:
                fetched(url, tmp_path, variables=variables)
            assert not re.search("s3cret|wr0ng", str(error.value))


def test_the_name_is_resolved_once(tmp_path: Path, first_commit: First, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git connects to the address that was checked, not to the one that its own question might get."""
    asked = []

    def resolve(host: str, port: int, **_: object) -> list[tuple[Any, ...]]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with serving(first_commit[0]) as (port, seen):
        fetched(f"http://crews.invalid:{port}/crew", tmp_path)
    assert asked == ["crews.invalid"]
    assert {request.partition("/")[0] for request in seen} == {f"crews.invalid:{port}"}


def test_a_local_repository_is_fetched_where_the_setting_allows_it(tmp_path: Path, first_commit: First) -> None:
    for url in (str(first_commit[0] / "crew"), f"file://{first_commit[0] / 'crew'}"):
        assert fetched(url, tmp_path, "v1").commit == first_commit[1]


def test_without_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(ProjectError, match=r"git is not installed on the worker\. Install it"):
        fetched("https://example.com/a", tmp_path)


@pytest.mark.parametrize(
    "url", ["https://example.com/a/b.git", "git@example.com:a/b.git", "ssh://git@example.com:2222/a"]
)
def test_usual_addresses_are_accepted(url: str) -> None:
    check_origin(url, "release/1.0", "crews/one", allow_local=False)
