"""Runs uv, and with it the builds of packages, as the user that may run their code."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windlass.errors import WindlassError
from windlass.projects.packages import Packages, document_of, explained
from windlass.projects.requirement_lines import CREDENTIALS, OF_CREDENTIALS, slow_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from windlass.accounts import Account

LAST_LINES, LONGEST_LINE = 200, 16 << 10
LOOK_SECONDS, CLOSED_SECONDS = 0.2, 0.01
"""Seconds between two looks whether uv has ended: while its output is open, and afterwards."""
MOST_AFTER_THE_END = 1 << 20
"""Bytes that are read after the end of uv. A process that it left could print for ever."""
QUIET = re.compile(r"\s*([+~-] |Downloaded |Built )")
"""Lines of uv that follow others about the same package."""
PASSED = re.compile(
    r"UV_(?!PUBLISH)\w+|\w+_PROXY|SSL_CERT_(FILE|DIR)|PATH|HOME|USER|LOGNAME|LANG|LC_\w+|TZ|NETRC|CC|CXX|CFLAGS|LDFLAGS|"
    r"XDG_(CACHE|DATA|CONFIG)_HOME|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE",
    re.IGNORECASE,
)
"""Variables that uv gets, and with it the builds of packages: foreign code that must see no other."""

NOT_PASSED = {
    "UV_PROJECT", "UV_WORKING_DIR", "UV_WORKING_DIRECTORY", "UV_PROJECT_ENVIRONMENT", "UV_PYTHON", "UV_SYSTEM_PYTHON",
    "UV_BREAK_SYSTEM_PACKAGES", "UV_CONFIG_FILE", "UV_NO_CONFIG", "UV_ENV_FILE", "UV_NO_ENV_FILE", "UV_FROZEN",
    "UV_LOCKED", "UV_NO_SYNC", "UV_ISOLATED", "UV_DEV", "UV_NO_DEV", "UV_NO_GROUP", "UV_NO_DEFAULT_GROUPS",
    "UV_NO_EDITABLE", "UV_VENV_SEED", "UV_VENV_CLEAR", "UV_VENV_RELOCATABLE",
}  # fmt: skip
"""Variables that decide on the project, the interpreter, the environment or the configuration. Windlass does so."""
DECIDING = re.compile(
    r"UV_(INDEX\w*|DEFAULT_INDEX|EXTRA_INDEX_URL|FIND_LINKS|NO_INDEX|EXCLUDE_NEWER\w*|PRERELEASE|RESOLUTION|FORK_STRATEGY|"
    r"CONSTRAINT|OVERRIDE|EXCLUDE|BUILD_CONSTRAINT|NO_BUILD\w*|NO_BINARY\w*|NO_SOURCES\w*|TORCH_BACKEND)"
)
"""Variables of the operator that decide on packages."""
CONFIGURATION = "uv.toml"


def is_passed(name: str) -> bool:
    return PASSED.fullmatch(name) is not None and name.upper() not in NOT_PASSED


class Aborted(WindlassError):  # noqa: N818 - describes the build
    """The build of an environment was ended from another thread."""


class Abort:
    """Ends the build of an environment from another thread."""

    def __init__(self) -> None:
        self._asked = False
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def ask(self) -> None:
        """Ends uv and all processes of its session. The build raises Aborted."""
        with self._lock:
            self._asked = True
            if self._process is not None:
                end_session(self._process)

    def check(self) -> None:
        if self._asked:
            raise Aborted("the build of the environment was ended.")

    @contextlib.contextmanager
    def watching(self, process: subprocess.Popen[bytes]) -> Iterator[None]:
        """Allows `ask` to end this process. It must be waited for after the block only: its number is in use then."""
        with self._lock:
            self._process = process
            if self._asked:
                end_session(process)
        try:
            yield
        finally:
            with self._lock:
                self._process = None


@dataclass(frozen=True, slots=True)
class Builder:
    """The user that runs uv and the builds of packages.

    `account` is None for this process's own. Then the environment belongs to that user. Otherwise the process is root,
    and gives the finished environment to root; a build has one of `others` in its place while `account` has another
    build. `environment` are the variables of this process. `reaches` returns
    whether crews can start an interpreter. `downloads` is whether uv may download a Python; root never does.
    """

    uv: Path
    environment: Mapping[str, str]
    reaches: Callable[[Path], bool]
    account: Account | None = None
    others: tuple[Account, ...] = ()
    downloads: bool = True
    abort: Abort = field(default_factory=Abort)

    @property
    def may_download(self) -> bool:
        return self.downloads and self.account is None


@dataclass(frozen=True, slots=True)
class Uv:
    """Runs uv in the folder `work` as the builder, in a session of its own, and reports the lines that it prints.

    uv looks for no configuration: it gets the file CONFIGURATION in `work`.
    """

    work: Path
    folder: Path
    builder: Builder
    packages: Packages
    report: Callable[[str], None]

    def run(self, *arguments: str) -> None:
        """Raises ProjectError with uv's reason when uv fails."""
        account = self.builder.account
        process = subprocess.Popen(  # noqa: S603 - uv, with arguments of this module
            [self.builder.uv, "--no-config", "--config-file", str(self.work / CONFIGURATION), *arguments],
            cwd=self.work,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
        )
        try:
            with self.builder.abort.watching(process):
                printed = self._read(process)
        finally:
            end_session(process)
            code = process.wait()
        self.builder.abort.check()
        if code:
            raise explained(printed, self.packages)

    def _read(self, process: subprocess.Popen[bytes]) -> list[str]:
        """Reports the lines that uv prints until it ends, and returns the last ones."""
        kept: deque[str] = deque(maxlen=LAST_LINES)
        failed = False
        for line in lines_of(process):
            text = line.rstrip().replace(f"{self.work}/", "")
            kept.append(text)
            failed = failed or text.startswith("error")
            if text.strip() and not QUIET.match(text) and not failed:
                self.report(text.strip())
        return list(kept)

    def _environment(self) -> dict[str, str]:
        given = {name: value for name, value in self.builder.environment.items() if is_passed(name)}
        given.setdefault("UV_SYSTEM_CERTS", "true")
        given |= {
            "UV_PROJECT_ENVIRONMENT": str(self.folder / "env"),
            "UV_NO_PROGRESS": "true",
            "UV_LINK_MODE": given.get("UV_LINK_MODE", "copy" if self.builder.account is None else "hardlink"),
        }
        if self.builder.account is not None:
            own = {name: str(self.folder / "cache") for name in ("UV_CACHE_DIR", "HOME", "TMPDIR")}
            given |= own
        if not self.builder.may_download:
            given["UV_PYTHON_DOWNLOADS"] = "never"
        return given


