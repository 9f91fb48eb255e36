from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from projects_for_tests.making import written
from windlass.errors import ProjectError
from windlass.projects import Recognised, recognise
from windlass.projects.kinds import KINDS, entrypoint_options
from windlass_child.frameworks import FRAMEWORKS
from windlass_child.kinds import KINDS as CHILD_KINDS
from windlass_child.protocol.messages import Project

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.unit


CREW = '[project]\nname = "my-crew"\n[tool.crewai]\ntype = "crew"\n'


def project(folder: Path, pyproject: str, *files: str) -> Path:
    return written(folder, {"pyproject.toml": pyproject} | dict.fromkeys(files, ""))


def fault_of(path: Path) -> ProjectError:
    with pytest.raises(ProjectError) as caught:
        recognise(path)
    return caught.value


def test_a_function_is_named_by_its_entrypoint(tmp_path: Path) -> None:
    path = project(tmp_path, '[project]\nname = "sums"\n[tool.windlass]\nentrypoint = "sums.work:add"\n')
    assert recognise(path) == Recognised(Project("function", str(path), "sums.work:add"), None, "sums")


@pytest.mark.parametrize(
    ("dependency", "preload"),
    [("crewai>=1.15", "crewai"), ("crewai[tools]", "crewai"), ("crewai-tools", None), ("langgraph", None)],
)
def test_a_function_that_needs_crewai_gets_it_preloaded(tmp_path: Path, dependency: str, preload: str | None) -> None:
    path = project(tmp_path, f'[project]\ndependencies = ["{dependency}"]\n[tool.windlass]\nentrypoint = "a:b"\n')
    assert recognise(path).preload == preload


def test_a_checkout_is_recognised_by_the_name_of_its_deployment(tmp_path: Path) -> None:
    path = project(tmp_path / ("5" * 64), '[tool.crewai]\ntype = "crew"\n', "src/my_crew/crew.py", "src/other/crew.py")
    assert recognise(path, "my-crew").project.entrypoint.startswith("my_crew")
    assert recognise(path, "my-crew").name == "my-crew"


def test_a_project_without_a_name_is_called_after_its_folder(tmp_path: Path) -> None:
    path = project(tmp_path / "sums", '[tool.windlass]\nentrypoint = "a:b"\n')
    assert recognise(path).name == "sums"


def test_an_entrypoint_that_names_no_function_is_told(tmp_path: Path) -> None:
    fault = fault_of(project(tmp_path, '[tool.windlass]\nentrypoint = "work.py"\n'))
    assert "the entrypoint 'work.py'" in fault.message
    assert "not of the form module:function" in fault.message


@pytest.mark.parametrize("file", ["src/my_crew/crew.py", "my_crew/crew.py"])
def test_a_crew_is_found_in_the_package_that_bears_the_name_of_the_project(tmp_path: Path, file: str) -> None:
    path = project(tmp_path, CREW, file, "src/other/crew.py")
    assert recognise(path) == Recognised(Project("crew", str(path), "my_crew.crew"), "crewai", "my-crew")


def test_the_command_of_crewais_templates_names_the_package_first(tmp_path: Path) -> None:
    script = '[project.scripts]\nrun_crew = "other.main:run"\n'
    path = project(tmp_path, CREW + script, "src/other/crew.py", "src/my_crew/crew.py")
    assert recognise(path).project.entrypoint == "other.crew"


def test_poetrys_tables_are_read_too(tmp_path: Path) -> None:
    pyproject = '[tool.poetry]\nname = "old"\n[tool.poetry.scripts]\nrun_crew = "old.main:run"\n'
    assert recognise(project(tmp_path, pyproject, "src/old/crew.py")).project.entrypoint == "old.crew"


@pytest.mark.parametrize(
    ("file", "module"), [("src/unnamed/crew.py", "unnamed.crew"), ("crew.py", "crew"), ("src/crew.py", "crew")]
)
def test_the_only_crew_is_found_whatever_its_package(tmp_path: Path, file: str, module: str) -> None:
    assert recognise(project(tmp_path, CREW, file)).project.entrypoint == module


