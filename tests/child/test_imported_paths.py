"""Paths that modules keep since they were imported in a zygote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from child.conftest import CREWAI
from projects_for_tests.driver import DrivenZygote, value_of
from projects_for_tests.making import function_project
from windlass_child.protocol.messages import Preload, Project, Ready

if TYPE_CHECKING:
    from pathlib import Path

LEFT = """
import sys
from windlass_child.process import imported_paths

def run(zygote, names):
    ours = vars(imported_paths)
    found = imported_paths.Search(zygote + "/").search(list(sys.modules.values()))
    found = [one for one in found if one.owner is not ours and one.owner not in ours["_found"]]
    places = {}
    for name in names:
        module, _, attribute = name.partition(":")
        value = sys.modules[module]
        for part in attribute.split("."):
            value = getattr(value, part)
        places[name] = [type(value).__name__, str(value)]
    return {"left": [one.variable for one in found], "places": places}
"""
KEPT = """
import os, tempfile
from pathlib import Path

HOME = Path.home()
OUT = Path.cwd() / "out"
TEXT = f"sqlite:///{tempfile.gettempdir()}/x.db"
BOTH = (os.getcwd(), HOME, 1)
NESTED = {"a": [{"b": os.path.expanduser("~/models")}]}
OTHER = "/usr/share"


class Settings:
    cache: Path = HOME / ".cache"

    def __init__(self):
        self.place = HOME / "place"

    @classmethod
    def load(cls, place=HOME / "default", *, named=str(HOME)):
        return [place, named]


SETTINGS = Settings()


def run():
    return [
        str(one)
        for one in (
            HOME, OUT, TEXT, *BOTH, NESTED["a"][0]["b"], OTHER, Settings.cache, SETTINGS.place, *Settings.load()
        )
    ]
"""
CREWAIS = {
    "crewai_core.settings:DEFAULT_CONFIG_PATH": "home/.config/crewai/settings.json",
    "crewai.skills.cache:_CACHE_ROOT": "home/.crewai/skills",
    "chromadb.utils.embedding_functions.onnx_mini_lm_l6_v2:ONNXMiniLM_L6_V2.DOWNLOAD_PATH": (
        "home/.cache/chroma/onnx_models/all-MiniLM-L6-v2"
    ),
    "crewai.rag.chromadb.constants:DEFAULT_STORAGE_PATH": "storage",
}


@CREWAI
def test_no_path_of_crewais_zygote_is_left_in_a_child(tmp_path: Path) -> None:
    project = Project("function", str(function_project(tmp_path / "project", LEFT)), "work:run")
    with DrivenZygote(tmp_path / "zygote", "crewai") as zygote:
        assert isinstance(zygote.ready(), Ready)
        child = zygote.fork()
        inputs = {"zygote": str(tmp_path / "zygote"), "names": list(CREWAIS)}
        child.run(project, tmp_path / "run", inputs=inputs)
        found: dict[str, Any] = value_of(child.answer())
    assert found["left"] == []
    assert {name: place for name, (_, place) in found["places"].items()} == {
        name: str(tmp_path / "run" / place) for name, place in CREWAIS.items()
    }
    assert found["places"]["crewai.skills.cache:_CACHE_ROOT"][0] == "PosixPath"


def test_the_paths_of_a_preloaded_project_are_in_the_folder_of_each_run(tmp_path: Path) -> None:
    project = Project("function", str(function_project(tmp_path / "project", KEPT)), "work:run")
    order = Preload(project, {"HOME": str(tmp_path / "zygote" / "home")})
    with DrivenZygote(tmp_path / "zygote", order=order) as zygote:
        assert isinstance(zygote.ready(), Ready)
        for name, more in (("one", {}), ("two", {"HOME": "/of/the/crew"})):
            child, run = zygote.fork(), tmp_path / name
            child.run(project, run, environment=more)
            home = more.get("HOME", f"{run}/home")
            assert value_of(child.answer()) == [
                home, str(run / "work" / "out"), f"sqlite:///{run}/tmp/x.db", f"{run}/work", home, "1",
                f"{home}/models", "/usr/share", f"{home}/.cache", f"{home}/place", f"{home}/default", home,
            ]  # fmt: skip
