"""A rule of a script for the offline model: the prompts that it fits, and their answer."""

import json
import re
from collections.abc import Collection
from fnmatch import fnmatchcase
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, model_validator
from pydantic_core import to_jsonable_python

from windlass.offline_model.answers import ChatRequest, ToolCall, functions, made_arguments, one_line, turn
from windlass.offline_model.faults import Seconds

ANSWERS = ("text", "json", "tool", "calls", "error")


def _listed(given: object) -> object:
    return [given] if isinstance(given, str) else given


def _words(given: str) -> str:
    _hold_some(given.strip())
    return one_line(given)


def _hold_some(given: Collection[str]) -> Collection[str]:
    if not given:
        raise ValueError("must hold a word, or any prompt would fit")
    return given


def _pattern(given: object) -> re.Pattern[str]:
    if not isinstance(given, str):
        raise ValueError("must be a regular expression in quotes")  # noqa: TRY004 - pydantic reports this type
    try:
        return re.compile(given)
    except re.error as error:
        raise ValueError(f"is no regular expression: {error}") from None


def _json_text(given: object) -> str:
    """Returns the value as JSON. Dates of TOML become text."""
    try:
        return json.dumps(to_jsonable_python(given), allow_nan=False)
    except ValueError:
        raise ValueError("holds a number that JSON does not have: nan or inf") from None


def _arguments(given: object) -> str:
    if not isinstance(given, dict):
        raise ValueError('must be a table such as { topic = "tea" }')  # noqa: TRY004 - pydantic reports this type
    return _json_text(given)


JsonText = Annotated[str, PlainValidator(_json_text)]
Arguments = Annotated[str, PlainValidator(_arguments)]
Name = Annotated[str, Field(min_length=1)]


class Call(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    tool: Name
    arguments: Arguments = ""


class Rule(BaseModel):
    """One rule. `json` and `arguments` are kept as text.

    A call without `arguments` gets arguments that fit the tool's schema.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    contains: Annotated[
        list[Annotated[str, AfterValidator(_words)]], BeforeValidator(_listed), AfterValidator(_hold_some)
    ] = []
    matches: Annotated[re.Pattern[str] | None, PlainValidator(_pattern)] = None
    model: str = "*"
    times: int = Field(0, ge=1)
    text: str = ""
    json_text: JsonText = Field("", alias="json")
    tool: Name = ""
    arguments: Arguments = ""
    calls: list[Call] = Field([], min_length=1, max_length=100)
    error: int = Field(0, ge=400, le=599)
    latency: Annotated[Seconds | None, PlainValidator(Seconds.of)] = None

    @model_validator(mode="after")
    def _answers_once(self) -> Self:
        given = [name for name in ANSWERS if name in self.named]
        if len(given) > 1:
            raise ValueError(f"has {len(given)} answers, {' and '.join(given)}: keep one of them")
        if not given and self.latency is None:
            raise ValueError(f"has no answer: add one of {', '.join(ANSWERS)}")
        if "arguments" in self.named and "tool" not in self.named:
            raise ValueError("has arguments, but no tool: add one")
        return self

    @property
    def named(self) -> set[str]:
        """The keys of the rule that the file sets."""
        return {type(self).model_fields[name].alias or name for name in self.model_fields_set}

    def fits(self, request: ChatRequest, prompt: str) -> bool:
        """Returns whether the rule fits a request whose prompt has this text."""
        return (
            all(words in prompt for words in self.contains)
            and (self.matches is None or self.matches.search(prompt) is not None)
            and fnmatchcase(request.model, self.model)
        )

    def made_calls(self, request: ChatRequest) -> tuple[ToolCall, ...]:
        """Returns the tool calls of the rule. The request must offer their tools."""
        offered = {function.name: function for function in functions(request)}
        return tuple(
            ToolCall(call.name, call.arguments or made_arguments(offered[call.name], request)) for call in self._calls
        )

    def why_no_calls(self, request: ChatRequest) -> str:
        """Returns why the tools of the rule can't be called here, or an empty text.

        Each tool is called once in a turn, since its output would not change.
        """
        offered = [function.name for function in functions(request)]
        for call in self._calls:
            if call.name not in offered:
                return f"the request offers no tool {call.name}; it offers {', '.join(offered) or 'none'}"
        if any(_as_value(call) in _called(request) for call in self.made_calls(request)):
            return "its tool was called before"
        return ""

    @property
    def _calls(self) -> list[ToolCall]:
        if self.tool:
            return [ToolCall(self.tool, self.arguments)]
        return [ToolCall(call.tool, call.arguments) for call in self.calls]


def _called(request: ChatRequest) -> list[tuple[str, Any]]:
    """Returns the tool calls of this turn."""
    called = (call.get("function") for message in turn(request) for call in message.tool_calls or ())
    calls = (ToolCall(str(call.get("name")), str(call.get("arguments"))) for call in called if isinstance(call, dict))
    return [_as_value(call) for call in calls]


def _as_value(call: ToolCall) -> tuple[str, Any]:
    try:
        return call.name, json.loads(call.arguments)
    except (ValueError, RecursionError):
        return call.name, call.arguments
