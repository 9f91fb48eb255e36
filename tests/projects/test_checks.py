"""What the files of a project tell, without running any of them."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projects_for_tests.making import written
from windlass.projects.checks import declared_project
from windlass.projects.findings import CODES, Finding, Level, from_json, in_order
from windlass.projects.kinds.json_crew import declared_crew, located
from windlass.projects.kinds.jsonc import JsoncError, parse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from windlass.projects.kinds.jsonc import Node

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "check.md").read_text("utf-8")
FUNCTION = '[tool.windlass]\nentrypoint = "work:run"\n'


def told(findings: Iterable[Finding]) -> list[tuple[str, str | None, int | None]]:
    return [(one.code, one.file, one.line) for one in findings]


def of_pyproject(folder: Path, text: str, *files: str) -> list[Finding]:
    _, found = declared_project(written(folder, {"pyproject.toml": text} | dict.fromkeys(files, "")))
    return found


def crew_of(folder: Path, crew: str, **agents: str) -> list[Finding]:
    files = {f"agents/{name}.jsonc": text for name, text in agents.items()}
    return declared_crew(written(folder, {"crew.jsonc": crew} | files), "crew.jsonc").findings


def test_the_page_has_every_code_and_what_it_means() -> None:
    assert dict(re.findall(r"^\| `([a-z]\w+)` \| (.+) \|$", PAGE, re.MULTILINE)) == CODES


def test_a_finding_goes_through_json_unchanged() -> None:
    found = Finding("option", Level.WARNING, "it is odd.", "pyproject.toml", 3, "Mend it.")
    assert from_json(json.loads(json.dumps(found.to_json()))) == found


def test_findings_are_told_once_by_file_and_line() -> None:
    first, second = Finding("a", Level.ERROR, "x", "a.py", 9), Finding("a", Level.ERROR, "x", "a.py", 10)
    nowhere = Finding("a", Level.ERROR, "x")
    assert in_order([second, first, nowhere, second]) == [nowhere, first, second]


def test_every_wrong_option_is_told_with_its_line(tmp_path: Path) -> None:
    found = of_pyproject(
        tmp_path,
        FUNCTION
        + 'concurency = 3\nweight = "heavy"\nstart = "fork"\n\n[tool.windlass.limits]\ntimeout = -1\nmemori = 2\n',
    )
    assert told(found) == [("option", "pyproject.toml", line) for line in (3, 4, 8, 9)]
    assert "concurency is no option" in found[0].message
    assert all(one.hint and str(tmp_path) not in one.message for one in found)


def test_options_are_told_beside_a_crew_that_is_not_there(tmp_path: Path) -> None:
    found = of_pyproject(tmp_path, '[tool.crewai]\ntype = "crew"\n[tool.windlass]\nweight = 0\n')
    assert told(found) == [("option", "pyproject.toml", 4), ("no_crew", "pyproject.toml", None)]


def test_two_crews_are_told_with_how_to_choose(tmp_path: Path) -> None:
    found = of_pyproject(tmp_path, '[tool.crewai]\ntype = "crew"\n', "src/one/crew.py", "src/two/crew.py")
    assert told(found) == [("several_crews", "pyproject.toml", None)]
    assert "[tool.windlass] crew" in found[0].hint


def test_a_pyproject_that_can_not_be_read_is_told_with_its_line(tmp_path: Path) -> None:
    assert told(of_pyproject(tmp_path, '[project]\nname = "a"\n[tool.windlass\n')) == [
        ("pyproject", "pyproject.toml", 3)
    ]


def test_a_folder_without_a_project_has_no_file_to_name(tmp_path: Path) -> None:
    recognised, found = declared_project(tmp_path)
    assert (recognised, told(found)) == (None, [("pyproject", None, None)])


def test_a_project_that_is_well_has_no_findings(tmp_path: Path) -> None:
    assert of_pyproject(tmp_path, FUNCTION + "concurrency = 3\nlimits.timeout = 5\n") == []


CREW = """\
{
  "agents": ["ann", "ghost"],
  "tasks": [
    {"name": "one", "description": "of {topic}", "agent": "ann"},
    {
      "agent": "anne",  // a typing error
      "context": ["one",
                  "three"],
    },
  ],
  "inputs": {
    "topic": 1,
    "year": 2026,
    "tone": "dry",
  },
}
"""
ANN = '{"role": "r", "goal": "a {tone} one"}'


def test_all_that_is_wrong_with_a_json_crew_is_told_at_once(tmp_path: Path) -> None:
    found = crew_of(tmp_path, CREW, ann=ANN)
    assert told(found) == [
        ("agent_file_missing", "crew.jsonc", 2),
        ("unknown_agent", "crew.jsonc", 6),
        ("unknown_context", "crew.jsonc", 8),
        ("unused_input", "crew.jsonc", 13),
    ]
    assert [one.level for one in found] == [Level.ERROR] * 3 + [Level.WARNING]


def test_inputs_may_be_read_by_code_that_is_called_before_a_kickoff(tmp_path: Path) -> None:
    crew = '{"agents": ["ann"], "inputs": {"year": 1}, "before_kickoff_callbacks": [{"python": "a.b"}]}'
    assert crew_of(tmp_path, crew, ann=ANN) == []


def test_every_file_that_can_not_be_read_is_told_with_its_line(tmp_path: Path) -> None:
    found = crew_of(tmp_path, '{\n "agents": [,]}', ann='{"role":\n\n oops}', bob="{}", cid='{"a": "')
    assert told(found) == [
        ("jsonc_syntax", "crew.jsonc", 2),
        ("jsonc_syntax", "agents/ann.jsonc", 3),
        ("jsonc_syntax", "agents/cid.jsonc", 1),
    ]
    assert "(column 13)" in found[0].message


def test_an_agent_outside_of_the_project_is_none(tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text("{}")
    found = crew_of(tmp_path / "crew", '{"agents": ["../../secret"]}', ann=ANN)
    assert told(found) == [("agent_file_missing", "crew.jsonc", 1)]


@pytest.mark.parametrize(
    "crew", ["[]", "3", '{"agents": 3, "tasks": {}, "inputs": []}', '{"tasks": [3, {"context": 4}]}']
)
def test_members_of_another_kind_are_left_to_crewai(tmp_path: Path, crew: str) -> None:
    assert crew_of(tmp_path, crew) == []


def test_what_crewai_says_is_told_once_and_with_its_line(tmp_path: Path) -> None:
    files = declared_crew(written(tmp_path, {"crew.jsonc": CREW, "agents/ann.jsonc": ANN}), "crew.jsonc")

    def placed(message: str) -> Finding | None:
        return located(Finding("declaration_invalid", Level.ERROR, message, "crew.jsonc"), files)

    assert placed("crew.jsonc: tasks[1] references agent 'anne' which does not match a loaded one") is None
    assert placed("crew.jsonc: tasks[1]: unsupported field(s): context") == Finding(
        "declaration_invalid", Level.ERROR, "tasks[1]: unsupported field(s): context", "crew.jsonc", 7
    )
    found = placed("agents/ann.jsonc: 'goal' is wrong")
    assert (found and (found.file, found.line)) == ("agents/ann.jsonc", 1)
    found = placed("crew.jsonc: tasks[9] is wrong")
    assert (found and found.line) == 1


def test_an_agent_whose_own_file_is_at_fault_is_not_said_to_be_unknown(tmp_path: Path) -> None:
    crew = '{"agents": ["ann"], "tasks": [{"agent": "ann"}]}'
    files = declared_crew(written(tmp_path, {"crew.jsonc": crew, "agents/ann.jsonc": "{"}), "crew.jsonc")
    words = "crew.jsonc: tasks[0] references agent '{}' which does not match a loaded agent definition"
    assert told(files.findings) == [("jsonc_syntax", "agents/ann.jsonc", 1)]
    assert located(Finding("declaration_invalid", Level.ERROR, words.format("ann"), "crew.jsonc"), files) is None
    assert located(Finding("declaration_invalid", Level.ERROR, words.format("bob"), "crew.jsonc"), files) is not None


def test_a_byte_order_mark_in_json_is_named(tmp_path: Path) -> None:
    (found,) = crew_of(tmp_path, "\ufeff{}")
    assert (found.code, found.line) == ("jsonc_syntax", 1)
    assert "byte order mark" in found.message


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
NOISE = st.lists(st.sampled_from([" ", "\n", "// c, ]\n", "/* } \n */"]), max_size=3).map("".join)


def plain(node: Node) -> Any:
    if isinstance(node.value, dict):
        return {name: plain(one) for name, one in node.value.items()}
    return [plain(one) for one in node.value] if isinstance(node.value, list) else node.value


@given(JSON, st.sampled_from([None, 1]))
def test_json_reads_as_the_standard_library_reads_it(value: object, indent: int | None) -> None:
    text = json.dumps(value, indent=indent)
    assert plain(parse(text)) == json.loads(text)


@given(st.lists(st.integers()), NOISE, st.booleans())
def test_comments_and_trailing_commas_are_nothing_but_lines(values: list[int], noise: str, trailing: bool) -> None:
    inner = f"{noise},{noise}".join(f"\n{value}" for value in values)
    node = parse(f"{noise}[{inner}{noise}{',' if trailing and values else ''}{noise}]{noise}")
    assert plain(node) == values
    each = 1 + 2 * noise.count("\n")
    assert [item.line for item in node.items] == [
        2 + noise.count("\n") + each * number for number in range(len(values))
    ]


@given(JSON, st.data())
def test_what_is_cut_off_is_refused_at_a_line_that_there_is(value: object, data: st.DataObject) -> None:
    text = json.dumps([value], indent=1)
    cut = text[: data.draw(st.integers(0, len(text) - 1))]
    with pytest.raises(JsoncError) as caught:
        parse(cut)
    assert 1 <= caught.value.line <= cut.count("\n") + 1


def test_what_is_too_deep_is_refused() -> None:
    with pytest.raises(JsoncError, match="too deep"):
        parse("[" * 100_000)


KEPT = """
import collections
SEEN, LIMITS, by_name = [], {"a": 1}, 3
names: dict[str, int] = {}
found = collections.defaultdict(list)

