"""The messages on the sockets between the worker, the zygote and a child. `frames` describes their encoding."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from typing import Annotated, Any

from windlass_child.protocol.fields import (
    DEEPEST,
    LARGEST_ENTRY,
    LARGEST_EVENT,
    LARGEST_OUTPUT,
    LARGEST_QUESTION,
    LARGEST_RESULT,
    MB,
    Count,
    EndOfTask,
    FailureReason,
    Key,
    KnownTask,
    Number,
    Pid,
    Position,
    SecretInPrompt,
    Stage,
    Time,
)
from windlass_child.protocol.validation import Apart, Ascii, Nested, WaitStatuses
from windlass_child.protocol.working_folder import WORK

DUMP_SIGNAL = signal.SIGUSR2
"""On this signal a child writes the stack of each of its threads to the file whose descriptor came with its `Born`."""

# worker -> zygote


@dataclass(frozen=True, slots=True)
class Fork:
    """Starts a child. Its descriptors are the child's socket, the write ends of its standard output and standard error,
    and with `user` the door at which the server permits this user (namespaces.enter).

    `folder` is the folder of its run (ProcessEnvironment). `start` is "fork", or "exec" for a fresh interpreter that
    shares nothing with the zygote. `lease` is as in Lease. `tasks` is the number of processes and threads of its user
    at which it starts no other ones, None for that of the zygote. `user` is the user that it becomes, None for that of
    the zygote. With `ports` it has a network of its own, in which the worker takes the connections to these ports.
    `places` are the paths that it may use beside those of the machine, with what it may do there
    (windlass_child.process.places); None for all that its user may use.
    """

    child: str
    folder: str
    start: str = "fork"
    lease: float | None = None
    tasks: int | None = None
    user: int | None = None
    ports: list[int] | None = None
    places: dict[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Kill:
    """Ends a child and every process below it at once. The answer is its Exited.

    The zygote kills the child because only the zygote knows whether the process id is still the child's.
    """

    child: str


@dataclass(frozen=True, slots=True)
class Signal:
    """Sends a signal to a child, and with `below` also to every process below it."""

    child: str
    number: int
    below: bool = False


@dataclass(frozen=True, slots=True)
class Preload:
    """Names the project whose modules the zygote imports too, and their environment. It is the first message to such a
    zygote. `secrets` are as in ProcessEnvironment.
    """

    project: Project
    environment: dict[str, str]
    secrets: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Lease:
    """Sets the end of a run's lease: this second of CLOCK_BOOTTIME, unless another Lease with a later one follows.

    The worker sends it to the child, and with the child's name as `child` to the zygote, which ends a child that can't
    end itself.
    """

    until: float
    child: str = ""


# zygote -> worker


@dataclass(frozen=True, slots=True)
class Ready:
    """The zygote has imported and warmed its modules. From now on it answers Fork.

    `threads` names the threads that the project started at import. A fork would not copy them, so none is made then.
    `degraded` are codes of what Windlass can't do with this release of the framework. `fault` is the reason why the
    framework could not run a crew as Windlass runs it, "" if it could.
    """

    python: str
    framework: str | None
    version: str | None
    threads: str = ""
    degraded: list[Key] = field(default_factory=list)
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Unready:
    """The zygote can't serve and ends, because the framework is missing or can't be imported."""

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
    """Reports the child's wait status from the kernel (os.WIFEXITED and related functions read it).

    `lapsed` is true when the zygote killed the child, or the child itself, because its lease had ended.
    """

    child: str
    pid: Pid
    status: Annotated[int, WaitStatuses()]
    lapsed: bool = False


# worker -> child


@dataclass(frozen=True, slots=True)
class Project:
    """The place and the entry point of a crew's code.

    `kind` is the name of a module in windlass_child.kinds. `entrypoint` is "module:function" for a function, and
    "module" or "module:Class" for a crew.
    """

    kind: str
    root: str
    entrypoint: str


@dataclass(frozen=True, slots=True)
class ProcessEnvironment:
    """The environment and the folder of a child, set before a line of the project runs.

    `environment` is the complete environment. `folder` is a folder that no other child uses, with the folders
    working_folder.PLACES. The working folder among them may have copies of the project's files. `secrets` are the names
    of the variables whose values are masked everywhere. With `proxied`, the proxy in the environment reaches this
    machine too.
    """

    environment: dict[str, str]
    folder: str
    secrets: list[str] = field(default_factory=list)
    proxied: bool = False

    @property
    def working_folder(self) -> str:
        return f"{self.folder}/{WORK}"


@dataclass(frozen=True, slots=True)
class Inspect:
    project: Project
    process_environment: ProcessEnvironment


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of a run's use; None for no limit. `result_limit` is in bytes of JSON.

    `tokens_used` and `model_calls_made` are the sums of the kickoff's earlier attempts, which count too.
    """

    token_limit: int | None = None
    model_call_limit: int | None = None
    result_limit: int | None = None
    tokens_used: int = 0
    model_calls_made: int = 0


