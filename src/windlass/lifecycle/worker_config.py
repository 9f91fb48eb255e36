"""What a worker is configured with: its limits, and what it asks for the environment and the code of each run."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from windlass.errors import WindlassError
from windlass.kickoffs.files import FileLimits
from windlass.kickoffs.limits import Limits
from windlass.projects import Interpreters, Options, ServedCode, TrustedProjects
from windlass.projects.bounded_reader import BoundedReader
from windlass.runner.run_spec import Boundary
from windlass.store.claiming import Claimed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from windlass.kickoffs.tasks import Warning_
    from windlass.lifecycle.readiness import Check

SETTLED = 2.0
"""Seconds after which the time of a file distinguishes a change from an earlier one, on any file system."""

Observer = Callable[["Claimed", object], None]
"""Is called with None when a run begins, with each of its reports, with the FileChanges at its end if there are any,
and at last with its Outcome. It must not raise.
"""


@dataclass(frozen=True, slots=True)
class CrewEnvironment:
    """The environment of a crew that starts now.

    `secrets` are the names of the variables whose values are masked in all that leaves the process. `warnings` are for
    the kickoff. `resolution` describes the reads from secret managers, for an event of the kickoff; None without any.
    `reachable` are hosts with ports of the server that the crew may connect to with each egress.
    """

    variables: Mapping[str, str] = field(repr=False)
    secrets: frozenset[str] = frozenset()
    warnings: tuple[Warning_, ...] = ()
    resolution: Mapping[str, object] | None = None
    reachable: tuple[str, ...] = ()


class UnreadableSecrets(WindlassError):  # noqa: N818 - describes the secrets
    """Values of variables can't be read from their secret managers. The message names the variables, and no value.

    `resolution` describes the reads, for an event of the kickoff.
    """

    def __init__(self, message: str, resolution: Mapping[str, object]) -> None:
        super().__init__(message)
        self.resolution = resolution


Environment = Callable[[Claimed], Awaitable[CrewEnvironment]]
"""Returns the environment of the crew of a kickoff that starts now. Raises UnreadableSecrets."""

Deployed = Callable[[Claimed, Options], Awaitable["Code"]]
"""Returns the code of a deployed version on this machine. Fetches its files, and makes its environment, if need be."""


async def nothing() -> str | None:
    """Is the check of a worker without folders of its own."""
    return None


@dataclass(frozen=True, slots=True)
class Code:
    """The code that a run starts from: the folder of the project, the interpreter, and the boundary that it runs in."""

    root: Path
    interpreter: Path
    boundary: Boundary = field(default_factory=Boundary)


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """Configures a worker.

    It runs `slots` kickoffs at once. `lease` and `renewal` are in seconds. `limits` are for runs whose deployment sets
    none. `files` limits the files of a kickoff that are stored. `projects` are those whose code the worker may run,
    `interpreters` chooses their interpreters, `code` has the folders of their code, and `reader` reads their files.
    `deployments` are the slugs of the deployments whose kickoffs it runs, None for all but those of `excluded`. While
    `fault` returns a fault, the worker claims nothing.
    """

    slots: int
    lease: float
    renewal: float
    max_losses: int
    limits: Limits = field(default_factory=Limits)
    files: FileLimits = field(default_factory=FileLimits)
    projects: TrustedProjects = field(default_factory=lambda: TrustedProjects.of(()))
    interpreters: Interpreters = field(default_factory=Interpreters)
    code: ServedCode = field(default_factory=ServedCode)
    reader: BoundedReader = field(default_factory=BoundedReader)
    deployed: Deployed | None = None
    deployments: tuple[str, ...] | None = None
    excluded: tuple[str, ...] = ()
    fault: Check = nothing
    _declared: dict[Path, tuple[object, str | None]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    async def code_of(self, root: str, *, declares: bool) -> Code:
        """Returns the code of a project in a folder of this machine. `declares` is whether the project sets the
        option `python`.

        The option is read from the project's file: everyone with write access to the database can write a row. Raises
        ProjectError.
        """
        place = self.projects.checked(Path(root))  # before any file in it is read
        declared = await self._python_of(place) if declares else None
        # The interpreter is the one found on this machine. The one in the row is only for display.
        return Code(self.code.place(place), self.interpreters.of(place, declared).path)

    async def _python_of(self, place: Path) -> str | None:
        """Returns the option `python`. Reads it only when the file has changed, because a read starts a process."""
        code = self.code.place(place)
        state, known = _state_of(code / "pyproject.toml"), self._declared.get(place)
        if state is not None and known is not None and known[0] == state:
            return known[1]
        python = await self.reader.python(code)
        self._declared[place] = state, python
        return python


def _state_of(file: Path) -> object:
    """Returns what differs after a change of the file. None: it was changed a moment ago, and may change once more
    within the precision of its times, or it can't be read.
    """
    try:
        found = file.stat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_ctime_ns) if time.time() - found.st_ctime > SETTLED else None
