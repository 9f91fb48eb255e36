"""Crews of the real crewai, answered by a script: the example of the page, and all forms of answers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

import windlass
from offline_model.offline_serving import script, served
from windlass.offline_model.app import model_environment, offline_model_app

pytestmark = pytest.mark.xdist_group("crewai")

SECONDS_FOR_CREWS = 150
QUIET = dict.fromkeys(("CREWAI_DISABLE_TELEMETRY", "CREWAI_DISABLE_VERSION_CHECK", "OTEL_SDK_DISABLED"), "true")
PACKAGES = [str(Path(package.__file__ or "").parents[1]) for package in (windlass, click)]
PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "offline-model.md").read_text("utf-8")
CALLS = [{"tool": "look_up", "arguments": {"topic": "tea"}}, {"tool": "look_up", "arguments": {"topic": "cups"}}]


def run(folder: Path, *arguments: str, **variables: str) -> str:
    machine = {"PATH": os.defpath, "HOME": str(folder), "TMPDIR": str(folder), "CREWAI_TRACING_ENABLED": "false"}
    ended = subprocess.run(
        [sys.executable, *arguments],
        env={**machine, **QUIET, "PYTHONPATH": os.pathsep.join(PACKAGES), **variables},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=SECONDS_FOR_CREWS,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def crews(folder: Path, *rules: dict[str, Any]) -> list[dict[str, Any]]:
    """What came of each crew, first those that are not streamed, and first those whose output has no model."""
    program = Path(__file__).with_name("scripted_crews_offline.py")
    with served(offline_model_app(script(*rules, strict=True))) as address:
        printed = run(folder, str(program), **model_environment({}, address))
    return [json.loads(line.removeprefix("CREW ")) for line in printed.splitlines() if line.startswith("CREW ")]


def test_the_example_of_the_page_passes(tmp_path: Path) -> None:
    section = PAGE.partition("## Test a crew in CI\n")[2].partition("\n## ")[0]
    for name, code in re.findall(r"`(\w+\.\w+)`.*?\n```\w+\n(.*?)```", section, re.DOTALL):
        (tmp_path / name).write_text(code)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["answers.toml", "test_facts.py"]
    assert "1 passed" in run(tmp_path, "-m", "pytest", "-p", "no:cacheprovider", "test_facts.py")


def test_several_tools_are_called_at_once_and_the_output_has_its_model_also_when_streamed(tmp_path: Path) -> None:
    page = {"title": "Tea", "words": 120}
    rules: list[dict[str, Any]] = [
        {"times": 1, "error": 429},
        {"contains": "Find facts about tea.", "calls": CALLS},
        {"contains": ["notes on tea", "notes on cups"], "json": page},
    ]
    told = crews(tmp_path, *rules)
    assert [(one["stream"], one["structured"]) for one in told] == [
        (False, False),
        (False, True),
        (True, False),
        (True, True),
    ]
    assert [sorted(one["looked_up"]) for one in told] == [["cups", "tea"]] * 4
    assert [json.loads(one["raw"]) for one in told] == [page] * 4
    assert [one["page"] for one in told] == [None, page, None, page]
