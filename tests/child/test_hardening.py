"""What a child is given, and what it and its neighbours can't do."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from projects_for_tests.another_user import as_another_user, owned, zygote_of
from projects_for_tests.driver import DrivenZygote, value_of
from projects_for_tests.wild import wild
from windlass_child.protocol.messages import Born

if TYPE_CHECKING:
    from collections.abc import Iterator

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="Linux alone has these")

NOBODY = 65534
LOWEST = 19
"""Of all priorities."""


@pytest.fixture
def zygote(tmp_path: Path) -> Iterator[DrivenZygote]:
    with DrivenZygote(tmp_path / "zygote") as zygote:
        zygote.ready()
        yield zygote


def json_of(zygote: DrivenZygote, folder: Path, deed: str, start: str = "fork", **inputs: Any) -> Any:
    child = zygote.fork(start)
    child.run(wild(folder / "project"), folder / child.name, inputs={"do": deed, **inputs})
    return value_of(child.answer())


@linux_only
@pytest.mark.parametrize("start", ["fork", "exec"])
def test_a_child_has_given_up_what_could_be_used_against_others(
    zygote: DrivenZygote, tmp_path: Path, start: str
) -> None:
    found = json_of(zygote, tmp_path, "self", start)
    assert (found["no_new_privs"], found["dumpable"], found["core"]) == ("1", 0, [0, 0])
    assert int(found["oom"]) >= 500
    assert found["nice"] == min(os.nice(0) + 10, LOWEST)
    assert found["session"], "it leads a session of its own"


@linux_only
def test_the_zygote_itself_is_hardened(zygote: DrivenZygote) -> None:
    proc = Path(f"/proc/{zygote.process.pid}")
    assert "NoNewPrivs:\t1\n" in (proc / "status").read_text()
    assert re.search(r"^Max core file size +0 +0 ", (proc / "limits").read_text(), re.MULTILINE)
    assert proc.joinpath("environ").stat().st_uid == 0, "what is not dumpable belongs to root in /proc"
    assert int((proc / "oom_score_adj").read_text()) >= 500


@linux_only
@pytest.mark.parametrize("start", ["fork", "exec"])
def test_a_child_holds_no_descriptor_but_its_own(zygote: DrivenZygote, tmp_path: Path, start: str) -> None:
    other = zygote.fork()
    other.run(wild(tmp_path / "other"), tmp_path / "sleeps", inputs={"do": "sleep"})
    other.numbers("asleep")
    found = json_of(zygote, tmp_path, "descriptors", start)
    # where it writes its stacks, and what tells it of the end of its zygote
    assert found == ["anon_inode", "memfd", "null", "pipe", "pipe", "socket"]


@linux_only
@pytest.mark.parametrize("start", ["fork", "exec"])
def test_its_first_message_brings_a_view_of_its_memory_that_lasts(
    zygote: DrivenZygote, tmp_path: Path, start: str
) -> None:
    child = zygote.fork(start)
    zygote.until(lambda: child.talk.descriptors)
    assert child.talk.messages == [Born(memory=True, stacks=True)], "before it has an order"
    view, _ = child.talk.descriptors
    child.run(wild(tmp_path / "project"), tmp_path / "folder", inputs={"do": "block_in_c"})
    zygote.until(lambda: "blocked" in child.printed)
    pss = re.search(rb"^Pss: +(\d+) kB", os.pread(view, 8192, 0), re.MULTILINE)
    assert pss is not None
    assert 500 < int(pss[1]) < 500_000


def test_a_child_by_exec_has_nothing_of_the_zygotes_memory(tmp_path: Path) -> None:
    with DrivenZygote(tmp_path / "zygote", environment={"ONLY_OF_THE_ZYGOTE": "1"}) as zygote:
        zygote.ready()
        found = json_of(zygote, tmp_path, "self", "exec")
        assert found["argv"] == [str(tmp_path / "project")]
        assert found["utf8"] == 1
        assert not found["windlass"]
        assert "ONLY_OF_THE_ZYGOTE" not in json_of(zygote, tmp_path, "environment", "exec")


def test_an_interpreter_that_is_gone_can_not_be_started_again_and_that_is_told(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    here = {"PYTHONHOME": sys.base_prefix}
    with DrivenZygote(tmp_path / "zygote", command=[str(python)], environment=here) as zygote:
        zygote.ready()
        python.unlink()
        child = zygote.fork("exec")
        assert os.waitstatus_to_exitcode(child.exited()) == os.EX_SOFTWARE
        assert "can't be started again: No such file or directory" in child.errors.data.decode()


@linux_only
@as_another_user
def test_a_neighbour_of_the_same_user_can_not_look_into_a_zygote_or_a_child() -> None:
    with tempfile.TemporaryDirectory() as made, zygote_of(NOBODY, Path(made)) as zygote:
        place = Path(made)
        zygote.ready()
        target, project = zygote.fork(), wild(place / "project")
        target.run(project, owned(NOBODY, place / "target"), inputs={"do": "sleep"}, environment={"MODEL_KEY": "sk-1"})
        target.numbers("asleep")
        paths = [f"/proc/{pid}/{name}" for pid in (zygote.process.pid, target.pid) for name in ("environ", "mem")]
        control = f"/proc/{target.pid}/stat"
        look = zygote.fork()
        look.run(project, owned(NOBODY, place / "look"), inputs={"do": "look", "paths": [*paths, control]})
        answer = look.answer()
    assert value_of(answer) == dict.fromkeys(paths, "Permission denied") | {control: "read"}