def lines_of(process: subprocess.Popen[bytes]) -> Iterator[str]:
    """Yields the lines that the process prints, until it ends: processes that it left may keep the pipe open for ever.
    Splits lines that are longer than LONGEST_LINE.
    """
    rest = b""
    for part in parts_of(process):
        *lines, rest = (rest + part).split(b"\n")
        if len(rest) > LONGEST_LINE:
            lines, rest = [*lines, rest], b""
        yield from (line.decode("utf-8", "replace") for line in lines)
    if rest:
        yield rest.decode("utf-8", "replace")


def parts_of(process: subprocess.Popen[bytes]) -> Iterator[bytes]:
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    left = MOST_AFTER_THE_END
    with process.stdout as pipe:
        while left > 0:
            ended = has_ended(process)  # before the read, so that nothing is missed that it printed last
            readable, _, _ = select.select([pipe], [], [], 0 if ended else LOOK_SECONDS)
            part = os.read(pipe.fileno(), LONGEST_LINE) if readable else b""
            if part:
                yield part
                left -= len(part) if ended else 0
            elif ended:
                return
            elif readable:  # it has closed its output
                time.sleep(CLOSED_SECONDS)


def has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Keeps the number of the process in use, unlike `Popen.poll`."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def end_session(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def operator_settings(given: Mapping[str, str], *, as_root: bool) -> dict[str, Any]:
    """Returns the configuration of uv that the operator of this machine has made: the file of UV_CONFIG_FILE, else that
    of the user, and of the system. `given` are the variables of this process. Raises ProjectError for a file that can't
    be read.
    """
    if named := given.get("UV_CONFIG_FILE"):
        return document_of(Path(named))
    system = next(filter(None, map(document_of, (Path("/etc/xdg/uv/uv.toml"), Path("/etc/uv/uv.toml")))), {})
    if as_root:  # builds don't get the configuration in the home of root
        return system
    home = given.get("XDG_CONFIG_HOME") or (f"{given['HOME']}/.config" if given.get("HOME") else None)
    return combined(document_of(Path(home) / "uv" / "uv.toml"), system) if home else system


def digest_of_operator(given: Mapping[str, str], *, as_root: bool) -> str:
    """Returns a digest of the operator's settings that decide on packages, without passwords. It is "" without any."""
    variables = {
        name: CREDENTIALS.sub("", value)
        for name, value in given.items()
        if DECIDING.fullmatch(name) and not name.endswith(OF_CREDENTIALS)
    }
    found = [variables, {name: value for name, value in operator_settings(given, as_root=as_root).items() if value}]
    text = json.dumps(found, sort_keys=True, default=str)
    return slow_digest(text)[:16] if any(found) else ""


def combined(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Returns both configurations, as uv combines them: lists one after the other, and of two values the first."""
    found = {**second, **first}
    for name in first.keys() & second.keys():
        one, other = first[name], second[name]
        if isinstance(one, list) and isinstance(other, list):
            found[name] = [*one, *other]
        elif isinstance(one, dict) and isinstance(other, dict):
            found[name] = combined(one, other)
    return found


def uv_program() -> Path:
    """Returns uv: that beside Windlass's interpreter, else one on PATH. Raises WindlassError when there is none."""
    beside = [Path(sys.executable).parent / "uv", Path(sysconfig.get_path("scripts")) / "uv"]
    found = next((path for path in beside if os.access(path, os.X_OK)), shutil.which("uv"))
    if found is None:
        raise WindlassError("uv, which makes environments, was not found.", "Install Windlass again: it depends on uv.")
    return Path(found)
