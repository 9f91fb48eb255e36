"""The wheel, installed into an environment of its own, has all that the pages need."""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
from pathlib import Path

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
    line = [str(uv_program()), *arguments, "--offline", "--quiet"]
    subprocess.run(line, cwd=ROOT, check=True, timeout=120)


def names(folder: str) -> set[str]:
    return {str(one.relative_to(PAGES / folder)) for one in (PAGES / folder).rglob("*") if one.is_file()}


def test_an_installed_wheel_has_the_templates_and_what_they_load(tmp_path: Path) -> None:
    uv(
        "build",
        "--wheel",
        "--no-build-isolation",
        "--python",
        sysconfig.get_path("scripts") + "/python",
        "-o",
        str(tmp_path),
    )
    (wheel,) = tmp_path.glob("*.whl")
    fresh = tmp_path / "fresh"
    uv("venv", str(fresh))
    python = str(fresh / "bin/python")
    uv("pip", "install", "--python", python, "--no-deps", str(wheel))
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
