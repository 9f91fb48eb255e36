"""Describes a run to the runner (RunSpec), configures the runner, and makes the message that starts a run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from windlass.errors import WindlassError
from windlass.kickoffs.egress import UNRESTRICTED, Egress
from windlass.kickoffs.limits import Limits
from windlass.runner.egress.outside import Outside
from windlass.runner.prepared_interpreters import Prepared
from windlass_child.masking.secret_parts import is_of_the_machine
from windlass_child.process.sockets import CLOSED
from windlass_child.protocol.frames import encode
from windlass_child.protocol.messages import Answered, Budget, Inspect, JournalReplay, Message, Project, Run

if TYPE_CHECKING:
    from pathlib import Path

    from windlass.accounts import Account
    from windlass.kickoffs.boundary_parts import BoundaryPart
    from windlass.kickoffs.opened_files import Files
    from windlass.kickoffs.outcome import Outcome
    from windlass.runner.cgroups import Cgroups
    from windlass.runner.run_folder import RunFolder
    from windlass_child.protocol.messages import ProcessEnvironment


Replay = Callable[[], AsyncIterator[Sequence[JournalReplay | Answered]]]
"""Yields the entries of earlier attempts in the order of their numbers, in parts: a whole journal may be large. The
answers of people to questions of earlier attempts follow.
"""


async def no_journal() -> AsyncIterator[Sequence[JournalReplay | Answered]]:
    """Is the Replay of a first attempt."""
    none: tuple[Sequence[JournalReplay | Answered], ...] = ()
    for part in none:
        yield part


class RunHooks(Protocol):
    """Is called at the stages of a run, in the order of the methods.

    - `begin`: the working folder is made.
    - `wait_for_slot`: returns when the process may start. It is called again for a second process.
    - `process_started`: the process lives. It is called again for a second process.
    - `end`: the process has ended or is idle. It is not called without a process, or after the end of the lease.
    - `process_released`: the process is gone or waits for another run. The folder is removed then.
    """

    async def begin(self, folder: RunFolder) -> None: ...

    async def wait_for_slot(self) -> None: ...

    def process_started(self) -> None: ...

    async def end(self, outcome: Outcome) -> None: ...

    def process_released(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Boundary:
    """What separates the processes of a deployment's crew from the machine and from other crews.

    `user` is the number of the user of the deployment, where the server is root and gives each one a user; None for
    the user of all crews. `files` are further paths that it may use, each with READ or WRITE
    (windlass_child.process.places); None for those of the runner's configuration. `egress` is what it may connect to.
    """

    user: int | None = None
    files: Files | None = None
    egress: Egress = UNRESTRICTED


@dataclass(frozen=True, slots=True)
class RunSpec:
    """One attempt of one kickoff.

    `preload` is the framework that its zygote imports first, or None. With `preload_project` the zygote imports the
    project's own modules too, in its environment; `digest` identifies the state of the project's files. `start` is
    "fork", or "exec" for a fresh interpreter. `seconds_left` is the rest of `limits.timeout`, which counts from the
    first attempt's start. `isolated` gives the run a zygote that no other run shares. `lease` is the second of
    CLOCK_BOOTTIME until which the run may go on unless its LeaseHandle is extended; None for no lease. `journal`
    reads the entries of earlier attempts. `tokens_used` and `model_calls_made` are the sums of earlier attempts, and
    count against the limits. `hooks` are called at its stages; None for no calls.
    `secrets` are the names of the variables in `environment` whose values are masked in all that leaves the process.
    `secret_in_prompt` is the effect of such a value in a prompt. `reuse` is the number of runs that a process may take,
    one after the other: runs of the same version of one crew, which `version` names, in the same environment.
    `boundary` separates it from the machine and from other crews.
    """

    kickoff_id: str
    attempt: int
    interpreter: Path
    preload: str | None
    project: Project
    environment: Mapping[str, str] = field(repr=False)
    inputs: dict[str, Any] = field(repr=False)
    limits: Limits = field(default_factory=Limits)
    seconds_left: float | None = None
    preload_project: bool = False
    digest: str = ""
    start: Literal["fork", "exec"] = "fork"
    isolated: bool = False
    lease: float | None = None
    journal: Replay = no_journal
    tokens_used: int = 0
    model_calls_made: int = 0
    hooks: RunHooks | None = None
    secrets: frozenset[str] = frozenset()
    secret_in_prompt: Literal["warn", "refuse"] = "warn"  # noqa: S105 - no password
    reuse: int = 1
    version: str = ""
    boundary: Boundary = field(default_factory=Boundary)

    @property
    def name(self) -> str:
        return f"{self.kickoff_id}-{self.attempt}"

    @property
    def is_reusing(self) -> bool:
        """Whether its process may take other runs. A run that lost its process before has one of its own."""
        return self.reuse > 1 and not self.isolated


@dataclass(frozen=True, slots=True)
class Output:
    """A line that the crew's process wrote, without its line end. `at` is Unix time in seconds."""

    stream: Literal["stdout", "stderr"]
    line: str
    at: float


