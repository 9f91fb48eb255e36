"""docs/development/crewai.md lists the names that Windlass replaces, and no module sets one that is not listed."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from windlass_child.crewai.capabilities import CAPABILITIES
from windlass_child.replacements import NAMES, STAYS

pytestmark = pytest.mark.unit


ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "development" / "crewai.md"
CHILD = ROOT / "src" / "windlass_child"
ROW = re.compile(r"^\| `(.+?)` \| (.+?) \| (\S+) \| (yes|no) \| `(\S+?)::(\S+?)` \|$", re.MULTILINE)

OF_OBJECTS = {
    "checks/clock.py": {"setattr(owner, name, later)"},  # in a process that only checks a project
    "crewai/bus.py": {f"BUS.{name}" for name in ("_sync_executor", "_loop", "_loop_thread")}
    | {f"BUS.{name}" for name in ("_executor_initialized", "_has_pending_events")},
    "crewai/events.py": {"handler.is_first_time", "listener._listeners_setup", "telemetry._initialized"}
    | {"telemetry.ready", "telemetry.trace_set"},
    "crewai/guard.py": {"Aborted.__module__", "report.questions.abort"},
    "crewai/inputs.py": {"found.setdefault(name, Input(name, required=False)).default"},
    "crewai/persons.py": {
        "context._finalize_called",
        "context.messages",
        "executor.state.messages",
        "setattr(context.state, name, getattr(fresh, name))",
    },  # as crewai's own provider does
    "crewai/prewarm.py": {
        "receiver.journal",
        "setattr(llm, name, OpenAI(api_key='none', base_url=ADDRESS, http_client=client))",
    },
    "frameworks.py": {"spec.loader.exec_module"},  # of the import that is awaited
    "journal/crew.py": {"step.output", "step.skipped", "task.agent", "task.output"},
    "journal/flow_parts.py": {"object.__setattr__(state_of(self._flow), '__pydantic_fields_set__', set(held))"},
    "journal/tasks.py": {"output.name", "output.description", "output.expected_output"},
    "journal/value_codec.py": {"object.__setattr__(model, name, None)", "object.__setattr__(value, name, item)"},
    "kinds/crew.py": {"fault.message"},
    "kinds/importing.py": {"sys.path"},
    "process/child.py": {"guard.daemon", "inbox.journal.has_files", "sys.argv"},
    "process/error_text.py": {"one.stack"},
    "process/own_package.py": {"sys.executable"},
    "process/preload.py": {"sys.executable"},
    "process/process_env.py": {"tempfile.tempdir"},
    "process/report.py": {"timer.daemon"},
    "reuse/runs.py": {"inbox.stopping.lease"},
}
"""Attributes of objects that a module sets, by file: the state of an object, and no name that other code calls."""
RESETS = {"crewai/shared_state.py", "reuse/baseline.py", "replacements.py"}
"""Modules that put attributes back to what they were, and the module of the replacements."""


def set_in(file: Path) -> set[str]:
    """Returns the attributes that the code sets on other objects than `self`."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(ast.unparse(node))
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in SETTERS:
            found.add(ast.unparse(node))
    return {one for one in found if not one.startswith("self.")}


SETTERS = {"setattr", "delattr", "__setattr__"}


def test_no_module_sets_a_name_of_another_package() -> None:
    files = {file.relative_to(CHILD).as_posix(): set_in(file) for file in CHILD.rglob("*.py")}
    assert {name: found for name, found in files.items() if found and name not in RESETS} == OF_OBJECTS


def test_the_page_lists_the_replaced_names() -> None:
    rows = ROW.findall(PAGE.read_text("utf-8"))
    listed = [(name, stays) for name, _, _, stays, _, _ in rows]
    assert listed == [(key, "yes" if end is STAYS else "no") for key, end in NAMES.items()]


def test_the_page_explains_each_promise() -> None:
    text = PAGE.read_text("utf-8")
    explained = re.findall(r"^\| ([a-z ]+) \| [^|]+ \|$", text, re.MULTILINE)[1:]
    assert set(explained) == {promise for _, promises, *_ in ROW.findall(text) for promise in promises.split(", ")}
    assert len(explained) == len(set(explained))


def test_each_name_has_a_test_that_exists() -> None:
    for *_, file, test in ROW.findall(PAGE.read_text("utf-8")):
        assert f"def {test}(" in (ROOT / file).read_text("utf-8")


def test_each_capability_is_one_of_crewai() -> None:
    used = {capability for _, _, capability, *_ in ROW.findall(PAGE.read_text("utf-8"))}
    assert used <= {one.name for one in CAPABILITIES} | {"-"}
