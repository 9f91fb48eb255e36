"""Whatever a pyproject.toml holds, it is a project or it is told why it is none."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.errors import ProjectError
from windlass.projects import recognise
from windlass.projects.checks import declared_project, line_of
from windlass.projects.kinds import declared
from windlass.projects.packages import document_of
from windlass_child.checks import packages

pytestmark = pytest.mark.unit


WORDS = ["", "work:run", "work", "crew", "flow", "flows", "crewai>=1", ":", ".:.", "../x", "a\0b", "a" * 300, "é"]
WRONG = st.recursive(
    st.booleans() | st.integers() | st.floats() | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "run_crew"]), inner, max_size=2),
    max_leaves=4,
)


def table(*names: str, **tables: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Of these members, each of which, as the table itself, may be of any kind."""
    members = dict.fromkeys(names, WRONG) | tables
    return st.fixed_dictionaries({}, optional=members) | WRONG


SCRIPTS = table("run_crew", "kickoff")
TOOLS = table(
    poetry=table("name", "dependencies", scripts=SCRIPTS),
    crewai=table("type", "definition"),
    windlass=table("entrypoint", "crew", "flow", "concurrency", "limits", "retries", "another"),
)
DOCUMENTS = st.fixed_dictionaries(
    {}, optional={"project": table("name", "dependencies", scripts=SCRIPTS), "tool": TOOLS}
)


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {toml(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    return str(value) if isinstance(value, float) else json.dumps(value)


def looked_at(text: str) -> None:
    with TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        (root / "pyproject.toml").write_text(text, "utf-8")
        recognised, found = declared_project(root)
        assert recognised is not None or found
        with contextlib.suppress(ProjectError):
            recognise(root)
        list(packages.findings(root))


@given(DOCUMENTS)
def test_any_document_is_a_project_or_told(document: dict[str, Any]) -> None:
    looked_at("\n".join(f"{name} = {toml(value)}" for name, value in document.items()))


@pytest.mark.parametrize("dependencies", ["5", '"crewai"', "[[], {}, 3]", "{}", "true", "1979-05-27"])
def test_dependencies_of_another_kind_are_none(dependencies: str) -> None:
    looked_at(f'tool = {{windlass = {{entrypoint = "work:run"}}}}\nproject = {{dependencies = {dependencies}}}\n')


def fault_of(folder: Path, text: str) -> ProjectError:
    (folder / "pyproject.toml").write_text(text, "utf-8")
    with pytest.raises(ProjectError) as caught:
        recognise(folder)
    return caught.value


@pytest.mark.parametrize("text", ["a = " + "[" * 3000, f"a = {'9' * 5000}"], ids=["deep", "long"])
def test_what_the_reader_of_toml_gives_up_at_is_told(tmp_path: Path, text: str) -> None:
    assert "can't be read: " in fault_of(tmp_path, text).message


def test_a_byte_order_mark_is_no_part_of_the_file(tmp_path: Path) -> None:
    text = '\ufeff[project]\nname = "tides"\n[tool.windlass]\npython = "3.12"\n'
    (tmp_path / "pyproject.toml").write_text(text, "utf-8")
    assert declared.read(tmp_path).document["project"] == {"name": "tides"}
    assert declared.read(tmp_path).text("tool", "windlass", "python") == "3.12"
    assert document_of(tmp_path / "pyproject.toml")["project"] == {"name": "tides"}
    assert line_of(tmp_path / "pyproject.toml", "project", "name") == 2


@pytest.mark.parametrize("chosen", ['crew = "../x"', 'flow = ":"', 'crew = "a.b:"', 'entrypoint = ".:."'])
def test_what_is_chosen_must_name_a_module(tmp_path: Path, chosen: str) -> None:
    fault = fault_of(tmp_path, f"[tool.windlass]\n{chosen}\n")
    assert f"the {chosen.partition(' ')[0]} " in fault.message
    assert " is not of the form module" in fault.message


def test_a_type_that_there_is_not_is_named_with_those_that_there_are(tmp_path: Path) -> None:
    fault = fault_of(tmp_path, '[tool.crewai]\ntype = "flows"\n')
    assert fault.message.endswith("[tool.crewai] type is 'flows', which is neither crew nor flow.")


def test_of_two_choices_the_one_that_counts_for_nothing_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.windlass]\nentrypoint = "work:run"\ncrew = "work.crew"\n')
    recognised, (found,) = declared_project(tmp_path)
    assert (recognised and recognised.project.kind) == "function"
    assert (found.code, found.level, found.line) == ("option", "warning", 3)
    assert "crew has no effect beside entrypoint" in found.message