@dataclass(frozen=True, slots=True)
class Preparing:
    """Reports what a run waits for before it begins.

    - "zygote": a zygote is being started
    - None: the process has started, after such a wait
    - "import": the import of the project's code takes long
    """

    what: Literal["zygote", "import"] | None


@dataclass(frozen=True, slots=True)
class ResultSent:
    """Reports that the run has sent its last message, and ends soon. With `idle_soon` its process will then wait for
    another run, and runs no exit handlers.
    """

    idle_soon: bool


Report = Callable[[Message | Output | Preparing | ResultSent], Awaitable[None]]
"""Called with each message or line of a run. Each source (messages, stdout, stderr) is read on only after the call."""


def message_of(spec: RunSpec, environment: ProcessEnvironment) -> Run:
    limits = spec.limits
    budget = Budget(
        limits.token_limit, limits.model_call_limit, limits.result_limit, spec.tokens_used, spec.model_calls_made
    )
    return Run(
        spec.kickoff_id,
        spec.attempt,
        spec.project,
        environment,
        spec.inputs,
        budget,
        spec.secret_in_prompt,
        spec.is_reusing,
    )


def sendable(message: Run | Inspect) -> bytes:
    try:
        return encode(message)
    except (ValueError, TypeError, RecursionError) as error:
        raise WindlassError(f"the inputs can't be given to the crew: {error}.") from error


async def discard(_: Message | Output | Preparing | ResultSent) -> None:
    pass


TASKS_OF_A_PROCESS = 8
"""Processes and threads for each process of a run's process_limit."""


@dataclass(frozen=True, slots=True)
class TaskBounds:
    """How many processes and threads the user of crews may have, in addition to the existing ones (RLIMIT_NPROC).

    `total` bounds those of all crews and zygotes together. With `others` each run has a lower bound: `others` is the
    room for the other runs, and `least` the smallest room for the run itself.
    """

    total: int
    others: int | None = None
    least: int = 2048

    def of_run(self, process_limit: int | None) -> int | None:
        """Returns how many processes and threads there may be in addition to those at the start of the run; None where
        the run has no bound of its own.
        """
        if self.others is None or process_limit is None:
            return None
        return self.others + max(self.least, TASKS_OF_A_PROCESS * process_limit)


@dataclass(frozen=True, slots=True)
class RunnerConfig:
    """Configures the processes of a runner.

    `grace` is how many seconds a run has to end after a request. A zygote that was unused for `zygote_idle` seconds is
    stopped. All zygotes together may hold `zygote_memory` bytes. `crew_account` is the user that crews run as, None for
    the server's own. `tasks` bounds the processes and threads of this user. `namespaces` is whether the machine permits
    namespaces to crews: one zygote then serves the users of many deployments (Boundary.user), else each has its own.
    `sockets` is what it permits without namespaces (windlass_child.process.sockets).
    `boundary` describes what separates runs here.
    `closed` are folders of the server that no crew may reach, and `files` those that crews may use which name none.
    `prepared` is the interpreter that this user runs in place of Windlass's own. `limits` apply to inspections whose
    project sets none. With `cgroups` each run has a cgroup; without, its limits are polled. `egress` is that of
    inspections. `outside` looks up the hosts that runs connect to.
    """

    grace: float = 5.0
    zygote_idle: float = 600.0
    zygote_memory: int | None = None
    tasks: TaskBounds | None = None
    crew_account: Account | None = None
    namespaces: bool = False
    sockets: str = CLOSED
    boundary: tuple[BoundaryPart, ...] = ()
    prepared: Prepared = field(default_factory=Prepared)
    limits: Limits = field(default_factory=Limits)
    cgroups: Cgroups | None = None
    closed: tuple[Path, ...] = ()
    files: Files = ()
    egress: Egress = UNRESTRICTED
    outside: Outside = field(default_factory=Outside)


def machine_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables of the server's environment that every crew gets: program paths, language, time zone."""
    return {name: value for name, value in environment.items() if is_of_the_machine(name)}
