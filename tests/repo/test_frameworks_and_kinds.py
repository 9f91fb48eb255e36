"""A framework is named in its adapters and kinds alone, so that another one or another version changes nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from windlass.projects.kinds import KINDS
from windlass_child.frameworks import FRAMEWORKS

pytestmark = pytest.mark.unit


SRC = Path(__file__).parents[2] / "src"
ADAPTERS = [
    *(f"windlass_child/{framework}" for framework in FRAMEWORKS),
    "windlass_child/frameworks.py",
    "windlass_child/replacements.py",
    "windlass_child/results.py",
    "windlass_child/journal",
    "windlass_child/kinds",
    "windlass/api/crewai_cli.py",
    "windlass/cli/login_crewai.py",
    "windlass/dashboard/call_examples.py",  # one of its tools is a client
    "windlass/offline_model",  # it answers the prompts of a framework
    "windlass/projects/kinds",
]
NAMES = [*FRAMEWORKS, *(kind.name for kind in KINDS if "_" in kind.name)]
"""A name of one word, such as "crew", is a word of the product too."""
PROGRAM = re.compile(r"crewai_cli|CrewaiCli|crewai_plus|login.crewai|crewai deploy|docs/how-to/crewai-cli")
"""Words about the command line of crewai, which is a client of the server."""


@pytest.mark.parametrize("name", NAMES)
def test_it_is_named_by_adapters_and_kinds_alone(name: str) -> None:
    others = [path for path in SRC.rglob("*.py") if not path.relative_to(SRC).as_posix().startswith(tuple(ADAPTERS))]
    assert len(others) > 100
    assert [str(path) for path in others if name in PROGRAM.sub("", path.read_text("utf-8"))] == []


@pytest.mark.parametrize("place", ADAPTERS)
def test_every_place_of_the_list_exists(place: str) -> None:
    assert (SRC / place).exists()
