"""Crews and flows give the same results, errors and events in kickoffs as in plain crewai."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from projects_for_tests.driver import DrivenZygote
from projects_for_tests.environments import chosen
from projects_for_tests.offline import OfflineModel
from windlass.offline_model.app import model_environment
from windlass_child.crewai.adapter import QUIET
from windlass_child.protocol.messages import Event, Failed, Project, Succeeded

if TYPE_CHECKING:
    from projects_for_tests.driver import DrivenChild

APP = Path(__file__).parents[1] / "projects_for_tests" / "projects" / "plain_crewai" / "app.py"
DEADLINE = 300.0
PYTHONS = {"newest": Path(sys.executable)} | {one.name: one.python for one in chosen()}

INTENDED = {
    "human_input": (
        "human answers",
        "EOFError: EOF when reading a line",
        "Approve the result of the task a, or describe",
    )
}
"""For each case that differs: the promise, the error in plain crewai, the beginning of the question."""

AT_ONCE = {"async_kickoffs", "async_tasks", "crews_in_threads", "memory"}
"""Cases whose code runs in several threads at once, so that the order of events is not the same in two runs."""
CHUNKS = "llm_stream_chunk"
"""Chunks of an answer are joined in the events of a kickoff."""

Seen = dict[str, list[Any]]
Run = dict[str, Any]


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in PYTHONS])
def test_a_run_is_that_of_plain_crewai(name: str, tmp_path: Path) -> None:
    with OfflineModel() as model:
        environment = model_environment({}, f"http://127.0.0.1:{model.address[1]}")  # for embeddings
        plain = plain_runs(PYTHONS[name], tmp_path / "plain", environment)
        differing = differences(PYTHONS[name], plain, tmp_path, environment)
    assert differing == {}


def differences(python: Path, plain: dict[str, Run], tmp_path: Path, environment: dict[str, str]) -> dict[str, Any]:
    """Runs all cases in kickoffs. Returns the differences by case."""
    assert len(plain) > 20
    root, record = tmp_path / "project", tmp_path / "record"
    for folder in (root, record):
        folder.mkdir()
    shutil.copy(APP, root)
    differing = {}
    with DrivenZygote(tmp_path / "zygote", "crewai", command=[str(python)]) as zygote:
        zygote.ready()
        for case, expected in plain.items():
            child = zygote.fork()
            project = Project(expected["kind"], str(root), f"app:{case}")
            child.run(
                project,
                tmp_path / "runs" / case,
                inputs=expected["inputs"],
                environment={**environment, "RECORD": str(record / case)},
            )
            if found := compared(case, expected, child, record / case):
                differing[case] = found
            zygote.leave_children()
    return differing


def plain_runs(python: Path, folder: Path, environment: dict[str, str]) -> dict[str, Run]:
    """Runs all cases in one process, without any code of Windlass. Returns the results and what was seen, by case."""
    for name in ("home", "storage", "record"):
        (folder / name).mkdir(parents=True)
    shutil.copy(APP, folder)
    places = {"HOME": str(folder / "home"), "CREWAI_STORAGE_DIR": str(folder / "storage"), "PATH": os.defpath}
    own = {**QUIET, **environment, **places, "RECORD": str(folder / "record")}
    done = subprocess.run(
        [python, "app.py"],
        cwd=folder,
        env=own,
        check=False,
        timeout=DEADLINE,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    results = sorted((folder / "record").glob("*.json"))
    return {path.stem: json.loads(path.read_text()) | {"seen": seen(path.with_suffix(""))} for path in results}


def seen(record: Path) -> Seen:
    """Returns the events and the notes of the project's code, by their kind, each in order."""
    found: Seen = {}
    for kind, text in map(json.loads, record.read_text().splitlines() if record.exists() else ()):
        found.setdefault(kind, []).append(text)
    return found


def compared(case: str, plain: Run, child: DrivenChild, record: Path) -> dict[str, Any]:
    """Returns the differences between a kickoff and plain crewai: (in a kickoff, in plain crewai), by their kind."""
    if case in INTENDED:
        _, error, question = INTENDED[case]
        assert plain["error"] == error
        asked = child.asked()
        return {} if asked.question.startswith(question) else {"question": (asked, question)}
    answer = child.answer()
    child.exited()
    ours, theirs = seen(record), plain["seen"]
    pairs = {kind: (ours.get(kind, []), theirs.get(kind, [])) for kind in ours | theirs}
    events = theirs.get("event", [])
    pairs["reported"] = (reported(child, events), [one for one in events if one != CHUNKS])
    if case in AT_ONCE:
        pairs = {kind: (sorted(mine, key=str), sorted(other, key=str)) for kind, (mine, other) in pairs.items()}
    return {kind: pair for kind, pair in (pairs | result(answer, plain)).items() if pair[0] != pair[1]}


def reported(child: DrivenChild, types: list[str]) -> list[str]:
    """Returns the types of crewai's events that the kickoff reported."""
    return [one.type for one in child.talk.of(Event) if one.type in types and one.type != CHUNKS]


def result(answer: object, plain: Run) -> dict[str, Any]:
    if not isinstance(answer, Succeeded):
        message = answer.message if isinstance(answer, Failed) else str(answer)
        return {} if "error" in plain and message.startswith(plain["error"]) else {"error": (message, plain)}
    if "error" in plain:
        return {"error": (answer, plain["error"])}
    structured = None if answer.structured is None else json.loads(answer.structured)
    if plain["kind"] == "function":
        return {"result": (structured, plain["result"])}
    model = plain.get("model")
    return {"result": (answer.output, plain["result"])} | ({"model": (structured, model)} if model else {})
