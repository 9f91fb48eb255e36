"""Sets up a process that runs crew code: its environment, folder and standard streams."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from windlass_child import frameworks
from windlass_child.process import imported_paths, own_package
from windlass_child.process.error_text import EXECUTABLE, INSTEAD_OF_A_PERSON, NobodyAnswers
from windlass_child.protocol.working_folder import PACKAGE, STORAGE, TEMPORARY
from windlass_child.replacements import replace_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from windlass_child.protocol.messages import ProcessEnvironment

QUIET = {
    "ANONYMIZED_TELEMETRY": "false",
    "DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "MEM0_TELEMETRY": "false",
    "SCARF_NO_ANALYTICS": "true",
}
"""Switches off the telemetry of libraries. The crew's environment overrides these values.

OTEL_SDK_DISABLED is not set: it would switch off the tracing that crews configure themselves.
"""

PROXIES = {"all_proxy", "http_proxy", "https_proxy"}
LOOPBACK = ("localhost", "127.0.0.1")
"""The addresses of this machine that go past a proxy. Early releases of httpx refuse `::1` in NO_PROXY."""


def quiet() -> dict[str, str]:
    """Returns the variables that switch off the telemetry of libraries and frameworks."""
    return QUIET | {name: value for adapter in frameworks.adapters() for name, value in adapter.QUIET.items()}


def storage_variables(storage: Path) -> dict[str, str]:
    """Returns the variables with which frameworks store their files in a folder."""
    return {name: value for one in frameworks.adapters() for name, value in one.storage_variables(storage).items()}


def with_loopback_direct(given: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment with the addresses of this machine in NO_PROXY, if it has a proxy.

    A proxy can't reach the loopback of this machine, where the offline model and other servers listen. Libraries read
    the variables in lower case, in upper case or in both, and most ignore the second where the first is set. So both
    are set.
    """
    if not any(value for name, value in given.items() if name.lower() in PROXIES):
        return dict(given)
    direct = {}
    for name, other in (("no_proxy", "NO_PROXY"), ("NO_PROXY", "no_proxy")):
        hosts = [host.strip() for host in given.get(name, given.get(other, "")).split(",") if host.strip()]
        missing = [] if "*" in hosts else [host for host in LOOPBACK if host not in hosts]
        direct[name] = ",".join([*hosts, *missing])
    return {**given, **direct}


def apply(process_environment: ProcessEnvironment, root: str | None = None) -> None:
    """Sets the environment and the folder of this process. Crew code that runs later sees no other environment. With
    `root`, the folder of the project, the project is a package there (own_package).
    """
    folder = process_environment.folder
    own = activated(process_environment.environment)
    given = {
        **quiet(),
        **storage_variables(Path(folder, STORAGE)),
        **(own if process_environment.proxied else with_loopback_direct(own)),
        "TMPDIR": f"{folder}/{TEMPORARY}",
    }
    if root is not None:
        given = own_package.variables(root, f"{folder}/{PACKAGE}", given)
    replace_environment(given)
    tempfile.tempdir = None
    os.chdir(process_environment.working_folder)
    imported_paths.move(folder, given)


def activated(given: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables as in the activated environment of this interpreter: programs that the crew starts by name,
    such as `python` or a script of a package, are those of the environment.
    """
    programs, path = os.path.dirname(EXECUTABLE), given.get("PATH", os.defpath).split(os.pathsep)  # noqa: PTH120
    found = {name: value for name, value in given.items() if name not in ("PYTHONHOME", "VIRTUAL_ENV")}
    if sys.prefix != sys.base_prefix:
        found["VIRTUAL_ENV"] = sys.prefix
        path = [programs, *(folder for folder in path if folder != programs)]
    elif programs not in path:  # the order of the system's folders stays as it is
        path = [programs, *path]
    return {**found, "PATH": os.pathsep.join(path)}


@contextlib.contextmanager
def without_dotenv() -> Iterator[None]:
    """Disables .env files inside the block. The import of a framework may read one near the interpreter."""
    before = environment()
    replace_environment({**before, "PYTHON_DOTENV_DISABLED": "true"})
    try:
        yield
    finally:
        replace_environment(before)


def environment() -> dict[str, str]:
    return dict(os.environ)  # noqa: TID251 - this process's own, which is the crew's


def replace_environment(wanted: Mapping[str, str]) -> None:
    """Also sets the variables that look the same, because C code may have changed them."""
    now = environment()
    for name in now.keys() - wanted.keys():
        del os.environ[name]  # noqa: TID251 - as above
    os.environ.update(wanted)  # noqa: TID251 - as above
    time.tzset()


def refuse_input() -> None:
    """Makes input() fail at once, because no person attends a kickoff. Its own error reports only an empty input."""
    replace_name("builtins:input", lambda _: refuse)


def refuse(prompt: object = "", /) -> NoReturn:
    asked = f"asked for {str(prompt).strip()!r}" if str(prompt).strip() else "asked"
    raise NobodyAnswers(
        f"the code called input() and {asked}, but a kickoff has no one to answer",
        f"Make it an input of the kickoff, {INSTEAD_OF_A_PERSON}",
    )