@dataclass(frozen=True, slots=True)
class JournalReplay:
    """An entry of the journal that an earlier attempt wrote. All are sent before `Run`, in the order of their numbers.

    `record` is the record of its `JournalAppend`. `output` is its output if that was stored separately.
    """

    number: Number
    key: str
    record: Annotated[str, Ascii()]
    output: str | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """`secret_in_prompt` is the effect of the value of a secret variable in a prompt.

    With `reuse` the child answers `Begun` at once. If the run succeeds and leaves nothing behind, the child sends
    `Idle` after its answer, and waits for another run of the same crew in the same environment.
    """

    kickoff_id: str
    attempt: int
    project: Project
    process_environment: ProcessEnvironment
    inputs: dict[str, Any]
    budget: Budget = field(default_factory=Budget)
    secret_in_prompt: SecretInPrompt = "warn"  # noqa: S105 - no password
    reuse: bool = False


@dataclass(frozen=True, slots=True)
class NextRun:
    """All messages after this one are of the next run of a child that sent `Idle`."""


@dataclass(frozen=True, slots=True)
class Quit:
    """Ends a child that sent `Idle`."""


@dataclass(frozen=True, slots=True)
class Abort:
    """Asks the run to end at its next model call, tool call or step. Any later answer counts as the end that was asked
    for.
    """

    message: str


@dataclass(frozen=True, slots=True)
class JournalCommitted:
    """The `JournalAppend` with this number, and all messages before it, are committed: the run may go on."""

    number: Number


@dataclass(frozen=True, slots=True)
class Answered:
    """A person's answer to the question with this number (Asked.number).

    `feedback` is the person's text: the changes that the person wants, or one of `Asked.choices`. The answers to
    questions of earlier attempts are sent before `Run`, after the `JournalReplay` of all entries. The answer to a
    question with `Asked.waits` may follow at any time.
    """

    number: Number
    approved: bool
    feedback: str = ""


# child -> worker


@dataclass(frozen=True, slots=True)
class Listening:
    """The first message of a child with a network of its own (Fork.ports). It carries the sockets that listen there."""


@dataclass(frozen=True, slots=True)
class Born:
    """The first message of a child, but for `Listening`. It carries the descriptors of the files that exist, in this
    order.

    `memory` is the child's /proc/self/smaps_rollup, which nobody else may open once the child is not dumpable. `stacks`
    is the file that the child writes to at DUMP_SIGNAL.
    """

    memory: bool = False
    stacks: bool = False


@dataclass(frozen=True, slots=True)
class Begun:
    """A child with `Run.reuse` has received its order, and runs it."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The project of a run is imported: the run begins."""


@dataclass(frozen=True, slots=True)
class Idle:
    """The run has ended and its process is as it was before the run. It can take another one (`NextRun`)."""


@dataclass(frozen=True, slots=True)
class Inspected:
    """The manifest of the inspected project as plain values (windlass.kickoffs.manifest gives it its type)."""

    manifest: Annotated[dict[str, Any], Apart(MB, read=True)]


@dataclass(frozen=True, slots=True)
class TasksKnown:
    """The tasks of the crew that was built for this run, in the order of the crew."""

    tasks: Annotated[list[KnownTask], Apart(2 * MB, read=True)]


@dataclass(frozen=True, slots=True)
class TaskStarted:
    """`position` counts from 0 in the order of TasksKnown. A task that is not in TasksKnown has the next free one."""

    position: Position
    key: Key
    name: str | None
    agent: str | None
    at: Time


