"""The answers of a crew as types. A missing member is None or empty. `Status.answer` holds the whole answer."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, get_args

from windlass.client.errors import CrewError, NotACrew

if TYPE_CHECKING:
    from collections.abc import Mapping

State = Literal["PENDING", "STARTED", "PENDING_HUMAN_INPUT", "SUCCESS", "FAILED"]
STATES: tuple[State, ...] = get_args(State)
STATE_OF: dict[str, State] = {
    "running": "STARTED",
    "pending_human_input": "PENDING_HUMAN_INPUT",
    "completed": "SUCCESS",
    "error": "FAILED",
}
"""The state for each `status`, for servers that send only `status`."""
LIVE_STATES: dict[str, State] = {"RUNNING": "STARTED", "PAUSED": "PENDING_HUMAN_INPUT"}
"""The state for each word that only the profile `live` has."""

Record = TypeVar("Record", bound="TaskOutput | Task | Warning_ | Waiting")
TIMES = {"started_at", "finished_at"}


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs of a crew. `required` holds names in the order of their first use in the crew's texts. `schema` is the
    JSON Schema of the inputs.
    """

    required: list[str]
    schema: dict[str, Any]

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Self:
        if not isinstance(answer.get("inputs"), list):
            raise _not_a_crew("inputs")
        return cls(answer["inputs"], _object(answer, "schema"))


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in a run. `seq` counts from 1 over all attempts of the kickoff. docs/reference/events.md
    lists the types and their payloads.
    """

    seq: int
    attempt: int
    type: str
    at: datetime
    payload: dict[str, Any]
    answer: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """The whole event, as the server sent it."""

    @classmethod
    def of(cls, member: Mapping[str, Any]) -> Self:
        try:
            at, payload = datetime.fromisoformat(member["at"]), dict(member["payload"])
            return cls(int(member["seq"]), int(member["attempt"]), str(member["type"]), at, payload, dict(member))
        except (KeyError, TypeError, ValueError):
            raise _not_a_crew("event") from None


@dataclass(frozen=True, slots=True)
class File:
    """A file that the run wrote. `path` is relative, with `/` between names. `size` is in bytes."""

    path: str
    size: int
    sha256: str
    media_type: str

    @classmethod
    def of(cls, member: Mapping[str, Any]) -> Self:
        path, size, sha256 = member.get("path"), member.get("size"), member.get("sha256")
        if not (isinstance(path, str) and isinstance(size, int) and isinstance(sha256, str)):
            raise _not_a_crew("files")
        return cls(path, size, sha256, str(member.get("media_type")))


@dataclass(frozen=True, slots=True)
class TaskOutput:
    """The output of one task. `execution_time` is in seconds."""

    task_id: str | None
    name: str | None
    output: str | None
    agent: str | None
    execution_time: float | None


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a kickoff. `json` is the structured output, or None if the crew has none."""

    output: str
    json: Any
    tasks: list[TaskOutput]

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Self:
        """Parses a result in either profile, `documented` or `live` (docs/reference/api.md)."""
        found = answer.get("result")
        if not isinstance(found, dict):
            found = {"output": found, "json": answer.get("result_json"), "tasks": answer.get("tasks_output")}
        output = found.get("output")
        tasks = [_record(TaskOutput, task) for task in _objects(found, "tasks")]
        return cls("" if output is None else str(output), found.get("json"), tasks)


@dataclass(frozen=True, slots=True)
class Task:
    """A task record. `state` is `pending_run`, `running`, `pending_human_input`, `completed`, `failed` or `skipped`."""

    task_id: str | None
    name: str | None
    agent: str | None
    state: str | None
    started_at: datetime | None
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class Warning_:  # noqa: N801 - Warning is a built-in name
    code: str | None
    message: str | None
    task_id: str | None


@dataclass(frozen=True, slots=True)
class Waiting:
    """The reason why a kickoff waits. `message` completes the sentence "It waits for ..."."""

    code: str | None
    message: str | None
    place: int | None


@dataclass(frozen=True, slots=True)
class HumanInput:
    """What a kickoff asks a person. `task` is the name of the task that asks, `method` that of the method of a flow.
    `draft` is the text to judge. `choices` are the words that decide, none if any text does.
    """

    task_id: str
    task: str | None
    method: str | None
    question: str
    draft: str
    choices: list[str]
    asked_at: datetime | None
    expires_at: datetime | None

    @classmethod
    def of(cls, member: Mapping[str, Any]) -> Self:
        choices = _object(member, "response_schema").get("enum")
        return cls(
            task_id=str(member.get("task_id")),
            task=member.get("task"),
            method=member.get("method"),
            question=str(member.get("question") or ""),
            draft=str(member.get("draft") or ""),
            choices=[str(one) for one in choices] if isinstance(choices, list) else [],
            asked_at=_moment(member.get("asked_at")),
            expires_at=_moment(member.get("expires_at")),
        )


