"""Every block of shell and Python in the README and the quickstart does what it says, in the order in which a newcomer
pastes it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from cli.the_command import PACKAGES, Command, ForkedCommand
from patience import DEADLINE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

pytestmark = [
    pytest.mark.xdist_group("served_crews"),
    pytest.mark.skipif(shutil.which("curl") is None, reason="its lines call curl"),
]

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "research_crew"
INSTALLING = "make run\n"
PACKAGED = "pip install 'windlass[crewai]'"
SERVING = ".venv/bin/windlass dev path/to/your/project"
SERVING_MANY = "windlass serve --offline-model"
DEPLOYING = ".venv/bin/windlass deploy"
LOADED_AGAIN = "sleep 15\n"


def blocks(page: str) -> list[str]:
    """As shell, each: a block of Python is given to python."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / page).read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert {language for language, _ in found} <= {"sh", "python", "text"}
    return [
        text if language == "sh" else f"python - <<'END'\n{text}END\n" for language, text in found if language != "text"
    ]


def bash(script: str, environment: Mapping[str, str], folder: Path) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        check=False,
        cwd=folder,
        capture_output=True,
        text=True,
        env=environment,
        timeout=2.5 * DEADLINE,
    )
    assert done.returncode == 0, (script, done.stdout, done.stderr)
    return done.stdout


def environment_with_commands(folder: Path, windlass: Command) -> dict[str, str]:
    """`.venv/bin` in the folder has what the one of a clone has."""
    commands = folder / ".venv" / "bin"
    commands.mkdir(parents=True)
    python = f"PYTHONPATH={shlex.quote(os.pathsep.join(PACKAGES))} exec {shlex.quote(sys.executable)}"
    for name, start in (("windlass", f"{python} -m windlass"), ("python", python)):
        (commands / name).write_text(f'#!/bin/sh\n{start} "$@"\n')
        (commands / name).chmod(0o755)
    home = windlass.environment["WINDLASS_HOME"]
    return {"PATH": "/usr/bin:/bin", "HOME": str(folder), "LANG": "C.UTF-8", "WINDLASS_HOME": home}


def at_port(lines: Iterable[str], base_url: str) -> str:
    return "".join(lines).replace("127.0.0.1:8000", base_url.split("//")[1])


def test_the_lines_of_the_readme_work_as_they_stand(open_folder: Path) -> None:
    windlass = ForkedCommand(open_folder)
    apart = (INSTALLING, PACKAGED, SERVING, SERVING_MANY, DEPLOYING)
    lines = [block for block in blocks("README.md") if not any(words in block for words in apart)]
    environment = environment_with_commands(open_folder, windlass)
    with windlass.started("dev", str(EXAMPLE), "--port", "0") as server:
        script = at_port(lines, server.wait_for("Base URL").split()[-1])
        told = bash(script, environment, open_folder)
        server.interrupt()
        assert server.end() == 0
    for words in ('"topic"', '"kickoff_id"', '"state":"SUCCESS"', "[offline model]"):
        assert words in told
    assert script.count("curl") == 3


def test_the_lines_that_deploy_work_as_they_stand(open_folder: Path) -> None:
    windlass = ForkedCommand(open_folder)
    environment = environment_with_commands(open_folder, windlass)
    environment["PATH"] = f"{open_folder}/.venv/bin:{environment['PATH']}"
    deploying = [block for block in blocks("README.md") if DEPLOYING in block]
    serving, using, again, *_ = blocks("docs/how-to/deploy.md")
    assert (len(deploying), SERVING_MANY in serving) == (2, True)
    with windlass.started("serve", "--offline-model", "--port", "0") as server:
        server.wait_for("Ctrl-C stops")
        told = bash("".join([*deploying, using, again]), environment, open_folder)
        server.interrupt()
        assert server.end() == 0
    assert told.count("[offline model]") == 2
    assert told.count("/crews/writer\n") == told.count("/crews/tides\n") == 2, "each is deployed twice"


def test_what_installs_and_serves_is_what_make_and_the_command_have() -> None:
    installing = [block for block in blocks("README.md") if INSTALLING in block]
    assert installing == ["git clone ADDRESS-OF-THIS-REPOSITORY windlass && cd windlass\nmake run\n"]
    assert re.search(r"^run:.*\n(\t.*\n)*\t@exec \$\(BIN\)/windlass dev \$\(PROJECT\)$", makefile(), re.MULTILINE)
    serving = [line for block in blocks("README.md") if SERVING in block for line in block.splitlines()]
    assert [line.partition("#")[0].strip() for line in serving] == [SERVING]
    (many,) = [block for block in blocks("README.md") if SERVING_MANY in block]
    assert many.startswith(f".venv/bin/{SERVING_MANY} ")
    assert "make serve ARGS=--offline-model" in many
    assert re.search(r"^serve:.*\n(\t.*\n)*\t@exec \$\(BIN\)/windlass serve \$\(ARGS\)$", makefile(), re.MULTILINE)


def test_the_readme_begins_with_the_package_and_its_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (first, *_) = blocks("README.md")
    assert first.startswith(PACKAGED)
    assert f"uvx --from '{project['name']}[crewai]' {next(iter(project['scripts']))} dev ." in first
    page = (ROOT / "docs/start/install.md").read_text("utf-8")
    extras = set(re.findall(r"^\| `windlass\[(\w+)\]`", page, re.MULTILINE))
    assert extras == set(project["optional-dependencies"])
    assert f"windlass-{project['version']}-py3-none-any.whl[crewai]" in page


def test_hosted_ci_runs_the_script_and_builds_the_package() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text("utf-8"))["jobs"]
    assert {"bash .ci/run", "make dist"} <= {step.get("run") for job in jobs.values() for step in job["steps"]}


def test_the_quickstart_works_as_it_stands(open_folder: Path) -> None:
    windlass = ForkedCommand(open_folder)
    windlass.gives_database = False
    lines = blocks("docs/start/quickstart.md")
    serving = lines.index("windlass dev tides\n")
    (changing,) = [number for number, block in enumerate(lines) if LOADED_AGAIN in block]
    environment = environment_with_commands(open_folder, windlass)
    made = bash("".join(lines[:serving]), environment, open_folder)
    assert made.endswith("no errors, no warnings\n")
    with windlass.started("dev", str(open_folder / "tides"), "--port", "0") as server:
        url = server.wait_for("Base URL").split()[-1]
        token = [lines[0], lines[serving + 1].splitlines(keepends=True)[0]]
        told = bash(at_port([lines[0], *lines[serving + 1 : changing]], url), environment, open_folder)
        before, _, after = lines[changing].partition(LOADED_AGAIN)
        bash(before, environment, open_folder)
        server.wait_for("is served from now on")
        told_later = bash(at_port([*token, after, *lines[changing + 1 :]], url), environment, open_folder)
        server.interrupt()
        assert server.end() == 0
    for words in ("topic", '"state":"SUCCESS"', "['research', 'brief']", "It ran research and brief."):
        assert words in told
    assert "audience" in told_later
    results = (open_folder / "results.jsonl").read_text("utf-8").splitlines()
    assert sorted(json.loads(result)["line"] for result in results) == [1, 2, 3]


def makefile() -> str:
    return (ROOT / "Makefile").read_text("utf-8")
