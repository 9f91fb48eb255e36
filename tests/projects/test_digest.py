from __future__ import annotations

import json
import os
import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from projects_for_tests.making import written
from windlass.errors import ProjectError
from windlass.projects import Options, digest, glance
from windlass.projects.digest import WHOLE, changes

pytestmark = pytest.mark.unit


FILES = {"pyproject.toml": "", "src/a/crew.py": "one", "src/a/config/agents.yaml": "two"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return written(tmp_path / "project", FILES)


def test_the_same_files_have_the_same_digest_wherever_they_are(project: Path, tmp_path: Path) -> None:
    assert digest(shutil.copytree(project, tmp_path / "copy")) == digest(project)


@pytest.mark.parametrize(
    "change",
    [{"src/a/crew.py": "One"}, {"src/a/crew.txt": ""}, {"src/b.py": ""}],
    ids=["contents", "a new file", "a new module"],
)
def test_a_change_of_the_code_changes_it(project: Path, change: dict[str, str]) -> None:
    before = digest(project)
    assert digest(written(project, change)) != before


def test_a_file_that_is_gone_changes_it(project: Path) -> None:
    before = digest(project)
    (project / "src" / "a" / "crew.py").unlink()
    assert digest(project) != before


def test_where_one_name_ends_and_contents_begin_makes_a_difference(tmp_path: Path) -> None:
    assert digest(written(tmp_path / "a", {"ab": "c"})) != digest(written(tmp_path / "b", {"a": "bc"}))


@pytest.mark.parametrize(
    "left",
    [
        ".git/HEAD",
        ".venv/bin/python",
        "src/a/__pycache__/crew.pyc",
        "a.pyc",
        "node_modules/a.js",
        "run.log",
        "runs.sqlite3-wal",
        "out.db",
        ".env",
    ],
)
def test_what_tools_and_runs_leave_behind_does_not_change_it(project: Path, left: str) -> None:
    before = digest(project)
    assert digest(written(project, {left: "anything"})) == before


def test_a_link_counts_by_where_it_leads_even_to_nothing_or_to_itself(project: Path) -> None:
    link = project / "link"
    link.symlink_to("nowhere")
    before = digest(project)
    link.unlink()
    link.symlink_to(project)
    assert digest(project) != before


def test_a_large_file_counts_by_size_and_time(project: Path) -> None:
    large = project / "large.bin"
    with large.open("wb") as file:
        file.truncate(WHOLE + 1)
    before = digest(project)
    os.utime(large, (1, 1))
    assert digest(project) != before


def test_a_pipe_is_not_waited_for(project: Path) -> None:
    before = digest(project)
    os.mkfifo(project / "pipe")
    assert digest(project) == before


def test_a_link_to_a_file_counts_by_what_is_in_it(project: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared.py"
    shared.write_text("one")
    (project / "shared.py").symlink_to(shared)
    before, seen = digest(project), glance(project)
    shared.write_text("three")
    assert digest(project) != before
    assert changes(seen, glance(project)) == {"shared.py"}


def test_of_a_linked_folder_code_counts_and_data_does_not(project: Path, tmp_path: Path) -> None:
    linked = written(tmp_path / "linked", {"a.py": "one", "deep/b.yaml": "one", "large.csv": "one"})
    (project / "src" / "linked").symlink_to(linked)
    before, seen = digest(project), glance(project)
    (linked / "large.csv").write_text("two, and more")
    assert (digest(project), glance(project)) == (before, seen)
    (linked / "deep" / "b.yaml").write_text("two, and more")
    assert digest(project) != before
    assert changes(seen, glance(project)) == {"src/linked/deep/b.yaml"}


def test_links_that_lead_round_in_circles_are_followed_once(project: Path, tmp_path: Path) -> None:
    linked = written(tmp_path / "linked", {"a.py": "one"})
    for name in ("one", "two"):
        (project / name).symlink_to(linked)
    (linked / "round").symlink_to(linked)
    (linked / "home").symlink_to(project)
    (linked / "above").symlink_to(tmp_path)
    (project / "itself").symlink_to(project / "itself")
    followed = {name for name in glance(project) if name.endswith("a.py")}
    assert followed == {"one/a.py"}


def test_what_the_project_leaves_out_does_not_change_it(project: Path) -> None:
    ignore = ["data/*", "*.csv", "out/", "src/a/kept.txt", "*.toml"]
    before, seen = digest(project, ignore), glance(project, ignore)
    written(project, {"data/a/b.py": "", "src/x.csv": "", "out/a/b.txt": "", "src/a/kept.txt": ""})
    assert (digest(project, ignore), glance(project, ignore)) == (before, seen)
    written(project, {"datas.py": "", "pyproject.toml": "[project]"})
    assert digest(project, ignore) != before
    assert changes(seen, glance(project, ignore)) == {"datas.py", "pyproject.toml"}


def test_a_glance_sees_the_env_file_come_change_and_go(project: Path) -> None:
    seen = [glance(project)]
    for text in ("KEY=a", "KEY=and more"):
        (project / ".env").write_text(text)
        seen.append(glance(project))
    (project / ".env").unlink()
    seen.append(glance(project))
    assert [changes(one, other) for one, other in pairwise(seen)] == [{".env"}] * 3


def test_a_glance_sees_that_the_environment_was_made_and_the_digest_does_not(project: Path) -> None:
    before, seen = digest(project), [glance(project)]
    for text in ("version = 3.11.2\n", "version = 3.12.14\n"):
        written(project, {".venv/pyvenv.cfg": text, ".venv/lib/package.py": text})
        seen.append(glance(project))
    assert [changes(one, other) for one, other in pairwise(seen)] == [{".venv/pyvenv.cfg"}] * 2
    assert digest(project) == before


def test_a_link_to_a_pipe_is_not_read(project: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (project / "piped").symlink_to(tmp_path / "pipe")
    assert digest(project)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to root")
def test_a_folder_that_is_closed_is_passed_over(project: Path) -> None:
    before = digest(project)
    closed = written(project / "closed", {"a.py": ""})
    closed.chmod(0)
    try:
        assert digest(project) == before
    finally:
        closed.chmod(0o700)


@pytest.mark.parametrize("ignore", ["data", [""], ["/etc"], ["../other"], [7], {"a": 1}])
def test_what_is_no_pattern_is_told(ignore: object) -> None:
    with pytest.raises(ProjectError, match=r"in \[tool.windlass\], ignore must be a list of paths in the project"):
        Options.parse({"ignore": ignore}, Path("pyproject.toml"))


def test_what_a_project_leaves_out_stays_with_its_version() -> None:
    found = Options.parse({"ignore": ["data/*"]}, Path("pyproject.toml"))
    assert Options.from_json(json.loads(json.dumps(found.to_json()))) == found
    assert found.ignore == ["data/*"]
