"""Starts the process of a zygote, hardened and as the user of crews."""

# See docs/decisions/runner.md#a-zygote-is-started-through-the-servers-interpreter
# See docs/decisions/security.md#a-zygote-has-no-network

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import windlass_child
from windlass.errors import ChildLost
from windlass_child.process.places import WRITE
from windlass_child.protocol.working_folder import WORK

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping

    from windlass.accounts import Account
    from windlass_child.protocol.messages import Project

OF_THE_MACHINE, OF_ITS_OWN, WITHIN_THE_MACHINE = "", "none", "local"
"""Networks of a zygote (windlass_child.__main__): that of the machine; an empty one, in which each of its children gets
one of its own; no sockets of a network.
"""
PROGRAM = Path(windlass_child.__file__).parent / "__main__.py"


@dataclass(frozen=True, slots=True)
class ZygoteSpec:
    """Describes a zygote. Kickoffs with equal specs can share one zygote.

    With `project` the zygote also imports the modules of that project, in `environment`, whose variables `secrets` are
    masked in its errors. `digest` identifies the state
    of the interpreter's environment, and of the project's files. `account` is the user that it runs as, None for the
    server's own. `program` is its first code. `places` are the files that it may use (FileRules.of_zygote).
    `network` is what it may connect to: one of the words, or the number of the only port.
    """

    interpreter: Path
    preload: str | None = None
    project: Project | None = None
    environment: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    secrets: tuple[str, ...] = ()
    account: Account | None = None
    digest: str = ""
    program: Path = PROGRAM
    places: tuple[tuple[str, str], ...] | None = None
    network: str = OF_THE_MACHINE


async def spawn(
    spec: ZygoteSpec,
    environment: Mapping[str, str],
    folder: Path,
    runs: Path,
    theirs: socket.socket,
    tasks: int | None,
) -> asyncio.subprocess.Process:
    """Starts the zygote with the server's own interpreter, which hardens the process before it executes the crew's.

    `runs` is the folder of the runs that are forked from it. `tasks` is the highest number of processes and threads of
    its user: it bounds a fork bomb until that is detected.
    """
    channel, account = str(theirs.fileno()), spec.account
    user = (str(account.uid), str(account.gid)) if account else ("", "")
    # UTF-8 with every locale of the machine. A new session, so that Ctrl-C in a terminal reaches only the server.
    # Without the packages of a home folder (-s): crews may write to it.
    places = "" if spec.places is None else json.dumps({**dict(spec.places), str(folder): WRITE, str(runs): WRITE})
    program = [str(spec.interpreter), "-s", "-X", "utf8", str(spec.program), channel, spec.preload or ""]
    try:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *("-I", "-S", str(PROGRAM), "launch", channel, *user, "" if tasks is None else str(tasks)),
            *(spec.network, places),
            *program,
            *(["project"] if spec.project else []),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            pass_fds=(theirs.fileno(),),
            env=environment,
            cwd=folder / WORK,
            start_new_session=True,
        )
    except OSError as error:
        raise ChildLost(f"no process can be started for crews: {error.strerror}.") from error


def state_of_environment(interpreter: Path) -> str:
    """Returns a text that changes when the interpreter's environment is made again. Its zygotes are then replaced."""
    try:
        found = os.stat(f"{os.path.dirname(os.path.dirname(interpreter))}/pyvenv.cfg")  # noqa: PTH116, PTH120 - each run
    except OSError:
        return ""
    return f"{found.st_ino} {found.st_mtime_ns}"