@dataclass(frozen=True, slots=True)
class TaskEnded:
    """`state` is completed, failed or skipped. Only a completed task has `output` and `seconds`."""

    position: Position
    state: EndOfTask
    at: Time
    output: Annotated[str | None, Apart(LARGEST_OUTPUT)] = None
    agent: str | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class JournalAppend:
    """A finished step of the run, which no later attempt runs again. The child waits for its `JournalCommitted`.
    `number` continues after the last `JournalReplay`. `key` names the step and is the same in every attempt. `record`
    is JSON text that only a child reads. `position` is the position of the step's task record, if it has one; a later
    attempt keeps that record. With `output_elsewhere` the output is in the TaskEnded just before, and not in `record`.
    `files` is false if the run has written no files into its working folder: the server need not scan it now.
    """

    number: Number
    key: str
    record: Annotated[str, Ascii(), Apart(LARGEST_ENTRY, raw=True)]
    position: Position | None = None
    output_elsewhere: bool = False
    files: bool = True


@dataclass(frozen=True, slots=True)
class Asked:
    """A question to a person. `draft` is the text that the person judges, "" if there is none.

    The message is an entry of the journal too: a later attempt gets `number`, `key` and `record` as a `JournalReplay`.
    No `JournalCommitted` follows. `position`, `record` and `files` are those of JournalAppend. `method` is the method
    of the flow that asks, None for a task. `choices` are the words that decide, none if any text does. Each question
    has a key of its own. An attempt repeats a question that was not answered, with the same key and a new number.

    Without `waits`, this is the last message of the attempt: the process ends with the exit status 0, and the next
    attempt starts after the answer. With `waits`, the process waits for its `Answered`. A process has at most one
    question that is not answered.
    """

    number: Number
    key: str
    question: Annotated[str, Apart(LARGEST_QUESTION, read=True)]
    draft: Annotated[str, Apart(LARGEST_OUTPUT)]
    position: Position | None
    method: str | None
    choices: Annotated[list[str], Apart(LARGEST_QUESTION, read=True)]
    record: Annotated[str, Ascii(), Apart(LARGEST_ENTRY, raw=True)]
    waits: bool
    files: bool = True


@dataclass(frozen=True, slots=True)
class ModelCalled:
    """Sent just before each model call, with or without Tokens. Later attempts get the number (model_calls_made)."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """The use of one answered model call, in tokens."""

    prompt: Count = 0
    completion: Count = 0
    total: Count = 0
    cached_prompt: Count = 0
    reasoning: Count = 0


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in the run, as the framework describes it."""

    type: str
    at: Time
    payload: Annotated[dict[str, Any], Nested(DEEPEST), Apart(LARGEST_EVENT, always=True)] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Warned:
    code: str
    message: str
    task: int | None = None


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The result of the run. `structured` is JSON text if the crew returned structured output. The server stores this
    text without parsing it.

    With `output_of` the output is that of the task at this position, as in its TaskEnded.
    """

    output: Annotated[str, Apart(LARGEST_RESULT)]
    structured: Annotated[str | None, Ascii(), Apart(LARGEST_RESULT, raw=True)] = None
    output_of: Position | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """`message` is one line for the person who started the kickoff. `trace` is for the log and the event `traceback`,
    never for a status.

    `stage` is "load" (the project could not be imported or built), "inputs" (the project refused its inputs) or "run".
    `reason` is "limit" when the budget was used up, "secrets" when a prompt with a secret was refused, else "error".
    """

    stage: Stage
    message: str
    trace: Annotated[str, Apart(2 * MB, read=True)] = ""
    hint: str = ""
    reason: FailureReason = "error"


Message = (
    Fork | Kill | Signal | Preload | Lease | Ready | Unready | Forked | NotForked | Exited | Inspect | JournalReplay
    | Run | NextRun | Quit | Abort | JournalCommitted | Answered | Listening | Born | Begun | Loaded | Idle | Inspected
    | TasksKnown | TaskStarted | TaskEnded | JournalAppend | Asked | ModelCalled | Tokens | Event | Warned | Succeeded
    | Failed
)  # fmt: skip

FROM_CHILD = (
    Listening, Born, Begun, Loaded, Idle, Inspected, TasksKnown, TaskStarted, TaskEnded, JournalAppend, Asked,
    ModelCalled, Tokens, Event, Warned, Succeeded, Failed,
)  # fmt: skip
FROM_ZYGOTE = (Ready, Unready, Forked, NotForked, Exited)

TYPES: dict[str, type[Any]] = {kind.__name__: kind for kind in Message.__args__}
