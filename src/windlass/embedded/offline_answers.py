"""What the offline model answers: pure functions from a request to a value."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from pydantic import BaseModel, Field

from windlass.embedded.schema_sample import sample

MARK = "[offline model]"
_OPENING = f"{MARK} No language model wrote this answer; it only shows what arrived."
_REACT_OPENING = "Thought: I now can give a great answer\nFinal Answer: "
_QUOTE = 300
_TOOL_QUOTE = 1000
_EMBEDDING_SIZE = 256

# The words with which crewai's prompts introduce their parts.
_TASK_STARTS = "Current Task: "
_EXPECTED_STARTS = "This is the expected criteria for your final answer: "
_EXPECTED_ENDS = "\nyou MUST return"
_CONTEXT_STARTS = "This is the context you're working with:\n"
_PROMPT_ENDS = "\n\nProvide your complete response:"


class Message(BaseModel):
    role: str
    content: str | list[dict[str, Any]] | None = None
    tool_calls: list[dict[str, Any]] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "\n".join(str(part["text"]) for part in self.content if "text" in part)
        return self.content or ""


class Function(BaseModel):
    name: str
    parameters: dict[str, Any] = Field(default_factory=dict)


class Tool(BaseModel):
    function: Function | None = None


class StreamOptions(BaseModel):
    include_usage: bool = False


class ChatRequest(BaseModel):
    """The members of a chat completion request that change the answer; all others are ignored."""

    messages: list[Message] = Field(min_length=1)
    tools: list[Tool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    response_format: dict[str, Any] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None


class EmbeddingRequest(BaseModel):
    input: str | list[str] | list[int] | list[list[int]]
    dimensions: int = Field(default=_EMBEDDING_SIZE, ge=1, le=4096)
    encoding_format: str = "float"

    @property
    def texts(self) -> list[str]:
        """One text per vector; a list of token numbers is one text."""
        if isinstance(self.input, str):
            return [self.input]
        if all(isinstance(item, int) for item in self.input):
            return [_spoken(self.input)]
        return [item if isinstance(item, str) else _spoken(item) for item in self.input]


@dataclass(frozen=True, slots=True)
class ToolCall:
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Either a text or a tool call; `tokens` are estimates of one token for four characters."""

    text: str
    call: ToolCall | None
    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class Prompt:
    """The parts of a user message; all but the task are empty unless crewai wrote it."""

    task: str
    expected: str
    context: str


def answer(request: ChatRequest) -> Answer:
    tool = _tool_to_call(request)
    call = ToolCall(tool.name, _arguments(tool, request)) if tool else None
    text = "" if call else _text(request)
    return Answer(
        text=text,
        call=call,
        prompt_tokens=_tokens(request.model_dump_json(include={"messages", "tools"}, exclude_none=True)),
        completion_tokens=_tokens(call.name + call.arguments if call else text),
    )


def read_prompt(text: str) -> Prompt:
    body, _, context = text.partition(_CONTEXT_STARTS)
    task, _, expected = body.partition(_EXPECTED_STARTS)
    return Prompt(
        task=_one_line(task.rpartition(_TASK_STARTS)[2].removesuffix(_PROMPT_ENDS)),
        expected=_one_line(expected.partition(_EXPECTED_ENDS)[0]),
        context=context.removesuffix(_PROMPT_ENDS).strip(),
    )


def embedding(text: str, dimensions: int) -> list[float]:
    """A unit vector in which texts that share words are near each other."""
    vector = [0.0] * dimensions
    for word in re.findall(r"\w+", text.lower()) or [""]:
        digest = int.from_bytes(blake2b(word.encode(), digest_size=8).digest())
        vector[digest % dimensions] += 1.0 if digest >> 63 else -1.0
    length = math.hypot(*vector)
    return [part / length for part in vector] if length else [1.0, *vector[1:]]


def embedding_tokens(texts: Iterable[str]) -> int:
    return sum(_tokens(text) for text in texts)


def _tool_to_call(request: ChatRequest) -> Function | None:
    functions = [tool.function for tool in request.tools or () if tool.function]
    if not functions or request.tool_choice == "none" or _tool_outputs(request):
        return None
    named = _named_tool(request.tool_choice)
    return next((function for function in functions if function.name == named), functions[0])


def _named_tool(choice: str | dict[str, Any] | None) -> object:
    function = choice.get("function") if isinstance(choice, dict) else None
    return function.get("name") if isinstance(function, dict) else None


def _arguments(tool: Function, request: ChatRequest) -> str:
    arguments = sample(tool.parameters, _first_sentence(_prompts(request)[0].task))
    return json.dumps(arguments if isinstance(arguments, dict) else {})


def _text(request: ChatRequest) -> str:
    wanted = request.response_format or {}
    if wanted.get("type") == "json_schema":
        return json.dumps(sample(_wanted_schema(wanted), _marked(_cut(_prompts(request)[0].task))))
    if wanted.get("type") == "json_object":
        return json.dumps({"answer": _explanation(request)})
    return _react_opening(request) + _explanation(request)


def _wanted_schema(response_format: Mapping[str, Any]) -> Mapping[str, Any]:
    wrapper = response_format.get("json_schema")
    schema = wrapper.get("schema") if isinstance(wrapper, dict) else None
    return schema if isinstance(schema, dict) else {"type": "object"}


def _react_opening(request: ChatRequest) -> str:
    """Agents whose model can't call tools natively insist on this form and ask again without it."""
    insists = any("Final Answer:" in message.text for message in request.messages if message.role in ("system", "user"))
    return _REACT_OPENING if insists else ""


def _explanation(request: ChatRequest) -> str:
    prompts = _prompts(request)
    first = prompts[0]
    lines = [_OPENING, f"Task: {_cut(first.task)}"]
    if first.expected:
        lines.append(f"Expected output: {_cut(first.expected)}")
    if first.context:
        lines.append(f"Context: {len(first.context.split())} words from earlier tasks")
    if prompts[-1] != first:
        lines.append(f"Then: {_cut(prompts[-1].task)}")
    lines += [f"Tool output: {_cut(output, _TOOL_QUOTE)}" for output in _tool_outputs(request)]
    return "\n".join(lines)


def _prompts(request: ChatRequest) -> list[Prompt]:
    asked = [message for message in _turn(request.messages) if message.role == "user"]
    return [read_prompt(message.text) for message in asked or request.messages[-1:]]


def _tool_outputs(request: ChatRequest) -> list[str]:
    return [message.text for message in _turn(request.messages) if message.role == "tool"]


def _turn(messages: Sequence[Message]) -> Sequence[Message]:
    """What follows the last finished answer: user messages may come between a tool's output and the answer."""
    for place in range(len(messages) - 1, -1, -1):
        if messages[place].role == "assistant" and not messages[place].tool_calls:
            return messages[place + 1 :]
    return messages


def _marked(text: str) -> str:
    return text if text.startswith(MARK) else f"{MARK} {text}"


def _first_sentence(text: str) -> str:
    return _cut(re.split(r"(?<=[.!?])\s", text, maxsplit=1)[0])


def _cut(text: str, limit: int = _QUOTE) -> str:
    return text if len(text) <= limit else text[:limit].rstrip() + "..."


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _spoken(tokens: object) -> str:
    return " ".join(str(token) for token in tokens) if isinstance(tokens, list) else str(tokens)


def _tokens(text: str) -> int:
    return math.ceil(len(text) / 4)
