from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import sys
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import windlass_crewside
from windlass.errors import ProjectError

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping

    from windlass.accounts import Account
    from windlass_crewside.messages import Project

PROGRAM = Path(windlass_crewside.__file__).parent / "__main__.py"


@dataclass(frozen=True, slots=True)
class Mould:
    """What a zygote is to be: kickoffs with the same mould can share one.

    With `project` it imports the modules of that project too, in `environment`, as they are with this `digest` of its
    files. `account` is the user that it runs as,
    None for our own.
    """

    interpreter: Path
    preload: str | None = None
    project: Project | None = None
    environment: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    account: Account | None = None
    digest: str = ""


async def spawn(
    mould: Mould, environment: Mapping[str, str], folder: Path, theirs: socket.socket, tasks: int | None
) -> asyncio.subprocess.Process:
    # UTF-8 whatever the machine's locale; a session of its own, so that Ctrl-C in a terminal is the server's alone
    arguments = [str(PROGRAM), str(theirs.fileno()), mould.preload or "", *(["project"] if mould.project else [])]
    try:
        return await asyncio.create_subprocess_exec(
            mould.interpreter,
            *("-X", "utf8", *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            pass_fds=(theirs.fileno(),),
            env=environment,
            cwd=folder,
            start_new_session=True,
            preexec_fn=partial(become, mould.account, tasks),
        )
    except OSError as error:
        raise ProjectError(
            f"the interpreter {mould.interpreter} can't be started: {error.strerror}.", "Make its environment again."
        ) from error


def become(account: Account | None, tasks: int | None) -> None:
    """In the process that is to be a zygote, before its program: bounds what a fork bomb can reach before it is found
    (the kernel holds no one to it who is root), and becomes the user.
    """
    if tasks is not None and sys.platform == "linux":
        with contextlib.suppress(OSError, ValueError):  # a lower bound is set for all of us
            resource.setrlimit(resource.RLIMIT_NPROC, (tasks, tasks))
    if account is not None:  # by hand: uvloop, which the server runs on, has no `user` and `group`
        os.setgroups([])
        os.setresgid(account.gid, account.gid, account.gid)
        os.setresuid(account.uid, account.uid, account.uid)
