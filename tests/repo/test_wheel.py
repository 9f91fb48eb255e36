"""The wheel has all that a server needs, and is built from the same sources with the same bytes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import httpx
import pytest

from cli.the_command import Command
from patience import DEADLINE
from windlass.projects.uv import uv_program

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "src/windlass/dashboard"
LOOK = """
import json, re
from importlib import resources
import windlass
from windlass.dashboard import static_files, templating

found = templating.Templates(str)._environment
files = resources.files("windlass.dashboard")
sources = {one.name: one.read_text("utf-8") for one in files.joinpath("templates").iterdir()}
for name in found.list_templates():
    found.get_template(name)
wanted = {name for text in sources.values() for name in re.findall(r'static\\("([^"]+)"\\)', text)}
for name in wanted:
    templating.static_path(name)
icons = {name for text in sources.values() for name in re.findall(r'icon\\("([^"]+)"\\)', text)}
assert icons <= templating.known_icons(), icons - templating.known_icons()
print(json.dumps({
    "place": windlass.__file__,
    "templates": sorted(sources),
    "static": sorted(static_files.names()),
    "wanted": sorted(wanted),
    "icons": len(icons),
    "docs": sorted(one.name for one in resources.files("windlass.api").joinpath("static").iterdir()),
}))
"""


def uv(*arguments: str) -> None:
    subprocess.run([str(uv_program()), *arguments, "--quiet"], cwd=ROOT, check=True, timeout=DEADLINE)


def names(folder: str) -> set[str]:
    return {str(one.relative_to(PAGES / folder)) for one in (PAGES / folder).rglob("*") if one.is_file()}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the source distribution."""
    return distributions(tmp_path_factory.mktemp("dist"))


def distributions(place: Path, source: Path = ROOT) -> tuple[Path, Path]:
    scripts = sysconfig.get_path("scripts")
    what = [] if source == ROOT else ["--wheel"]
    uv("build", *what, "--no-build-isolation", "--python", f"{scripts}/python", "--out-dir", str(place), str(source))
    (wheel,) = place.glob("*.whl")
    return wheel, next(place.glob("*.tar.gz"), source)


def test_the_same_sources_give_the_same_bytes(built: tuple[Path, Path], tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        again = distributions(tmp_path / "again")
    finally:
        os.umask(before)
    assert [one.read_bytes() for one in again] == [one.read_bytes() for one in built]
    wheel, source = built
    assert distributions(tmp_path / "from source", source)[0].read_bytes() == wheel.read_bytes()


@pytest.mark.timeout(300)
@pytest.mark.xdist_group("served_crews")
def test_the_wheel_alone_makes_serves_and_deploys_a_project(built: tuple[Path, Path], open_folder: Path) -> None:
    fresh = open_folder / "fresh"
    uv("venv", "--python", sys.executable, str(fresh))
    install = ["pip", "install", "--python", f"{fresh}/bin/python", "--link-mode", "hardlink", "--compile-bytecode"]
    uv(*install, "--constraints", str(ROOT / "requirements/run.txt"), str(built[0]))
    assert not [*fresh.glob("lib/*/site-packages/crewai")], "the server is light without its extras"
    windlass = Command(open_folder)
    windlass.program = (f"{fresh}/bin/windlass",)
    windlass.folder = open_folder
    del windlass.environment["PYTHONPATH"]
    assert windlass("init", "tides", "--kind", "function").code == 0
    assert windlass("check", "tides").code == 0
    with windlass.started("serve", "--port", "0", "--offline-model") as server:
        url = server.wait_for("Address").split()[-1]
        deployed = windlass("deploy", "tides")
        run = windlass("kickoff", "--deployment", "tides", "-i", "topic=tides", "--watch")
        page = httpx.get(f"{url}/ui/", timeout=DEADLINE, follow_redirects=True)
        server.interrupt()
        assert server.end() == 0
    assert deployed.code == 0, deployed
    assert (run.code, "tides" in run.out) == (0, True), run
    assert page.status_code == 200


def test_an_installed_wheel_has_the_templates_and_what_they_load(built: tuple[Path, Path], tmp_path: Path) -> None:
    fresh = tmp_path / "fresh"
    uv("venv", str(fresh))
    python = str(fresh / "bin/python")
    uv("pip", "install", "--python", python, "--no-deps", str(built[0]))
    # The libraries are those of the tests. The link to the sources, a .pth file, does not count there.
    environment = {"PATH": os.defpath, "PYTHONPATH": sysconfig.get_path("purelib")}
    done = subprocess.run(
        [python, "-c", LOOK], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert Path(found["place"]).is_relative_to(fresh)
    assert set(found["templates"]) == names("templates")
    assert set(found["static"]) == names("static")
    assert set(found["wanted"]) > {"dashboard.css", "dashboard.js", "build/htmx.js"}
    assert found["icons"] > 10
    assert {"swagger-ui-bundle.js", "swagger-ui.css"} <= set(found["docs"])
