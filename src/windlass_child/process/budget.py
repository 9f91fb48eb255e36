"""Counts the use of a run against its budget, and describes the limits that it reaches."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

from windlass_child.process.error_text import LimitReached, ProjectFault
from windlass_child.protocol.sizes import size_in_words

if TYPE_CHECKING:
    from windlass_child.protocol.messages import Budget, Succeeded


class Spending:
    """Counts the model calls and tokens of a kickoff, its earlier attempts included. Safe from any thread."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._lock = threading.Lock()
        self._calls = budget.model_calls_made
        self._tokens = budget.tokens_used

    def count_tokens(self, tokens: int) -> None:
        with self._lock:
            self._tokens += tokens

    def begin_call(self) -> None:
        """Counts a model call that is about to be made. Raises LimitReached instead when a limit is used up."""
        with self._lock:
            tokens, calls = self._budget.token_limit, self._budget.model_call_limit
            if tokens is not None and self._tokens >= tokens:
                raise LimitReached(f"used {self._tokens} tokens; its limit is {tokens}", hint("token_limit"))
            if calls is not None and self._calls >= calls:
                made = f"made {self._calls} model call{'s' if self._calls > 1 else ''}"
                raise LimitReached(f"{made}; its limit is {calls}", hint("model_call_limit"))
            self._calls += 1


def check_result(result: Succeeded, limit: int | None) -> None:
    """Raises LimitReached for a result whose JSON is larger than `limit` bytes; None for no limit."""
    if limit is None:
        return
    size = len(result.structured or json.dumps(result.output, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    if size > limit:
        words = f"its result is {size_in_words(size)}; its limit is {size_in_words(limit)}"
        raise LimitReached(words, hint("result_limit"))


def hint(name: str) -> str:
    return f"Raise {name} under [tool.windlass.limits] in pyproject.toml, or in the kickoff's `limits`."


class Stopping:
    """The worker's requests about the end of a run. The thread that reads messages sets them, working threads check
    them.

    `lease` is the second of CLOCK_BOOTTIME until which the run may go on; None for no lease.
    """

    def __init__(self) -> None:
        self.asked: str | None = None
        self.lease: float | None = None

    def ask(self, message: str) -> None:
        self.asked = message

    def check(self) -> None:
        """Raises ProjectFault if the worker has asked the run to end."""
        if self.asked is not None:
            raise ProjectFault(self.asked)
