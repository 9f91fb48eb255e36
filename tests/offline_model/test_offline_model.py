import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from pydantic import BaseModel

from offline_model.offline_serving import ask, client_of, served, text_of, with_tool_outputs
from windlass.offline_model.app import model_environment, offline_model_app

SECONDS_FOR_A_CREW = 90
QUIET = dict.fromkeys(("CREWAI_DISABLE_TELEMETRY", "CREWAI_DISABLE_VERSION_CHECK", "OTEL_SDK_DISABLED"), "true")
WEIGHED = {
    "what": {"type": "string"},
    "count": {"type": "integer", "minimum": 3},
    "unit": {"enum": ["kg", "lb"]},
    "note": {"type": "string"},
}
WEIGHING = {"type": "object", "properties": WEIGHED, "required": ["what", "count", "unit"]}
TOOL = {"type": "function", "function": {"name": "weigh", "parameters": WEIGHING}}
OTHER_TOOL = {"type": "function", "function": {"name": "measure", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served(offline_model_app()) as address:
        yield address


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[openai.OpenAI]:
    with client_of(address) as client:
        yield client


def likeness(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def test_an_answer_says_where_it_comes_from_and_what_it_was_asked(client: openai.OpenAI) -> None:
    completion = ask(client, "Name three rivers in Wales.")
    assert text_of(completion).startswith("[offline model]")
    assert "Name three rivers in Wales." in text_of(completion)
    assert completion.model == "offline-model"
    assert completion.choices[0].finish_reason == "stop"


def test_a_task_of_crewai_is_quoted_with_its_expected_output_and_the_size_of_its_context(client: openai.OpenAI) -> None:
    prompt = (
        "\nCurrent Task: Write about\n tea.\n\nThis is the expected criteria for your final answer: A page.\n"
        "you MUST return the actual complete content as the final answer, not a summary.\n\n"
        "This is the context you're working with:\nfour words are here\n\nProvide your complete response:"
    )
    lines = text_of(ask(client, prompt)).splitlines()
    assert lines[1:] == ["Task: Write about tea.", "Expected output: A page.", "Context: 4 words from earlier tasks"]


def test_the_same_request_gets_the_same_answer_and_another_one_another(client: openai.OpenAI) -> None:
    first, again, other = ask(client, "One."), ask(client, "One."), ask(client, "Two.")
    assert (first.id, text_of(first)) == (again.id, text_of(again))
    assert first.id != other.id
    assert text_of(first) != text_of(other)


def test_a_long_prompt_is_quoted_in_part_and_counted_whole(client: openai.OpenAI) -> None:
    short, long = ask(client, "word"), ask(client, "word " * 10_000)
    assert len(text_of(long)) < 1000
    assert short.usage
    assert long.usage
    assert long.usage.prompt_tokens - short.usage.prompt_tokens == pytest.approx(12_500, abs=5)
    assert long.usage.total_tokens == long.usage.prompt_tokens + long.usage.completion_tokens
    assert long.usage.completion_tokens == math.ceil(len(text_of(long)) / 4)


def test_the_last_word_of_a_conversation_is_quoted_beside_its_task(client: openai.OpenAI) -> None:
    text = text_of(ask(client, "Draw a map.", "Make it larger."))
    assert "Task: Draw a map." in text
    assert "Then: Make it larger." in text


def test_content_in_parts_is_read(client: openai.OpenAI) -> None:
    parts = [{"type": "text", "text": "Describe this."}, {"type": "image_url"}]
    assert "Task: Describe this." in text_of(ask(client, messages=[{"role": "user", "content": parts}]))


def test_agents_that_insist_on_a_final_answer_line_get_one(client: openai.OpenAI) -> None:
    rule = {"role": "system", "content": "Use this format:\nThought: ...\nFinal Answer: ..."}
    thought, final, *_ = text_of(
        ask(client, messages=[rule, {"role": "user", "content": "Name a river."}])
    ).splitlines()
    assert thought.startswith("Thought: ")
    assert final.startswith("Final Answer: [offline model]")


def test_the_first_tool_is_called_with_arguments_from_its_schema_and_the_prompt(client: openai.OpenAI) -> None:
    completion = ask(client, "Weigh the apples. Then rest.", tools=[TOOL, OTHER_TOOL])
    (call,) = completion.choices[0].message.tool_calls or []
    assert call.type == "function"
    assert call.function.name == "weigh"
    assert json.loads(call.function.arguments) == {"what": "Weigh the apples.", "count": 3, "unit": "kg"}
    assert completion.choices[0].finish_reason == "tool_calls"
    assert completion.choices[0].message.content is None


def test_a_tool_is_called_once_and_its_output_is_in_the_answer(client: openai.OpenAI) -> None:
    called = ask(client, "Weigh it.", tools=[TOOL])
    messages = with_tool_outputs("Weigh it.", called, "It weighs 4 kg.")
    completion = ask(client, messages=messages, tools=[TOOL])
    assert completion.choices[0].message.tool_calls is None
    assert "Tool output: It weighs 4 kg." in text_of(completion)


def test_a_question_after_the_tool_output_is_no_new_turn(client: openai.OpenAI) -> None:
    messages = with_tool_outputs("Weigh it.", ask(client, "Weigh it.", tools=[TOOL]), "4 kg")
    completion = ask(client, messages=[*messages, {"role": "user", "content": "Analyze that."}], tools=[TOOL])
    assert "Tool output: 4 kg" in text_of(completion)


def test_after_an_answer_the_tool_may_be_called_again(client: openai.OpenAI) -> None:
    messages = [
        *with_tool_outputs("Weigh it.", ask(client, "Weigh it.", tools=[TOOL]), "4 kg"),
        {"role": "assistant", "content": "Four."},
        {"role": "user", "content": "Weigh the other."},
    ]
    (call,) = ask(client, messages=messages, tools=[TOOL]).choices[0].message.tool_calls or []
    assert call.type == "function"
    assert json.loads(call.function.arguments)["what"] == "Weigh the other."


def test_the_choice_of_a_tool_is_respected(client: openai.OpenAI) -> None:
    forbidden = ask(client, "Weigh it.", tools=[TOOL], tool_choice="none")
    assert forbidden.choices[0].message.tool_calls is None
    choice = {"type": "function", "function": {"name": "measure"}}
    (call,) = ask(client, "Weigh it.", tools=[TOOL, OTHER_TOOL], tool_choice=choice).choices[0].message.tool_calls or []
    assert call.type == "function"
    assert (call.function.name, call.function.arguments) == ("measure", "{}")


class Page(BaseModel):
    title: str
    words: int
    parent: "Page | None"


def test_a_structured_answer_fits_the_schema_that_was_asked_for(client: openai.OpenAI) -> None:
    completion = client.chat.completions.parse(
        model="gpt-4o", messages=[{"role": "user", "content": "Make a page."}], response_format=Page
    )
    page = completion.choices[0].message.parsed
    assert page
    assert page.title == "[offline model] Make a page."


def test_a_json_object_without_a_schema_holds_the_answer(client: openai.OpenAI) -> None:
    given = json.loads(text_of(ask(client, "Say it in JSON.", response_format={"type": "json_object"})))
    assert given["answer"].startswith("[offline model]")
    assert "Say it in JSON." in given["answer"]


def test_a_stream_brings_the_same_answer_in_pieces_and_the_usage_last(client: openai.OpenAI) -> None:
    whole = ask(client, "Tell a story.")
    with client.chat.completions.create(
        model="gpt-4o",
        messages=[{"role": "user", "content": "Tell a story."}],
        stream=True,
        stream_options={"include_usage": True},
    ) as stream:
        chunks = list(stream)
    pieces = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(pieces) == text_of(whole)
    assert len(pieces) > 10
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[-1].usage == whole.usage


def test_a_tool_call_is_streamed_by_its_name_and_then_in_pieces_of_its_arguments(client: openai.OpenAI) -> None:
    tools: Any = [TOOL]
    with client.chat.completions.create(
        model="gpt-4o", messages=[{"role": "user", "content": "Weigh it."}], tools=tools, stream=True
    ) as stream:
        choices = [chunk.choices[0] for chunk in stream]
    first, *pieces = [call for choice in choices for call in choice.delta.tool_calls or []]
    assert first.function
    assert (first.index, first.function.name, first.function.arguments) == (0, "weigh", "")
    assert len(pieces) > 1
    arguments = "".join(piece.function.arguments or "" for piece in pieces if piece.function)
    assert json.loads(arguments)["what"] == "Weigh it."
    assert choices[-1].finish_reason == "tool_calls"


def test_embeddings_are_the_same_each_time_and_near_where_words_are_shared(client: openai.OpenAI) -> None:
    texts = ["tea from green leaves", "green tea leaves", "a bridge of steel"]
    tea, also_tea, bridge = (
        item.embedding for item in client.embeddings.create(model="text-embedding-3-small", input=texts).data
    )
    assert math.hypot(*tea) == pytest.approx(1)
    assert likeness(tea, also_tea) > 0.5 > likeness(tea, bridge)
    again = client.embeddings.create(model="x", input=texts[0], encoding_format="float").data[0].embedding
    assert again == pytest.approx(tea)


def test_embeddings_come_in_the_size_that_was_asked_for(client: openai.OpenAI) -> None:
    of_tokens = client.embeddings.create(model="x", input=[[1, 2], [3]], dimensions=8).data
    assert [len(item.embedding) for item in of_tokens] == [8, 8]
    of_nothing = client.embeddings.create(model="x", input="", dimensions=3).data[0].embedding
    assert math.hypot(*of_nothing) == pytest.approx(1)


def test_the_list_of_models_names_the_one(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["offline-model"]


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (b"{", "The body"),
        (b"\xff", "The body"),
        (b"[" * 100_000, "The body"),
        (b"[]", "The body"),
        (b"{}", "messages"),
        (b'{"messages": []}', "messages"),
        (b'{"messages": ["hello"]}', "messages.0"),
        (b'{"messages": [{"role": "user", "content": 1}]}', "messages.0.content"),
        (b'{"messages": [{"role": "user", "content": "\\ud800"}]}', "The body"),
    ],
)
def test_a_request_that_cannot_be_used_is_refused_in_the_shape_of_openai(
    address: str, body: bytes, complaint: str
) -> None:
    answer = httpx.post(f"{address}/v1/chat/completions", content=body)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert complaint in error["message"]
    assert error["type"] == "invalid_request_error"
    assert set(error) == {"message", "type", "param", "code"}


def test_what_is_not_served_is_said_to_the_client(client: openai.OpenAI, address: str) -> None:
    with pytest.raises(openai.NotFoundError, match=r"doesn't serve POST /v1/responses.*POST /v1/chat/completions"):
        client.responses.create(model="gpt-4o", input="hello")
    wrong_method = httpx.get(f"{address}/v1/chat/completions")
    assert wrong_method.status_code == 405
    assert wrong_method.json()["error"]["code"] == "unknown_url"


def test_the_example_crew_runs_on_the_real_crewai_and_contacts_nothing_else(address: str, tmp_path: Path) -> None:
    settings = {"PATH": os.defpath, "HOME": str(tmp_path), "TMPDIR": str(tmp_path), "CREWAI_TRACING_ENABLED": "false"}
    script = Path(__file__).with_name("research_crew_offline.py")
    ended = subprocess.run(
        [sys.executable, script],
        env={**settings, **QUIET, **model_environment(settings, address)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SECONDS_FOR_A_CREW,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    seen = json.loads(ended.stdout.splitlines()[-1])
    assert list(seen["outputs"]) == ["find_facts", "write_brief", "check_brief"]
    assert all(output.startswith("[offline model]") for output in seen["outputs"].values())
    assert all("tea" in output and "new waiters" in output for output in seen["outputs"].values())
    assert "Camellia sinensis" in seen["outputs"]["find_facts"]
    assert seen["tools"] == ["look_up_notes"]
    assert seen["contacted"] == ["127.0.0.1"]
    assert seen["used"] > 0
