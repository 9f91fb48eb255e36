"""Every message that crosses a socket between the worker, the zygote and a child; `frames` says how."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

from windlass_crewside.fields import Ascii, Between, Nested, PrintableAscii

DUMP_SIGNAL = signal.SIGUSR2
"""Has a child write where each of its threads stands to the file whose descriptor came with its `Born`."""


class WaitStatuses:
    """Of processes that have ended, as the kernel gives them."""

    def __contains__(self, status: Any) -> bool:
        return status in range(1 << 16) and (os.WIFEXITED(status) or os.WIFSIGNALED(status))


Pid = Annotated[int, range(2, 1 << 31)]
"""Signals to 0 and 1 go to all that there are."""

Position = Annotated[int, range(1 << 31)]
Number = Annotated[int, range(1, 1 << 31)]
"""Of an entry in a kickoff's journal, from 1."""

Time = Annotated[float, Between(-62_135_596_800, 253_402_300_799)]
"""Unix time in seconds, of the years 1 to 9999."""

Json = Annotated[dict[str, Any], Nested(400)]
Key = Annotated[str, PrintableAscii()]
Stage = Annotated[str, frozenset({"load", "inputs", "run"})]
FailureReason = Annotated[str, frozenset({"error", "limit"})]
EndOfTask = Annotated[str, frozenset({"completed", "failed", "skipped"})]


# worker -> zygote


@dataclass(frozen=True, slots=True)
class Fork:
    """Start a child. Descriptors with it: its socket, the write ends of its standard output and standard error.

    `start` is "fork", or "exec" for a fresh interpreter that shares nothing with the zygote.
    """

    child: str
    start: str = "fork"


@dataclass(frozen=True, slots=True)
class Kill:
    """End a child and every process below it at once; the answer is its Exited.

    The zygote does it because only it knows whether the process id is still the child's.
    """

    child: str


@dataclass(frozen=True, slots=True)
class Signal:
    """Send a signal to a child, and with `below` to every process below it."""

    child: str
    number: int
    below: bool = False


@dataclass(frozen=True, slots=True)
class Preload:
    """The first message to a zygote that is to import a project's own modules too: which, and in what environment."""

    project: Project
    environment: dict[str, str]


@dataclass(frozen=True, slots=True)
class Lease:
    """How long a run may go on: until this second of CLOCK_BOOTTIME, unless a later one is told in time.

    It goes to the child itself, and with its name as `child` to its zygote, which ends it where it can't do so itself.
    """

    until: float
    child: str = ""


# zygote -> worker


@dataclass(frozen=True, slots=True)
class Ready:
    """The zygote has imported and warmed what it was asked to; it answers Fork from now on."""

    python: str
    framework: str | None
    version: str | None


@dataclass(frozen=True, slots=True)
class Unready:
    """The zygote can't serve, and ends: the framework is missing or can't be imported."""

    message: str
    missing_package: str | None = None


@dataclass(frozen=True, slots=True)
class Forked:
    child: str
    pid: Pid


@dataclass(frozen=True, slots=True)
class NotForked:
    child: str
    message: str


@dataclass(frozen=True, slots=True)
class Exited:
    """The child's wait status as the kernel gave it (os.WIFEXITED and friends read it).

    `lapsed` says that it was killed, by the zygote or by itself, because its lease had ended.
    """

    child: str
    pid: Pid
    status: Annotated[int, WaitStatuses()]
    lapsed: bool = False


# worker -> child


