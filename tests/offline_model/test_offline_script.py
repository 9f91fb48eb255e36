from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from offline_model.offline_serving import ask, asked, called_by, script, text_of, with_tool_outputs
from windlass.offline_model.answers import ChatRequest
from windlass.offline_model.app import offline_model_app
from windlass.offline_model.script import Script, UnansweredError

WORD = st.text(st.characters(categories=["L", "N", "P"]), min_size=1)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
TOPIC = {"type": "object", "properties": {"topic": {"type": "string"}}, "required": ["topic"]}
LOOK_UP = {"type": "function", "function": {"name": "look_up", "parameters": TOPIC}}
WEIGH = {"type": "function", "function": {"name": "weigh", "parameters": {"type": "object", "properties": {}}}}


class Page(BaseModel):
    title: str
    words: int


def heard_as(*texts: str, **more: Any) -> ChatRequest:
    messages = [{"role": "user", "content": text} for text in texts]
    return ChatRequest.model_validate({"model": "gpt-4o", "messages": messages, **more})


def said(script: Script, request: ChatRequest) -> str | None:
    answer = script.reply(request).answer
    return answer.text if answer else None


def streamed(client: openai.OpenAI, prompt: str, **more: Any) -> list[Any]:
    messages: Any = [{"role": "user", "content": prompt}]
    with client.chat.completions.create(model="any", messages=messages, stream=True, **more) as stream:
        return [chunk.choices[0].delta for chunk in stream]


@given(WORD, WORD, WORD, st.sampled_from([" ", "\n", "\t \n  "]))
def test_words_are_found_wherever_they_stand_and_however_the_lines_break(
    before: str, one: str, other: str, space: str
) -> None:
    rules = script({"contains": f"{one} {other}", "text": "found"})
    assert said(rules, heard_as(f"{before} {one}{space}{other} {before}")) == "found"


@given(st.lists(WORD, min_size=1, max_size=4), st.text())
def test_the_first_rule_that_fits_answers_and_all_words_of_it_must_be_there(words: list[str], prompt: str) -> None:
    rules = script(
        {"contains": words, "text": "all"},
        *({"contains": word, "text": f"only {word}"} for word in words),
        {"text": "none"},
    )
    there = [word for word in words if word in " ".join(prompt.split())]
    wanted = "all" if there == words else f"only {there[0]}" if there else "none"
    assert said(rules, heard_as(prompt)) == wanted


@given(st.integers(1, 5), st.integers(0, 8))
def test_a_rule_is_used_so_many_times_and_then_the_next_one(times: int, asked: int) -> None:
    rules = script({"times": times, "text": "first"}, {"text": "then"})
    given = [said(rules, heard_as("tea")) for _ in range(asked)]
    assert given == (["first"] * times + ["then"] * asked)[:asked]


def test_a_regular_expression_is_searched_for() -> None:
    rules = script({"matches": "(?i)^write .* page$", "text": "found"})
    assert said(rules, heard_as("WRITE me\na page")) == "found"
    assert said(rules, heard_as("Don't write a page")) is None


def test_the_model_that_is_asked_for_can_choose_the_rule() -> None:
    rules = script({"model": "gpt-4*", "text": "four"}, {"model": "o3", "text": "three"})
    assert said(rules, heard_as("tea")) == "four"
    assert said(rules, heard_as("tea", model="o3")) == "three"
    assert said(rules, heard_as("tea", model="o3-mini")) is None


def test_instructions_and_what_tools_gave_are_heard_and_answered_prompts_are_not() -> None:
    rules = script(
        {"contains": "poet", "text": "instructions"},
        {"contains": "4 kg", "text": "a tool"},
        {"contains": "Greetings", "text": "the first"},
        {"contains": "Farewell", "text": "the last"},
    )
    rule = {"role": "system", "content": "You are a poet."}
    tool = {"role": "tool", "tool_call_id": "1", "content": "4 kg"}
    answered = [{"role": "user", "content": "Greetings"}, {"role": "assistant", "content": "Hello"}]
    last = {"role": "user", "content": "Farewell"}
    assert said(rules, heard_as(messages=[*answered, last])) == "the last"
    assert said(rules, heard_as(messages=[*answered, last, tool])) == "a tool"
    assert said(rules, heard_as(messages=[rule, *answered, last])) == "instructions"
    assert said(rules, heard_as(messages=answered)) == "the first"


