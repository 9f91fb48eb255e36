from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from projects_for_tests.making import written
from windlass.errors import ProjectError
from windlass.kickoffs.limits import Limits
from windlass.kickoffs.retention import Retention
from windlass.projects import Options, recognise

pytestmark = pytest.mark.unit


FILE = Path("/project/pyproject.toml")
ALL = """
[tool.windlass]
entrypoint = "a:b"
concurrency = 3
weight = 0.5
max_waiting = 100
concurrency_strategy = "reject"
preload = "project"
start = "exec"
[tool.windlass.limits]
memory_limit = "512 MB"
timeout = 60
"""


def parse(**table: Any) -> Options:
    return Options.parse(table, FILE)


def test_a_project_that_says_nothing_has_the_defaults() -> None:
    assert parse() == Options()
    assert Options().to_json() == {}


def test_a_project_may_say_all(tmp_path: Path) -> None:
    found = recognise(written(tmp_path, {"pyproject.toml": ALL})).options
    limits = Limits(memory_limit=512 << 20, timeout=60)
    assert found == Options(3, 0.5, 100, "reject", limits, preload="project", start="exec")
    assert Options.from_json(json.loads(json.dumps(found.to_json()))) == found


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"concurency": 3}, "concurency is no option; there are: approval_on_timeout, approval_reminder, "),
        ({"concurrency": 0}, "concurrency must be a whole number of 1 or more, not 0"),
        ({"concurrency": True}, "concurrency must be a whole number of 1 or more, not True"),
        ({"concurrency": "3"}, "concurrency must be a whole number of 1 or more, not '3'"),
        ({"concurrency": 1 << 40}, "concurrency must be a whole number of 1 or more"),
        ({"max_waiting": 1.5}, "max_waiting must be a whole number of 1 or more, not 1.5"),
        ({"weight": 0}, "weight must be a number from 0.001 to 1000, not 0"),
        ({"weight": float("nan")}, "weight must be a number"),
        ({"concurrency_strategy": "wait"}, 'must be "enqueue" or "reject" or "cancel_running", not \'wait\''),
        ({"preload": ["project"]}, 'preload must be "framework" or "project"'),
        ({"profile": "alive"}, 'profile must be "documented" or "live", not \'alive\''),
        ({"python": 3.12}, 'python must be a version such as "3.12"'),
        ({"python": " "}, "python must be a version"),
        ({"start": "spawn"}, 'start must be "fork" or "exec", not \'spawn\''),
        ({"reuse": 0}, "reuse must be a whole number from 1 to 1000, not 0"),
        ({"reuse": 1001}, "reuse must be a whole number from 1 to 1000, not 1001"),
        ({"reuse": True}, "reuse must be a whole number from 1 to 1000, not True"),
        ({"limits": 7}, "limits must be a table, not 7"),
    ],
)
def test_what_is_no_option_is_told_with_file_and_key(table: dict[str, Any], words: str) -> None:
    with pytest.raises(ProjectError) as caught:
        Options.parse(table, FILE)
    assert caught.value.message.startswith(f"{FILE}: in [tool.windlass], ")
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("limits", "words"),
    [({"memory": 1}, "there is no limit 'memory'"), ({"timeout": -1}, "timeout must be a number of seconds above 0")],
)
def test_what_is_no_limit_is_told_with_its_table(limits: dict[str, Any], words: str) -> None:
    with pytest.raises(ProjectError) as caught:
        parse(limits=limits)
    assert caught.value.message.startswith(f"{FILE}: in [tool.windlass.limits], {words}")


def test_a_project_says_how_long_its_kickoffs_are_kept() -> None:
    found = Options.parse({"retention": {"kickoffs": 365, "journal": "forever"}}, FILE)
    assert found.retention == Retention(kickoffs=365, journal=0)
    assert Options.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_what_is_no_age_is_told_with_its_table() -> None:
    with pytest.raises(ProjectError, match=r"in \[tool.windlass.retention\], events must be a number of days"):
        Options.parse({"retention": {"events": -1}}, FILE)