@dataclass(frozen=True, slots=True)
class Project:
    """Where a crew's code is and how it is entered.

    `kind` is the name of a module in windlass_crewside.frameworks; `entrypoint` is where to begin: "module:function"
    for a function, "module" or "module:Class" for a crew.
    """

    kind: str
    root: str
    entrypoint: str


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a child makes its own before a line of the project runs.

    `environment` is all of it; `folder` is the child's alone, its working directory, and removed after it.
    """

    environment: dict[str, str]
    folder: str


@dataclass(frozen=True, slots=True)
class Inspect:
    project: Project
    surroundings: Surroundings


@dataclass(frozen=True, slots=True)
class Budget:
    """What a run may use up at most; None for as much as it likes. `result_limit` is in bytes of JSON.

    `tokens_used` and `model_calls_made` are those of the kickoff's earlier attempts, which count too.
    """

    token_limit: int | None = None
    model_call_limit: int | None = None
    result_limit: int | None = None
    tokens_used: int = 0
    model_calls_made: int = 0


@dataclass(frozen=True, slots=True)
class Remember:
    """An entry of the journal that an earlier attempt wrote. All come before `Run`, in the order of their numbers.

    `record` is what its `Journaled` held; `output` is what belongs to it and was kept apart.
    """

    number: Number
    key: str
    record: Annotated[str, Ascii()]
    output: str | None = None


@dataclass(frozen=True, slots=True)
class Run:
    kickoff_id: str
    attempt: int
    project: Project
    surroundings: Surroundings
    inputs: dict[str, Any]
    budget: Budget = field(default_factory=Budget)


@dataclass(frozen=True, slots=True)
class Abort:
    """Come to an end at the next model call, tool call or step; whatever the run answers then, it was asked to end."""

    message: str


@dataclass(frozen=True, slots=True)
class Written:
    """The `Journaled` with this number, and all that was told before it, is committed: the run may go on."""

    number: Number


# child -> worker


@dataclass(frozen=True, slots=True)
class Born:
    """The first message of a child. With it come the descriptors of those files that are there, in this order:

    `memory`, its /proc/self/smaps_rollup, which nobody else may open once the child is not dumpable; `stacks`, what it
    writes to at DUMP_SIGNAL.
    """

    memory: bool = False
    stacks: bool = False


@dataclass(frozen=True, slots=True)
class Inspected:
    """What was found in the project: a manifest as plain values (windlass.kickoffs.manifest gives it its type)."""

    manifest: dict[str, Any]


class KnownTask(TypedDict):
    key: Key
    name: str | None
    agent: str | None


@dataclass(frozen=True, slots=True)
class TasksKnown:
    """The tasks of the crew that was built for this run, in its order."""

    tasks: list[KnownTask]


@dataclass(frozen=True, slots=True)
class TaskStarted:
    """`position` counts from 0 in the order of TasksKnown; a task that was not in it comes with the next free one."""

    position: Position
    key: Key
    name: str | None
    agent: str | None
    at: Time


@dataclass(frozen=True, slots=True)
class TaskEnded:
    """`state` is completed, failed or skipped; `output` and `seconds` are known of a completed one."""

    position: Position
    state: EndOfTask
    at: Time
    output: str | None = None
    agent: str | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Journaled:
    """A step of the run that is finished, and that no later attempt is to run again. The child waits for its `Written`.

    `number` counts on from the last `Remember`. `key` names the step, the same in every attempt; `record` is JSON text
    that only the child reads again. `position` is that of its task record, where it has one, which stays as it is; with
    `apart` the output in that, told just before in a TaskEnded, belongs to the step and is not in `record`.
    """

    number: Number
    key: str
    record: Annotated[str, Ascii()]
    position: Position | None = None
    apart: bool = False


@dataclass(frozen=True, slots=True)
class ModelCalled:
    """Told just before a model is called, and of models that tell no tokens, too.

    Later attempts are told how many there were (`Budget.model_calls_made`).
    """


@dataclass(frozen=True, slots=True)
class Tokens:
    """What one answered model call used, in tokens."""

    prompt: int = 0
    completion: int = 0
    total: int = 0
    cached_prompt: int = 0
    reasoning: int = 0


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in the run, as the framework tells it."""

    type: str
    at: Time
    payload: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Warned:
    code: str
    message: str
    task: int | None = None


@dataclass(frozen=True, slots=True)
class Succeeded:
    """`structured` is JSON text where the crew gave structured output: what stores it need not read it.

    With `output_of` the output is that of the task at this position, as it was told in its TaskEnded.
    """

    output: str
    structured: Annotated[str, Ascii()] | None = None
    output_of: Position | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """`message` is one line for the person who started the kickoff, `trace` is for the log, never for the API.

    `stage` is "load" (the project could not be imported or built), "inputs" (it refused them) or "run"; `reason` is
    "limit" when its budget was used up, else "error".
    """

    stage: Stage
    message: str
    trace: str = ""
    hint: str = ""
    reason: FailureReason = "error"


Message = (
    Fork | Kill | Signal | Preload | Lease | Ready | Unready | Forked | NotForked | Exited | Inspect | Remember | Run
    | Abort | Written | Born | Inspected | TasksKnown | TaskStarted | TaskEnded | Journaled | ModelCalled | Tokens
    | Event | Warned | Succeeded | Failed
)  # fmt: skip

TYPES: dict[str, type[Any]] = {kind.__name__: kind for kind in Message.__args__}