@settings(max_examples=30)
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_text_comes_as_it_stands_also_in_pieces(text: str) -> None:
    with asked(offline_model_app(script({"text": text}))) as client:
        assert text_of(ask(client, "tea")) == text
        assert "".join(delta.content or "" for delta in streamed(client, "tea")) == text


@given(JSON)
def test_any_json_can_be_the_answer(value: Any) -> None:
    given = said(script({"json": value}), heard_as("tea"))
    assert given is not None
    assert json.loads(given) == value


def test_a_structured_answer_is_what_the_script_says() -> None:
    messages: Any = [{"role": "user", "content": "Make a page."}]
    with asked(offline_model_app(script({"json": {"title": "Tea", "words": 120}}))) as client:
        completion = client.chat.completions.parse(model="any", messages=messages, response_format=Page)
        assert completion.choices[0].message.parsed == Page(title="Tea", words=120)
        with client.chat.completions.stream(model="any", messages=messages, response_format=Page) as stream:
            assert stream.get_final_completion().choices[0].message.parsed == Page(title="Tea", words=120)


def test_a_tool_is_called_once_and_then_the_next_rule_answers() -> None:
    rules = script(
        {"contains": "tea", "tool": "look_up", "arguments": {"topic": "tea"}},
        {"contains": "tea", "tool": "look_up", "arguments": {"topic": "milk"}},
        {"contains": "tea", "text": "Done."},
        strict=True,
    )
    with asked(offline_model_app(rules)) as client:
        first = ask(client, "About tea", tools=[WEIGH, LOOK_UP])
        messages = with_tool_outputs("About tea", first, "leaves")
        second = ask(client, messages=messages, tools=[WEIGH, LOOK_UP])
        messages += with_tool_outputs("", second, "white")[1:]
        third = ask(client, messages=messages, tools=[WEIGH, LOOK_UP])
        messages += [{"role": "assistant", "content": text_of(third)}, {"role": "user", "content": "More about tea"}]
        fourth = ask(client, messages=messages, tools=[WEIGH, LOOK_UP])
    assert first.choices[0].finish_reason == "tool_calls"
    assert [called_by(one) for one in (first, second, third, fourth)] == [
        [("look_up", '{"topic": "tea"}')],
        [("look_up", '{"topic": "milk"}')],
        [],
        [("look_up", '{"topic": "tea"}')],
    ]
    assert text_of(third) == "Done."


def test_several_tools_are_called_at_once_and_arguments_that_are_left_out_are_made() -> None:
    calls = [{"tool": "look_up", "arguments": {"topic": "tea"}}, {"tool": "look_up"}, {"tool": "weigh"}]
    wanted = [("look_up", '{"topic": "tea"}'), ("look_up", '{"topic": "About milk."}'), ("weigh", "{}")]
    tools: Any = [LOOK_UP, WEIGH]
    messages: Any = [{"role": "user", "content": "About milk."}]
    with asked(offline_model_app(script({"calls": calls}, {"text": "Done."}))) as client:
        whole = ask(client, "About milk.", tools=tools)
        assert called_by(whole) == wanted
        assert len({call.id for call in whole.choices[0].message.tool_calls or []}) == 3
        with client.chat.completions.stream(model="gpt-4o", messages=messages, tools=tools) as stream:
            assert called_by(stream.get_final_completion()) == wanted
        after = with_tool_outputs("About milk.", whole, "a", "b", "c")
        assert text_of(ask(client, messages=after, tools=tools)) == "Done."