def run(topic):
    names[topic] = LIMITS["a"]
    found[topic].append(1)

def other(names):
    LIMITS = {}
    LIMITS["b"] = 2
    names["x"] = by_name
    seen = []
    seen.append(names)

class Tool:
    cache = {}
    def call(self):
        found["again"] = [name for name in names]
        self.cache["x"] = 1
"""


@pytest.mark.parametrize(("reuse", "expected"), [("reuse = 5\n", [("kept_data", 8)]), ("", [])])
def test_a_module_that_keeps_data_is_a_warning_with_reuse(
    tmp_path: Path, reuse: str, expected: list[tuple[str, int]]
) -> None:
    options = f'[tool.windlass]\nentrypoint = "work:run"\n{reuse}'
    recognised, found = declared_project(written(tmp_path, {"pyproject.toml": options, "work.py": KEPT}))
    assert recognised is not None
    lines = [(one.code, one.line) for one in found]
    assert lines[:1] == expected
    assert all(one.level is Level.WARNING and one.file == "work.py" for one in found)
    assert [one.message.split()[3] for one in found] == (["names,", "found,"] if reuse else [])


def test_a_module_of_many_names_is_searched_for_kept_data_in_bounded_time(tmp_path: Path) -> None:
    """The time grew with the number of names times the size of the functions: 40 s for these 470 KB."""
    names = "".join(f"v{number} = []\n" for number in range(20_000))
    code = f"{names}def run():\n" + "".join(f"    a({number})\n" for number in range(20_000)) + "    v7.append(1)\n"
    options = '[tool.windlass]\nentrypoint = "work:run"\nreuse = 5\n'
    before = time.thread_time()
    _, found = declared_project(written(tmp_path, {"pyproject.toml": options, "work.py": code}))
    assert time.thread_time() - before < 10
    assert [one.message.split()[3] for one in found] == ["v7,"]
