"""Answers of the offline model, as pure functions from a request to a value."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from pydantic import BaseModel, Field

from windlass.offline_model.schema_sample import sample

MARK = "[offline model]"
_OPENING = f"{MARK} No language model wrote this answer; it only shows what arrived."
_FINAL = "Final Answer:"
_REACT_OPENING = f"Thought: I now can give a great answer\n{_FINAL} "
_QUOTE = 300
_TOOL_QUOTE = 1000
_EMBEDDING_SIZE = 256

_INSTRUCTIONS = ("system", "developer")

# The texts with which crewai's prompts begin and end their parts.
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

    model: str = ""
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
        """One text for each vector. A list of token numbers is one text."""
        if isinstance(self.input, str):
            return [self.input]
        if all(isinstance(item, int) for item in self.input):
            return [_text_of_tokens(self.input)]
        return [item if isinstance(item, str) else _text_of_tokens(item) for item in self.input]


@dataclass(frozen=True, slots=True)
class ToolCall:
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Either a text or tool calls. The token counts are estimates: one token for four characters."""

    text: str
    calls: tuple[ToolCall, ...]
    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class Prompt:
    """The parts of a user message. All but the task are empty if crewai did not write the message."""

    task: str
    expected: str
    context: str


def answer(request: ChatRequest) -> Answer:
    if tool := _tool_to_call(request):
        return tool_answer(request, ToolCall(tool.name, made_arguments(tool, request)))
    return text_answer(request, _text(request))


def text_answer(request: ChatRequest, text: str) -> Answer:
    return Answer(text, (), prompt_tokens=_prompt_tokens(request), completion_tokens=_tokens(text))


def tool_answer(request: ChatRequest, *calls: ToolCall) -> Answer:
    written = "".join(call.name + call.arguments for call in calls)
    return Answer("", calls, prompt_tokens=_prompt_tokens(request), completion_tokens=_tokens(written))


def as_final_answer(request: ChatRequest, text: str) -> str:
    """Returns the text as a final answer if the prompt asks for that form.

    Agents whose model can't call tools natively ask for this form, and ask again when the answer is without it.
    """
    texts = (message.text for message in request.messages if message.role in (*_INSTRUCTIONS, "user"))
    insists = not request.response_format and any(_FINAL in text for text in texts)
    return _REACT_OPENING + text if insists and _FINAL not in text else text


def prompt_text(request: ChatRequest) -> str:
    """Returns the prompt for this answer on one line: the system messages and the current turn."""
    texts = [message.text for message in request.messages if message.role in _INSTRUCTIONS]
    texts += [message.text for message in turn(request) or request.messages if message.role not in _INSTRUCTIONS]
    return one_line("\n".join(texts))


def summary(request: ChatRequest) -> list[str]:
    """Returns the parts of the prompt, one on each line."""
    prompts = _prompts(request)
    first = prompts[0]
    lines = [f"Task: {_cut(first.task)}"]
    if first.expected:
        lines.append(f"Expected output: {_cut(first.expected)}")
    if first.context:
        lines.append(f"Context: {len(first.context.split())} words from earlier tasks")
    if prompts[-1] != first:
        lines.append(f"Then: {_cut(prompts[-1].task)}")
    return lines + [f"Tool output: {_cut(output, _TOOL_QUOTE)}" for output in _tool_outputs(request)]


def functions(request: ChatRequest) -> list[Function]:
    """Returns the functions that the model may call."""
    return [tool.function for tool in request.tools or () if tool.function] if request.tool_choice != "none" else []


def made_arguments(tool: Function, request: ChatRequest) -> str:
    """Returns arguments that fit the tool's schema. Their texts are the first sentence of the task."""
    arguments = sample(tool.parameters, _first_sentence(_prompts(request)[0].task))
    return json.dumps(arguments if isinstance(arguments, dict) else {})


def turn(request: ChatRequest) -> Sequence[Message]:
    """Returns the messages after the last finished answer.

    User messages may stand between a tool's output and the answer.
    """
    messages = request.messages
    for place in range(len(messages) - 1, -1, -1):
        if messages[place].role == "assistant" and not messages[place].tool_calls:
            return messages[place + 1 :]
    return messages


def one_line(text: str) -> str:
    return " ".join(text.split())


def read_prompt(text: str) -> Prompt:
    body, _, context = text.partition(_CONTEXT_STARTS)
    task, _, expected = body.partition(_EXPECTED_STARTS)
    return Prompt(
        task=one_line(task.rpartition(_TASK_STARTS)[2].removesuffix(_PROMPT_ENDS)),
        expected=one_line(expected.partition(_EXPECTED_ENDS)[0]),
        context=context.removesuffix(_PROMPT_ENDS).strip(),
    )


def embedding(text: str, dimensions: int) -> list[float]:
    """Returns a unit vector. Texts that share words have vectors that are near each other."""
    vector = [0.0] * dimensions
    for word in re.findall(r"\w+", text.lower()) or [""]:
        digest = int.from_bytes(blake2b(word.encode(), digest_size=8).digest())
        vector[digest % dimensions] += 1.0 if digest >> 63 else -1.0
    length = math.hypot(*vector)
    return [part / length for part in vector] if length else [1.0, *vector[1:]]


def embedding_tokens(texts: Iterable[str]) -> int:
    return sum(_tokens(text) for text in texts)


def _tool_to_call(request: ChatRequest) -> Function | None:
    callable_ = functions(request)
    if not callable_ or _tool_outputs(request):
        return None
    named = _named_tool(request.tool_choice)
    return next((function for function in callable_ if function.name == named), callable_[0])


def _named_tool(choice: str | dict[str, Any] | None) -> object:
    function = choice.get("function") if isinstance(choice, dict) else None
    return function.get("name") if isinstance(function, dict) else None


def _text(request: ChatRequest) -> str:
    wanted = request.response_format or {}
    if wanted.get("type") == "json_schema":
        return json.dumps(sample(_wanted_schema(wanted), _marked(_cut(_prompts(request)[0].task))))
    if wanted.get("type") == "json_object":
        return json.dumps({"answer": _explanation(request)})
    return as_final_answer(request, _explanation(request))


def _wanted_schema(response_format: Mapping[str, Any]) -> Mapping[str, Any]:
    wrapper = response_format.get("json_schema")
    schema = wrapper.get("schema") if isinstance(wrapper, dict) else None
    return schema if isinstance(schema, dict) else {"type": "object"}


def _explanation(request: ChatRequest) -> str:
    return "\n".join([_OPENING, *summary(request)])


def _prompts(request: ChatRequest) -> list[Prompt]:
    asked = [message for message in turn(request) if message.role == "user"]
    return [read_prompt(message.text) for message in asked or request.messages[-1:]]


def _tool_outputs(request: ChatRequest) -> list[str]:
    return [message.text for message in turn(request) if message.role == "tool"]


def _marked(text: str) -> str:
    return text if text.startswith(MARK) else f"{MARK} {text}"


def _first_sentence(text: str) -> str:
    return _cut(re.split(r"(?<=[.!?])\s", text, maxsplit=1)[0])


def _cut(text: str, limit: int = _QUOTE) -> str:
    return text if len(text) <= limit else text[:limit].rstrip() + "..."


def _text_of_tokens(tokens: object) -> str:
    return " ".join(str(token) for token in tokens) if isinstance(tokens, list) else str(tokens)


def _prompt_tokens(request: ChatRequest) -> int:
    return _tokens(request.model_dump_json(include={"messages", "tools"}, exclude_none=True))


def _tokens(text: str) -> int:
    return math.ceil(len(text) / 4)
