"""The kind that docs/development/adding-a-kind.md adds passes the conformance suite, and is all that it takes."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

import windlass_child
from child import test_conformance as suite
from projects_for_tests.making import PROJECTS, PYTHON, Bench, written
from windlass.errors import ProjectError
from windlass.projects import recognise
from windlass.projects.kinds import KINDS, Kind
from windlass.runner import Runner, RunnerConfig
from windlass.runner.prepared_interpreters import Prepared
from windlass.runner.run_spec import machine_environment

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

PAGE = Path(__file__).parents[2] / "docs/development/adding-a-kind.md"
BLOCKS = dict(re.findall(r"^```\w+\n# (\S+)\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE))

globals().update({name: test for name, test in vars(suite).items() if name.startswith("test_")})

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("functions"),
    pytest.mark.parametrize("kind", ["script"]),
]


@pytest.fixture(scope="module", autouse=True)
def _registered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    path = tmp_path_factory.mktemp("server") / "script.py"
    path.write_text(BLOCKS["src/windlass/projects/kinds/script.py"])
    spec = spec_from_file_location("script", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    kind: Kind = module.KIND
    KINDS.append(kind)
    yield
    KINDS.remove(kind)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def bench(scratch: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bench]:
    """A runner whose children have the new kind."""
    program = tmp_path_factory.mktemp("child") / "windlass_child"
    shutil.copytree(Path(windlass_child.__file__).parent, program, ignore=shutil.ignore_patterns("__pycache__"))
    (program / "kinds/script.py").write_text(BLOCKS["src/windlass_child/kinds/script.py"])
    with (program / "kinds/__init__.py").open("a") as registry:
        registry.write('\nKINDS["script"] = Kind(None)\n')
    config = replace(RunnerConfig(), prepared=Prepared(program=program / "__main__.py"))
    environment = machine_environment(os.environ)  # noqa: TID251 - as windlass.config does it
    runner = Runner(scratch, environment, config)
    await runner.start()
    yield Bench(runner, PYTHON)
    await runner.stop()


@pytest.fixture
def project(kind: str, tmp_path: Path) -> Path:
    code = "import deeds\n\n\ndef main(inputs):\n    return deeds.do(inputs)\n"
    project = written(tmp_path / "project", {"pyproject.toml": BLOCKS["pyproject.toml"], "doing.py": code})
    shutil.copy(PROJECTS / "deeds.py", project)
    return project


async def test_the_page_names_the_kind_in_hints(kind: str, tmp_path: Path) -> None:
    with pytest.raises(ProjectError) as caught:
        recognise(tmp_path)
    assert "[tool.script]" in caught.value.hint
