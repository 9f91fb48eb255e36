"""Runs the tests of releases of crewai in an environment each, on each Python, and writes
docs/reference/crewai-versions.md.

    python tests/versions/every_version.py [NAME-PYTHON ...]

Environments are built one at a time. An interpreter that is not on this machine is skipped, with a line that says so.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from projects_for_tests import versions_page  # noqa: E402 - as above
from projects_for_tests.environments import interpreter  # noqa: E402 - as above

PYTHONS = ("3.10", "3.11", "3.12", "3.13")


def main(names: list[str]) -> int:
    releases = [path.stem for path in sorted((ROOT / "requirements" / "crewai").glob("*.txt"))]
    interpreters = {python: interpreter(python) for python in PYTHONS}
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        for name in names or [f"{release}-{python}" for release in releases for python in PYTHONS if python != "3.11"]:
            python = interpreters.get(name.rpartition("-")[2])
            if python is None:
                print(f"{name}: skipped, because there is no such Python on this machine")
            elif passes(name, python, found := Path(folder, name)):
                versions_page.write([json.loads(line) for line in found.read_text().splitlines()])
            else:
                failed.append(name)
    print(f"failed: {', '.join(failed)}" if failed else "all passed")
    return bool(failed)


def passes(name: str, python: Path, found: Path) -> bool:
    subprocess.run(["make", f".make/crewai/{name}/built", f"INTERPRETER={python}"], cwd=ROOT, check=True)
    environment = {**os.environ, "CREWAI_ENVIRONMENTS": name, "CREWAI_FOUND": str(found)}  # noqa: TID251 - of this program
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "tests/versions"]
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True)
    print(f"{name}: {done.stdout.strip().splitlines()[-1]}", flush=True)
    if done.returncode:
        print(done.stdout, done.stderr)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
