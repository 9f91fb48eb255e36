"""The small project on the page of each kind is what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from projects_for_tests.making import written

if TYPE_CHECKING:
    from projects_for_tests.making import Bench

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("crewai")]

DOCS = Path(__file__).parents[2] / "docs" / "how-to"
FILE = re.compile(r"^```\w+\n(?:#|//) (\S+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
OFFLINE = {"OPENAI_API_KEY": "any", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}


def project_of(page: str, folder: Path) -> Path:
    return written(folder / "project", dict(FILE.findall((DOCS / page).read_text("utf-8"))))


@pytest.mark.parametrize(
    ("page", "kind", "inputs", "tasks"),
    [
        ("crews.md", "crew", ({"draught", "harbour"}, set()), ["high_water", "advice"]),
        ("json-crews.md", "crew", ({"harbour"}, {"draught"}), ["high_water", "advice"]),
        ("flows.md", "flow", (set(), {"harbour", "high_water"}), ["look", "advise"]),
        ("declarative-flows.md", "flow", ({"harbour"}, {"draught"}), ["look", "advise"]),
        ("functions.md", "function", ({"harbour"}, {"draught"}), ["run"]),
    ],
)
async def test_its_inputs_and_tasks_are_those_that_are_told(
    bench: Bench, tmp_path: Path, page: str, kind: str, inputs: tuple[set[str], set[str]], tasks: list[str]
) -> None:
    found = await bench.inspect(project_of(page, tmp_path), OFFLINE)
    required, optional = inputs
    assert found.kind == kind
    assert set(found.inputs_schema["properties"]) == required | optional
    assert set(found.inputs_schema["required"]) == required
    assert [task.name for task in found.tasks] == tasks


@pytest.mark.parametrize(
    ("page", "inputs", "output"),
    [
        ("declarative-flows.md", {"harbour": "Brest"}, "wait for high water at Brest"),
        ("functions.md", {"harbour": "Brest", "draught": 6}, '{"harbour": "Brest", "may_come_in": false}'),
    ],
)
async def test_those_that_ask_no_model_give_what_they_should(
    bench: Bench, tmp_path: Path, page: str, inputs: dict[str, Any], output: str
) -> None:
    outcome = await bench.run(project_of(page, tmp_path), inputs)
    assert (outcome.state, outcome.output) == ("SUCCESS", output)
