"""Runs uv, and with it the builds of packages, as the user that may run their code."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from windlass.errors import WindlassError
from windlass.projects.packages import Packages, explained

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from windlass.accounts import Account

LAST_LINES = 200
QUIET = re.compile(r"\s*([+~-] |Downloaded |Built )")
"""Lines of uv that follow others about the same package."""
PASSED = re.compile(
    r"UV_(?!PUBLISH)\w+|\w+_PROXY|SSL_CERT_(FILE|DIR)|PATH|HOME|USER|LOGNAME|LANG|LC_\w+|TZ|NETRC|CC|CXX|CFLAGS|LDFLAGS|"
    r"XDG_(CACHE|DATA|CONFIG)_HOME|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE",
    re.IGNORECASE,
)
"""Variables that uv gets, and with it the builds of packages: foreign code that must see no other."""


@dataclass(frozen=True, slots=True)
class Builder:
    """The user that runs uv and the builds of packages.

    `account` is None for this process's own. Then the environment belongs to that user. Otherwise the process is root,
    and gives the finished environment to root. `environment` are the variables of this process. `reaches` returns
    whether crews can start an interpreter.
    """

    uv: Path
    environment: Mapping[str, str]
    reaches: Callable[[Path], bool]
    account: Account | None = None


@dataclass(frozen=True, slots=True)
class Uv:
    """Runs uv as the builder, in a session of its own, and reports the lines that it prints."""

    root: Path
    folder: Path
    builder: Builder
    packages: Packages
    report: Callable[[str], None]

    def run(self, *arguments: str) -> None:
        """Raises ProjectError with uv's reason when uv fails."""
        account = self.builder.account
        process = subprocess.Popen(  # noqa: S603 - uv, with arguments of this module
            [self.builder.uv, *arguments],
            cwd=self.root,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
        )
        try:
            printed = list(self._lines(process))
            code = process.wait()
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if code:
            raise explained(printed, self.packages)

    def _lines(self, process: subprocess.Popen[str]) -> Iterator[str]:
        """Yields the last lines that it prints."""
        kept: list[str] = []
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        with process.stdout as lines:
            for line in lines:
                text = line.rstrip()
                kept = [*kept[-LAST_LINES:], text]
                if text.strip() and not QUIET.match(text) and not kept[0].startswith("error"):
                    self.report(text.strip())
        yield from kept

    def _environment(self) -> dict[str, str]:
        given = {name: value for name, value in self.builder.environment.items() if PASSED.fullmatch(name)}
        given.setdefault("UV_SYSTEM_CERTS", "true")
        given |= {
            "UV_PROJECT_ENVIRONMENT": str(self.folder / "env"),
            "UV_NO_PROGRESS": "true",
            "UV_LINK_MODE": given.get("UV_LINK_MODE", "copy" if self.builder.account is None else "hardlink"),
        }
        if self.builder.account is not None:
            own = {name: str(self.folder / "cache") for name in ("UV_CACHE_DIR", "HOME", "TMPDIR")}
            given |= {**own, "UV_PYTHON_DOWNLOADS": "never"}
        return given


def uv_program() -> Path:
    """Returns uv: that beside Windlass's interpreter, else one on PATH. Raises WindlassError when there is none."""
    beside = [Path(sys.executable).parent / "uv", Path(sysconfig.get_path("scripts")) / "uv"]
    found = next((path for path in beside if os.access(path, os.X_OK)), shutil.which("uv"))
    if found is None:
        raise WindlassError("uv, which makes environments, was not found.", "Install Windlass again: it depends on uv.")
    return Path(found)