@dataclass(frozen=True, slots=True)
class Status:
    """The status of a kickoff. `result` is set if it succeeded, `reason` and `error` if it failed, `human_input` while
    it waits for a person. `execution_time` is in seconds. `files` are the first 100 files that the run wrote.
    """

    kickoff_id: str
    state: State
    created_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    attempt: int | None
    meta: dict[str, Any] | None
    tasks: list[Task]
    warnings: list[Warning_]
    files: list[File]
    current_task: str | None
    completed_tasks: int | None
    total_tasks: int | None
    waiting_for: Waiting | None
    human_input: HumanInput | None
    result: Result | None
    reason: str | None
    error: str | None
    token_usage: dict[str, int]
    execution_time: float | None
    answer: dict[str, Any] = field(repr=False)

    @property
    def has_ended(self) -> bool:
        return self.state in {"SUCCESS", "FAILED"}

    @property
    def has_failed(self) -> bool:
        return self.state == "FAILED"

    @classmethod
    def of(cls, answer: dict[str, Any]) -> Self:
        state, progress, waiting = _state(answer), _object(answer, "progress"), _object(answer, "waiting_for")
        asked = _object(answer, "human_input")
        return cls(
            kickoff_id=str(answer.get("kickoff_id")),
            state=state,
            created_at=_moment(answer.get("created_at")),
            started_at=_moment(answer.get("started_at")),
            finished_at=_moment(answer.get("finished_at")),
            attempt=answer.get("attempt"),
            meta=answer.get("meta"),
            tasks=[_record(Task, task) for task in _objects(answer, "tasks")],
            warnings=[_record(Warning_, warning) for warning in _objects(answer, "warnings")],
            files=[File.of(file) for file in _objects(answer, "files")],
            current_task=answer.get("current_task"),
            completed_tasks=progress.get("completed_tasks"),
            total_tasks=progress.get("total_tasks"),
            waiting_for=_record(Waiting, waiting) if waiting else None,
            human_input=HumanInput.of(asked) if asked else None,
            result=Result.of(answer) if state == "SUCCESS" else None,
            reason=answer.get("reason"),
            error=answer.get("error"),
            token_usage=_object(answer, "token_usage"),
            execution_time=answer.get("execution_time"),
            answer=answer,
        )


@dataclass(frozen=True, slots=True)
class Resumed:
    """The effect of an answer. `status` is `resumed`, `retrying` or `completed`. `message` is for a person."""

    kickoff_id: str
    status: str
    message: str | None

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Self:
        if not isinstance(answer.get("status"), str):
            raise _not_a_crew("status")
        return cls(str(answer.get("kickoff_id")), answer["status"], answer.get("message"))


@dataclass(frozen=True, slots=True)
class Stopped:
    """The effect of a stop. `message` describes it for a person."""

    kickoff_id: str
    state: State
    message: str | None

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Self:
        return cls(str(answer.get("kickoff_id")), _state(answer), answer.get("message"))


class KickoffFailed(CrewError):  # noqa: N818 - the name describes the kickoff
    def __init__(self, kickoff: Status) -> None:
        reason = kickoff.error or "the server gives no reason"
        super().__init__(f"Kickoff {kickoff.kickoff_id} failed ({kickoff.reason or 'error'}): {reason}")
        self.kickoff = kickoff


class StillRunning(CrewError):  # noqa: N818 - the name describes the kickoff
    def __init__(self, kickoff: Status, seconds: float) -> None:
        super().__init__(
            f"Kickoff {kickoff.kickoff_id} has not ended after {seconds:g} s.",
            "It is still running: wait for it again, or stop it.",
        )
        self.kickoff = kickoff


def _state(answer: Mapping[str, Any]) -> State:
    given = answer.get("state", STATE_OF.get(str(answer.get("status"))))
    found = LIVE_STATES.get(str(given)) or next((state for state in STATES if state == given), None)
    if found is None:
        raise _not_a_crew("state")
    return found


def _record(kind: type[Record], members: Mapping[str, Any]) -> Record:
    """Builds a record from the members of an object. The object may have fewer or more members than the record."""
    return kind(**{one.name: _value(one.name, members.get(one.name)) for one in fields(kind)})


def _value(name: str, value: Any) -> Any:
    return _moment(value) if name in TIMES else value


def _object(answer: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = answer.get(name)
    return found if isinstance(found, dict) else {}


def _objects(answer: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    found = answer.get(name)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _moment(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None


def _not_a_crew(missing: str) -> NotACrew:
    return NotACrew(
        200,
        f"The answer has no `{missing}`, so it is not from a crew.",
        "Check the address.",
    )
