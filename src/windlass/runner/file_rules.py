"""The files that processes of crews may use, beside those of the machine (windlass_child.process.places)."""

# See docs/decisions/security.md#a-run-may-use-a-list-of-files

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from windlass_child.masking.server_paths import DEPLOYED, is_deployed
from windlass_child.process.places import LIST, READ, WRITE, of_a_python

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from windlass.runner.run_spec import RunnerConfig, RunSpec

OWN_INTERPRETER = Path(sys.executable)
KEPT_SECONDS = 1.0
"""How long places are kept that are found by some 50 system calls."""

Places = dict[str, str]


class FileRules:
    """`variables` are those that every crew gets: programs and certificates that they name can be read. No rule opens
    one of the closed folders of the configuration as a whole, or a folder above.
    """

    def __init__(self, config: RunnerConfig, variables: Mapping[str, str]) -> None:
        self._prepared, self._files = config.prepared, config.files
        self._closed = [folder.resolve() for folder in config.closed]
        named = [*variables.get("PATH", "").split(os.pathsep)]
        named += [variables.get(name, "") for name in ("SSL_CERT_DIR", "SSL_CERT_FILE")]
        everywhere = ["/opt", str(config.prepared.program.parent), *filter(os.path.isabs, named)]
        self._everywhere = self._readable(map(Path, everywhere))
        self._kept: dict[tuple[object, ...], tuple[float, Places]] = {}

    def of_run(self, spec: RunSpec, folder: Path) -> Places:
        """Returns the places of a run whose folder is in this one, or is it."""
        return {**self._of_project(spec, checkout_of(spec.project.root)), str(folder): WRITE}

    def of_zygote(self, spec: RunSpec, code: Path, *, with_project: bool) -> Places | None:
        """Returns the places that a zygote may use beside folders of its own, None for all that its user may use.

        They include those of all projects whose runs may be forked from it. With `with_project` these are the runs of
        one project. `code` is the folder with the copies of projects that are not deployed. A zygote on the server's
        own interpreter runs no code of a crew before its children do, unless it imports the project. A script that
        starts an interpreter, such as a shim of pyenv, may use any file.
        """
        checkout = checkout_of(spec.project.root)
        if is_script(spec.interpreter) and not is_deployed(spec.project.root):
            return None
        if with_project:
            return self._of_project(spec, checkout)
        if spec.interpreter == OWN_INTERPRETER:
            return None
        if is_deployed(spec.project.root):
            return self._of_project(spec, checkout.parent)
        # it compiles the packages of the environment when it imports them first
        compiled = self._apart(environment_of(spec.interpreter), WRITE)
        return {**self._of_project(spec, checkout), str(code): READ, **compiled}

    def _of_project(self, spec: RunSpec, place: Path) -> Places:
        """Returns the places of runs of a project in this place."""
        key = spec.interpreter, place, spec.boundary.files
        until, places = self._kept.get(key, (0.0, {}))
        now = time.monotonic()
        if until < now:
            places = {**self._everywhere, **self._readable([place, *self._of_interpreter(spec)])}
            for path, what in self._files if spec.boundary.files is None else spec.boundary.files:
                if not self._is_of_the_server(Path(path)):
                    places |= self._apart(Path(path), what)
            self._kept = {key: found for key, found in self._kept.items() if now < found[0]}
            self._kept[key] = now + KEPT_SECONDS, places
        return places

    def _of_interpreter(self, spec: RunSpec) -> Iterator[Path]:
        """Yields the folders of an interpreter, of its environment, and of packages that are installed in place.

        A deployed project has its packages in its environment, whose files are not trusted: they open no folder.
        """
        is_own = spec.interpreter == OWN_INTERPRETER
        if is_own and self._prepared.folder is not None:
            yield self._prepared.folder
        used = self._prepared.interpreter if is_own else spec.interpreter
        environment = environment_of(used)
        base = Path(os.path.realpath(used)).parents[1]
        yield from map(
            Path, of_a_python(str(environment if (environment / "pyvenv.cfg").exists() else base), str(base))
        )
        if is_own or not is_deployed(spec.project.root):
            for packages in environment.glob("lib/python*/site-packages"):
                yield from installed_in_place(packages)

    def _is_of_the_server(self, path: Path) -> bool:
        return any(Path(os.path.realpath(path)).is_relative_to(folder) for folder in self._closed)

    def _readable(self, places: Iterable[Path]) -> Places:
        found: Places = {}
        for place in places:
            found |= self._apart(place, READ)
        return found

    def _apart(self, place: Path, what: str) -> Places:
        """Returns the rules that open a place, but nothing that leads to a closed folder."""
        place = Path(os.path.realpath(place))
        if place in self._closed or not os.path.exists(place):  # noqa: PTH110 - it raises nothing for a closed folder
            return {}
        if not any(folder.is_relative_to(place) for folder in self._closed):
            return {str(place): what}
        found = {str(place): LIST}
        with suppress(OSError):
            for entry in place.iterdir():
                if not entry.is_symlink():
                    found |= self._apart(entry, what)
        return found


def checkout_of(root: str) -> Path:
    """Returns the folder with all files of a deployed version, and the folder itself for another project."""
    found = DEPLOYED.search(root)
    return Path(root[: found.end()] if found else root)


def environment_of(interpreter: Path) -> Path:
    return interpreter.parents[1]


def is_script(interpreter: Path) -> bool:
    with suppress(OSError), interpreter.open("rb") as file:
        return file.read(2) == b"#!"
    return False


def installed_in_place(packages: Path) -> Iterator[Path]:
    """Yields the folders of packages that are installed as links to their source (`pip install --editable`)."""
    with suppress(OSError):
        for file in packages.glob("*.pth"):
            for line in file.read_text("utf-8", "replace").splitlines():
                if line.startswith(("/", ".")) and (packages / line).is_dir():
                    yield packages / line
        for file in packages.glob("*.dist-info/direct_url.json"):
            with suppress(ValueError, AttributeError):
                url = json.loads(file.read_text("utf-8"))
                if url.get("dir_info", {}).get("editable") and (address := urlsplit(url["url"])).scheme == "file":
                    yield Path(unquote(address.path))
