"""What docs/client.md shows works as it stands there, and its tables name all there is."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import windlass
from cli.fake_crew import TOKEN
from windlass import client
from windlass.client import AsyncCrew, Crew, CrewError

if TYPE_CHECKING:
    from cli.batch_crew import BatchCrew

PAGE = (Path(__file__).parents[2] / "docs" / "client.md").read_text("utf-8")
PYTHON = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
JAVASCRIPT = re.findall(r"^```js\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
DEADLINE = 60.0
NODE = shutil.which("node") or ""
SHOWN = [
    "['topic']\nAll about tides.\n",
    "SUCCESS\nAll about tides.\n",
    "All about tides.\nAll about winds.\nAll about stars.\n",
    "error KeyError: 'topic'\n",
    "SUCCESS\nSUCCESS\nSUCCESS\nSUCCESS\n",
]


def run(fake: BatchCrew, program: str, *command: str) -> str:
    assert "http://127.0.0.1:8000" in program
    found = subprocess.run(
        [*command, program.replace("http://127.0.0.1:8000", fake.url)],
        check=True,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        env={
            "PATH": os.defpath,
            "WINDLASS_TOKEN": TOKEN,
            "PYTHONPATH": str(Path(windlass.__file__).parents[1]),
        },
    )
    return found.stdout


@pytest.mark.parametrize(("program", "shown"), list(zip(PYTHON, SHOWN, strict=True)), ids=range(len(SHOWN)))
def test_the_python_of_the_page_does_what_it_says(fake: BatchCrew, program: str, shown: str) -> None:
    if "KickoffFailed" in program:
        fake.failing = {"tides"}
    assert run(fake, program, sys.executable, "-c") == shown


@pytest.mark.skipif(not NODE, reason="node is not installed")
def test_the_javascript_of_the_page_does_what_it_says(fake: BatchCrew) -> None:
    (program,) = JAVASCRIPT
    assert run(fake, program, NODE, "--input-type=module", "--eval") == "All about tides.\n"


def test_the_page_has_every_method_and_both_clients_have_the_same() -> None:
    told = set(re.findall(r"^\| `(\w+)\(", PAGE, re.MULTILINE))
    of_crew, of_async = ({name for name in vars(kind) if not name.startswith("_")} for kind in (Crew, AsyncCrew))
    assert of_crew == of_async == told | {"close"}
    for name in told:
        assert inspect.signature(getattr(Crew, name)) == inspect.signature(getattr(AsyncCrew, name))


def test_the_page_has_every_error() -> None:
    errors = {name for name in client.__all__ if issubclass(getattr(client, name), CrewError)}
    assert set(re.findall(r"^\| `([A-Z]\w+)` \|", PAGE, re.MULTILINE)) == errors
