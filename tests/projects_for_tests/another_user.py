"""A zygote that runs as a user who may do nothing: of a copy of the package, and on a Python, that anyone can read."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import windlass_child
from projects_for_tests.driver import DrivenZygote
from windlass.config import ROOT_HOME
from windlass.runner import RunnerConfig
from windlass.runner.prepared_interpreters import prepare

if TYPE_CHECKING:
    from windlass.accounts import Account

PYTHON = Path("/usr/bin/python3.11")

as_another_user = pytest.mark.skipif(
    os.geteuid() != 0 or not PYTHON.exists(), reason=f"it takes root, and {PYTHON} that any user can run"
)


def config_of(account: Account | None, **more: Any) -> RunnerConfig:
    """Crews of this account run in a checkout that it can't reach, too: below the home of root, for example."""
    assert account is not None
    return RunnerConfig(
        crew_account=account, prepared=prepare(account, ROOT_HOME / "interpreters", lambda _: None), **more
    )


def zygote_of(user: int, place: Path, **started: Any) -> DrivenZygote:
    """`place` is an empty folder that the user can come to."""
    place.chmod(0o755)
    copied = place / "installed" / "windlass_child"
    shutil.copytree(Path(windlass_child.__file__).parent, copied, ignore=shutil.ignore_patterns("__pycache__"))
    folder, program = owned(user, place / "zygote"), copied / "__main__.py"
    return DrivenZygote(
        folder, command=[str(PYTHON)], program=program, user=user, group=user, extra_groups=[], **started
    )


def owned(user: int, folder: Path) -> Path:
    folder.mkdir()
    os.chown(folder, user, user)
    return folder
