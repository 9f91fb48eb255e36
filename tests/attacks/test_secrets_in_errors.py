"""A crew's error, trace and warnings hold the values of its variables, whatever these are called."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from projects_for_tests.making import Bench, Heard, function_project, running_bench

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

VARIABLES = {
    "DATABASE_URL": "postgresql://app:pw9!@db.example.com/app",
    "SENTRY_DSN": "https://0123456789abcdef0123456789abcdef@o1.ingest.example.com/5",
    "SIGNING": "x9K2mQ7vT4z8",
}
FAIL = """
import os

def run(what: str):
    if what == "return":
        print(os.environ["SIGNING"])
        return os.environ["SIGNING"]
    try:
        raise ValueError(os.environ["DATABASE_URL"])
    except ValueError as error:
        raise RuntimeError(f"pw9! {os.environ['SENTRY_DSN']} {os.environ['SIGNING']}") from error
"""


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with running_bench(tmp_path / "scratch") as bench:
        yield bench


async def test_an_error_and_its_trace_hold_no_value_of_a_variable(bench: Bench, tmp_path: Path) -> None:
    heard = Heard()
    project = function_project(tmp_path / "project", FAIL)
    outcome = await bench.run(project, {"what": "fail"}, VARIABLES, heard)
    assert outcome.error == "RuntimeError: [secret] [secret] [secret] (work.py:11)"
    assert "ValueError: [secret]" in outcome.trace
    assert not [value for value in VARIABLES.values() if value in repr([outcome, heard.all])]


async def test_results_and_printed_lines_are_as_the_code_gave_them(bench: Bench, tmp_path: Path) -> None:
    """docs/concepts/projects.md says so: a result that happens to hold such a value is not changed."""
    heard = Heard()
    project = function_project(tmp_path / "project", FAIL)
    outcome = await bench.run(project, {"what": "return"}, VARIABLES, heard)
    assert outcome.output == VARIABLES["SIGNING"]
    assert heard.lines("stdout") == [VARIABLES["SIGNING"]]