def test_a_tool_that_is_not_offered_is_not_called() -> None:
    rules = script({"tool": "look_up"}, {"text": "Without it."})
    with asked(offline_model_app(rules)) as client:
        assert text_of(ask(client, "tea")) == "Without it."
        assert text_of(ask(client, "tea", tools=[WEIGH])) == "Without it."
        assert text_of(ask(client, "tea", tools=[LOOK_UP], tool_choice="none")) == "Without it."


def test_a_prompt_without_a_rule_is_answered_as_without_a_script() -> None:
    with asked(offline_model_app(script({"contains": "milk", "text": "White."}))) as client:
        assert text_of(ask(client, "About tea")).startswith("[offline model]")


def test_in_a_strict_script_a_prompt_without_a_rule_is_an_error_that_quotes_it() -> None:
    with asked(offline_model_app(script({"contains": "milk", "text": "White."}, strict=True)), retries=2) as client:
        assert text_of(ask(client, "About milk")) == "White."
        with pytest.raises(
            openai.BadRequestError, match=r"No rule of the script answers this prompt.*About tea"
        ) as told:
            ask(client, "About tea")
        assert told.value.code == "no_rule"
        with pytest.raises(openai.BadRequestError):
            ask(client, "About tea", stream=True)


def test_why_rules_that_fit_were_not_used_is_told() -> None:
    rules = script(
        {"contains": "tea", "times": 1, "text": "Once."},
        {"contains": "tea", "tool": "look-up"},
        {"contains": "milk", "text": "White."},
        {"contains": "tea", "tool": "weigh"},
        strict=True,
    )
    called = {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "weigh", "arguments": "{}"}}]}
    output = {"role": "tool", "tool_call_id": "1", "content": "4 kg"}
    request = heard_as(messages=[{"role": "user", "content": "tea"}, called, output], tools=[WEIGH])
    assert said(rules, request) == "Once."
    with pytest.raises(UnansweredError) as told:
        rules.reply(request)
    assert str(told.value).endswith(
        "Task: tea / Tool output: 4 kg Rule 1 fits, but its times are used up. "
        "Rule 2 fits, but the request offers no tool look-up; it offers weigh. "
        "Rule 4 fits, but its tool was called before."
    )


def test_calls_that_the_model_never_made_do_not_disturb() -> None:
    strange: list[Any] = [
        {"id": "1"},
        {"function": None},
        {"function": "weigh"},
        {"function": {"name": "weigh"}},
        {"function": {"name": "weigh", "arguments": "no JSON"}},
        {"function": {"name": "weigh", "arguments": "[" * 100_000}},
    ]
    request = heard_as(messages=[{"role": "assistant", "tool_calls": strange}], tools=[WEIGH])
    answer = script({"tool": "weigh"}).reply(request).answer
    assert answer
    assert [call.name for call in answer.calls] == ["weigh"]


def test_an_error_of_a_rule_is_overcome_by_asking_again() -> None:
    rules = script({"times": 1, "error": 503}, {"text": "Done."})
    with asked(offline_model_app(rules), retries=1) as client:
        assert text_of(ask(client, "tea")) == "Done."


@pytest.mark.parametrize(
    ("status", "error"), [(401, openai.AuthenticationError), (404, openai.NotFoundError), (429, openai.RateLimitError)]
)
def test_an_error_of_a_rule_is_what_the_client_knows(status: int, error: type[openai.APIStatusError]) -> None:
    with (
        asked(offline_model_app(script({"error": status}))) as client,
        pytest.raises(error, match=f"error {status}, as a rule of its script requires"),
    ):
        ask(client, "tea")


def test_agents_that_insist_on_a_final_answer_line_get_the_text_in_one() -> None:
    rules = script({"contains": "tea", "text": "Tea."}, {"contains": "milk", "text": "Thought: x\nFinal Answer: Milk."})
    form = "Use this format:\nThought: ...\nFinal Answer: ..."
    assert (said(rules, heard_as(form, "tea")) or "").endswith("\nFinal Answer: Tea.")
    assert said(rules, heard_as(form, "milk")) == "Thought: x\nFinal Answer: Milk."
