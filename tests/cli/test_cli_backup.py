"""Backup and restore as a person does them: a server is lost with its disk, and goes on elsewhere."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cli.the_command import Command, ForkedCommand

if TYPE_CHECKING:
    from cli.the_command import Ended

PROJECT = '[project]\nname = "Steeping"\n\n[tool.windlass]\nentrypoint = "steep:steep"\n'
STEEP = """
from pathlib import Path
from time import sleep

def steep(leaf: str, until: str) -> str:
    while not Path(until).exists():
        sleep(0.02)
    return f"{leaf} tea"
"""


@pytest.fixture
def folder(open_folder: Path) -> Path:
    (open_folder / "project").mkdir()
    (open_folder / "project" / "pyproject.toml").write_text(PROJECT)
    (open_folder / "project" / "steep.py").write_text(STEEP)
    return open_folder


def server(folder: Path, name: str) -> Command:
    (folder / name).mkdir()
    (folder / name).chmod(0o755)
    return ForkedCommand(folder / name)


def kickoff(windlass: Command, url: str, leaf: str, until: Path) -> str:
    done = windlass("kickoff", url, "-i", f"leaf={leaf}", "-i", f"until={until}")
    assert done.code == 0, done
    return done.out.strip()


@pytest.mark.parametrize("with_key", [True, False], ids=["with the key", "key apart"])
def test_open_kickoffs_and_tokens_live_on_in_a_restored_server(folder: Path, with_key: bool) -> None:
    lost, new = server(folder, "lost"), server(folder, "new")
    brewed = folder / "brewed"
    file = str(folder / "backup.zip")
    serving = ("dev", str(folder / "project"), "--port", "0")
    with lost.started(*serving, WINDLASS_SLOTS="1") as first:
        url = first.wait_for("Base URL").split()[-1]
        token = lost("tokens", "show", "--kind", "organization").out.strip()
        lost.environment["WINDLASS_TOKEN"] = new.environment["WINDLASS_TOKEN"] = token
        runs, waits = (kickoff(lost, url, leaf, brewed) for leaf in ("green", "black"))
        first.wait_for("kickoff.started")
        told = lost("admin", "backup", file, "--json", *(["--with-key"] if with_key else []))
        assert told.code == 0, told
        facts = {"file": file, "bytes": Path(file).stat().st_size, "has_master_key": with_key}
        assert json.loads(told.out) == facts
        first.process.kill()
    if not with_key:
        place_key(lost, new)
    restored = new("admin", "restore", file, "--json")
    assert restored.code == 0, restored
    assert json.loads(restored.out) == {"home": new.environment["WINDLASS_HOME"], "former_database": None}
    brewed.touch()
    with new.started(*serving) as second:
        url = second.wait_for("Base URL").split()[-1]
        for id_, leaf in ((runs, "green"), (waits, "black")):
            followed = new("status", url, id_, "--watch")
            assert (followed.code, followed.out) == (0, f"{leaf} tea\n"), followed
        second.interrupt()
        assert second.end() == 0


def place_key(lost: Command, new: Command) -> None:
    home = Path(new.environment["WINDLASS_HOME"])
    home.mkdir(mode=0o711)
    shutil.copy2(Path(lost.environment["WINDLASS_HOME"]) / "master.key", home)


def test_what_is_wrong_is_told_without_a_traceback(folder: Path) -> None:
    windlass = server(folder, "here")
    (folder / "letter").write_text("Dear")

    def refused(*arguments: str, **variables: str) -> str:
        done: Ended = windlass(*arguments, **variables)
        assert done.code == 1, done
        assert done.err.startswith("error: ") or "\nerror: " in done.err, done
        assert "Traceback" not in done.err
        return done.err

    assert "There is no database in" in refused("admin", "backup", str(folder / "backup.zip"))
    assert "is no backup of Windlass" in refused("admin", "restore", str(folder / "letter"))
    outside = {"WINDLASS_DATABASE_URL": "postgresql://nowhere/"}
    assert "Use PostgreSQL's own programs, such as pg_dump" in refused("admin", "backup", "backup.zip", **outside)
    assert "Use PostgreSQL's own programs, such as pg_restore" in refused("admin", "restore", "backup.zip", **outside)
