from __future__ import annotations

import pytest

from windlass.kickoffs.outcome import TokenUsage
from windlass_child.protocol.messages import Tokens

pytestmark = pytest.mark.unit


def test_the_tokens_of_all_calls_are_summed() -> None:
    usage = TokenUsage()
    usage.add(Tokens(prompt=100, completion=20, total=120, cached_prompt=5, reasoning=3))
    usage.add(Tokens(prompt=1, completion=2, total=4))
    assert usage.to_json() == {
        "prompt_tokens": 101,
        "completion_tokens": 22,
        "total_tokens": 124,
        "cached_prompt_tokens": 5,
        "reasoning_tokens": 3,
        "successful_requests": 2,
    }


def test_a_run_without_calls_has_used_nothing() -> None:
    assert set(TokenUsage().to_json().values()) == {0}