def test_a_chosen_crew_is_taken(tmp_path: Path) -> None:
    path = project(tmp_path, CREW + '[tool.windlass]\ncrew = "a.b:C"\n', "src/one/crew.py", "src/two/crew.py")
    assert recognise(path).project.entrypoint == "a.b:C"


def test_more_than_one_crew_is_told_with_how_to_choose(tmp_path: Path) -> None:
    fault = fault_of(project(tmp_path, CREW, "src/one/crew.py", "src/two/crew.py"))
    assert fault.message == f"{tmp_path} has more than one crew: one.crew, two.crew."
    assert fault.hint == 'Choose one in pyproject.toml: [tool.windlass] crew = "one.crew"'


def test_a_crew_that_is_not_there_is_told_with_where_it_was_looked_for(tmp_path: Path) -> None:
    fault = fault_of(project(tmp_path, CREW, "src/my_crew/main.py"))
    assert fault.message == f"no crew found in {tmp_path}: looked for my_crew/crew.py, there and in src."
    assert "[tool.windlass] crew" in fault.hint


def test_a_folder_without_pyproject_is_told(tmp_path: Path) -> None:
    fault = fault_of(tmp_path)
    assert fault.message == f"there is no pyproject.toml and no Python file in {tmp_path}."
    assert "[tool.crewai]" in fault.hint


def test_a_pyproject_that_tells_of_no_crew_is_told(tmp_path: Path) -> None:
    fault = fault_of(project(tmp_path, '[project]\nname = "library"\n'))
    assert fault.message.startswith(
        f"{tmp_path / 'pyproject.toml'} declares no crew, and {tmp_path} has no Python file"
    )


def test_a_pyproject_that_is_no_toml_is_told_with_the_line(tmp_path: Path) -> None:
    assert "at line 1" in fault_of(project(tmp_path, "[project\n")).message


@pytest.mark.parametrize("odd", ["tool = 1\n", "[tool]\nwindlass = []\n", "[tool.windlass]\nentrypoint = 7\n"])
def test_tables_of_another_shape_are_no_crew(tmp_path: Path, odd: str) -> None:
    assert "declares no crew" in fault_of(project(tmp_path, odd)).message


def test_what_is_no_folder_is_told(tmp_path: Path) -> None:
    assert fault_of(tmp_path / "missing").message == f"{tmp_path / 'missing'} is not a folder."


FLOW = CREW.replace('"crew"', '"flow"')


def test_a_flow_is_found_in_the_module_of_its_command(tmp_path: Path) -> None:
    script = '[project.scripts]\nkickoff = "begin.start:kickoff"\nplot = "work.plot:plot"\n'
    path = project(tmp_path, FLOW + script, "src/begin/start.py", "src/my_crew/main.py")
    assert recognise(path) == Recognised(Project("flow", str(path), "begin.start"), "crewai", "my-crew")


@pytest.mark.parametrize(
    ("files", "module"),
    [
        (("src/my_crew/main.py", "src/other/main.py"), "my_crew.main"),
        (("main.py",), "main"),
        (("src/unnamed/main.py", "crew.json"), "unnamed.main"),
    ],
    ids=["by name", "flat", "the only one"],
)
def test_a_flow_without_a_command_is_in_a_main_module(tmp_path: Path, files: tuple[str, ...], module: str) -> None:
    assert recognise(project(tmp_path, FLOW, *files)).project.entrypoint == module


def test_a_chosen_flow_is_taken(tmp_path: Path) -> None:
    path = project(tmp_path, FLOW + '[tool.windlass]\nflow = "a.b:C"\n', "main.py")
    assert recognise(path).project == Project("flow", str(path), "a.b:C")


def test_a_flow_that_is_not_there_or_more_than_one_are_told(tmp_path: Path) -> None:
    missing = fault_of(project(tmp_path / "missing", FLOW))
    assert missing.message.endswith(": looked for my_crew/main.py, there and in src.")
    several = fault_of(project(tmp_path / "several", FLOW, "src/one/main.py", "src/two/main.py"))
    assert several.message.endswith(" has more than one flow: one.main, two.main.")
    assert several.hint == 'Choose one in pyproject.toml: [tool.windlass] flow = "one.main"'


