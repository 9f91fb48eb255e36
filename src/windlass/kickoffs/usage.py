from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windlass_crewside.messages import Tokens


@dataclass(slots=True)
class TokenUsage:
    """The sum over a kickoff's model calls, in tokens; the names are the framework's own."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    cached_prompt_tokens: int = 0
    reasoning_tokens: int = 0
    successful_requests: int = 0

    def add(self, call: Tokens) -> None:
        self.prompt_tokens += call.prompt
        self.completion_tokens += call.completion
        self.total_tokens += call.total
        self.cached_prompt_tokens += call.cached_prompt
        self.reasoning_tokens += call.reasoning
        self.successful_requests += 1

    def to_json(self) -> dict[str, int]:
        return asdict(self)
