"""What docs/how-to/client.md shows works as it stands there, and its tables name all there is."""

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
from starlette.responses import HTMLResponse

import windlass
from cli.fake_crew import TOKEN, problem
from patience import DEADLINE
from windlass import client
from windlass.client import AsyncCrew, Crew, CrewError
from windlass.client.event_payloads import PAYLOADS

if TYPE_CHECKING:
    from cli.batch_crew import BatchCrew

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "client.md").read_text("utf-8")
PYTHON = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
JAVASCRIPT = re.findall(r"^```js\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
NODE = shutil.which("node") or ""
SHOWN = [
    "['topic']\nAll about tides.\n",
    "SUCCESS\nAll about tides.\n",
    "All about tides.\nAll about winds.\nAll about stars.\n",
    "error KeyError: 'topic'\n",
    "SUCCESS\nSUCCESS\nSUCCESS\nSUCCESS\n",
]


def run(fake: BatchCrew, program: str, *command: str) -> str:
    found = ran(fake, program, *command)
    found.check_returncode()
    return found.stdout


def ran(fake: BatchCrew, program: str, *command: str) -> subprocess.CompletedProcess[str]:
    assert "http://127.0.0.1:8000" in program
    return subprocess.run(
        [*command, program.replace("http://127.0.0.1:8000", fake.url)],
        check=False,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        env={
            "PATH": os.defpath,
            "WINDLASS_TOKEN": TOKEN,
            "PYTHONPATH": str(Path(windlass.__file__).parents[1]),
        },
    )


@pytest.mark.parametrize(("program", "shown"), list(zip(PYTHON, SHOWN, strict=True)), ids=range(len(SHOWN)))
def test_the_python_of_the_page_does_what_it_says(fake: BatchCrew, program: str, shown: str) -> None:
    if "KickoffFailed" in program:
        fake.failing = {"tides"}
    assert run(fake, program, sys.executable, "-c") == shown


@pytest.mark.skipif(not NODE, reason="node is not installed")
def test_the_javascript_of_the_page_does_what_it_says(fake: BatchCrew) -> None:
    (program,) = JAVASCRIPT
    assert run(fake, program, NODE, "--input-type=module", "--eval") == "All about tides.\n"


@pytest.mark.skipif(not NODE, reason="node is not installed")
def test_the_javascript_of_the_page_gives_up_and_names_the_address(fake: BatchCrew) -> None:
    (program,) = JAVASCRIPT
    assert "const patience = 60_000;" in program
    impatient = program.replace("const patience = 60_000;", "const patience = 0;")
    javascript = (NODE, "--input-type=module", "--eval")
    fake.refusal = problem(503, "Service Unavailable", "The database is unavailable.")
    assert f"{fake.url}/kickoff: 503: The database is unavailable." in ran(fake, impatient, *javascript).stderr
    fake.refusal = HTMLResponse("<p>Nothing here.", 404)
    assert f"{fake.url}/kickoff: 404: " in ran(fake, program, *javascript).stderr
    fake.stop()
    assert f"{fake.url}/kickoff: no answer: connect ECONNREFUSED" in ran(fake, impatient, *javascript).stderr
    fake.start()


def test_the_page_has_every_method_and_both_clients_have_the_same() -> None:
    told = set(re.findall(r"^\| `(\w+)\(", PAGE, re.MULTILINE))
    of_crew, of_async = ({name for name in vars(kind) if not name.startswith("_")} for kind in (Crew, AsyncCrew))
    assert of_crew == of_async == told | {"close"}
    for name in told:
        sync, other = (inspect.signature(getattr(kind, name)) for kind in (Crew, AsyncCrew))
        assert sync.parameters == other.parameters
        assert sync.return_annotation == other.return_annotation.replace("AsyncIterator", "Iterator")


def test_the_page_has_every_error() -> None:
    errors = {name for name in client.__all__ if issubclass(getattr(client, name), CrewError)}
    assert set(re.findall(r"^\| `([A-Z]\w+)` \|", PAGE, re.MULTILINE)) == errors


def test_the_page_of_events_and_the_types_have_the_same_members() -> None:
    table = (
        (Path(__file__).parents[2] / "docs" / "reference" / "events.md")
        .read_text("utf-8")
        .partition("| type | payload |")[2]
    )
    described: dict[str, set[str]] = {}
    for line in table.partition("\n\n")[0].splitlines():
        cells = [re.findall(r"`([a-z_]+)`", cell) for cell in line.split("|")[1:3]]
        described |= {name: set(cells[1]) for name in cells[0]} if len(cells) > 1 else {}
    assert described == {name: set(payload.__annotations__) for name, payload in PAYLOADS.items()}