JSON_CREW = '[project]\nname = "tides"\n[tool.crewai]\ntype = "crew"\n'


@pytest.mark.parametrize(
    ("pyproject", "file"),
    [
        (JSON_CREW + 'definition = "crews/tides.json"\n', "crews/tides.json"),
        (JSON_CREW, "crew.jsonc"),
        ('[project]\nname = "tides"\n', "crew.json"),
    ],
)
def test_a_crew_is_declared_in_the_file_that_is_named_or_beside(tmp_path: Path, pyproject: str, file: str) -> None:
    path = project(tmp_path, pyproject, file)
    assert recognise(path) == Recognised(Project("json_crew", str(path), file), "crewai", "tides")


def test_a_json_crew_needs_no_pyproject(tmp_path: Path) -> None:
    path = written(tmp_path / "tides", {"crew.jsonc": "{}"})
    assert recognise(path) == Recognised(Project("json_crew", str(path), "crew.jsonc"), "crewai", "tides")


def test_a_classic_crew_with_a_stray_crew_file_stays_one(tmp_path: Path) -> None:
    script = '[project.scripts]\nrun_crew = "my_crew.main:run"\n'
    path = project(tmp_path, CREW + script, "src/my_crew/crew.py", "crew.jsonc")
    assert recognise(path).project.kind == "crew"


def test_a_flow_is_declared_in_the_file_that_is_named(tmp_path: Path) -> None:
    path = project(tmp_path, FLOW + 'definition = "src/my_crew/flow.yaml"\n', "src/my_crew/flow.yaml", "crew.jsonc")
    assert recognise(path).project == Project("declarative_flow", str(path), "src/my_crew/flow.yaml")


@pytest.mark.parametrize(
    ("pyproject", "words"),
    [
        (JSON_CREW + 'definition = "gone.jsonc"\n', "names no file."),
        (JSON_CREW + 'definition = "../crew.jsonc"\n', "is not in the project."),
        (JSON_CREW + 'definition = "/etc/hosts"\n', "is not in the project."),
        (JSON_CREW + 'definition = "pyproject.toml"\n', "names no file that declares a crew."),
        (FLOW + 'definition = "crew.jsonc"\n', "names no file that declares a flow."),
    ],
)
def test_a_definition_that_can_not_be_one_is_told(tmp_path: Path, pyproject: str, words: str) -> None:
    fault = fault_of(project(tmp_path / "project", pyproject, "crew.jsonc"))
    assert fault.message.startswith("[tool.crewai] definition = ")
    assert fault.message.endswith(words)


def test_every_option_that_names_an_entrypoint_is_an_option_and_another_name_is_none(tmp_path: Path) -> None:
    path = project(tmp_path, '[tool.windlass]\nentrypoint = "a:b"\ncrew = "c"\nflow = "d"\n')
    assert recognise(path).project == Project("function", str(path), "a:b")
    fault = fault_of(project(tmp_path, '[tool.windlass]\ncrews = "c"\n'))
    assert " concurrency, concurrency_strategy, crew, entrypoint, flow, " in fault.message


def test_the_hint_names_every_way_to_declare_a_project(tmp_path: Path) -> None:
    hint = fault_of(project(tmp_path, '[project]\nname = "library"\n')).hint
    assert all(kind.declared_by in hint for kind in KINDS)


def test_the_server_and_the_child_know_the_same_kinds() -> None:
    assert {kind.name for kind in KINDS} == CHILD_KINDS.keys()
    assert {kind.framework for kind in CHILD_KINDS.values()} <= {None, *FRAMEWORKS}


def test_each_kind_has_its_own_name_and_option() -> None:
    names = [kind.name for kind in KINDS]
    assert len(set(names)) == len(names)
    assert len(set(entrypoint_options())) == len(entrypoint_options())
