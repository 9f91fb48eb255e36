"""The tokens of model calls, as the installed crewai reports them.

crewai's own totals are wrong here: they count a model that several agents share several times.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from windlass_child.crewai.capabilities import first_of, has_fields, optional
from windlass_child.crewai.model_calls import models
from windlass_child.process.messages import MOST_TOKENS, Tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

IN_EVENTS = has_fields(optional("crewai.events.types.llm_events:LLMCallCompletedEvent"), "usage")
"""Whether the event of an answered call has its tokens."""

from_provider = optional("crewai.types.usage_metrics:UsageMetrics.from_provider_dict")

NAMES = {
    "prompt": ("prompt_tokens", "prompt_token_count", "input_tokens", "inputTokens"),
    "completion": ("completion_tokens", "candidates_token_count", "output_tokens", "outputTokens"),
    "total": ("total_tokens", "total_token_count", "totalTokens"),
    "cached_prompt": ("cached_prompt_tokens", "cached_tokens", "cache_read_input_tokens"),
    "reasoning": ("reasoning_tokens", "thoughts_token_count"),
}
"""The names of the numbers, as the providers call them."""

TRACK = "_track_token_usage_internal"
RECENT = 64


def of_event(event: Any) -> Tokens:
    """Returns the tokens of one model call, and zero for other events."""
    usage = getattr(event, "usage", None)
    return of_provider(usage) if event.type == "llm_call_completed" and usage else Tokens()


def of_provider(usage: Mapping[str, Any]) -> Tokens:
    """Converts a provider's report of one call."""
    if from_provider is None:
        found = {name: number(usage, keys) for name, keys in NAMES.items()}
        found["total"] = found["total"] or counted(found["prompt"] + found["completion"])
        return Tokens(**found)
    metrics = from_provider(usage)
    return Tokens(
        prompt=counted(metrics.prompt_tokens),
        completion=counted(metrics.completion_tokens),
        total=counted(metrics.total_tokens),
        cached_prompt=counted(metrics.cached_prompt_tokens),
        reasoning=counted(metrics.reasoning_tokens),
    )


def number(usage: Mapping[str, Any], names: tuple[str, ...]) -> int:
    """Returns the first of these numbers, in the report or in its details (`prompt_tokens_details`)."""
    details = [plain(part) for name, part in usage.items() if name.endswith("_details")]
    found = (part.get(name) for part in (usage, *details) for name in names)
    return counted(next((value for value in found if isinstance(value, int)), 0))


def counted(tokens: int) -> int:
    """Returns a provider's count within the range of a message, 0 to MOST_TOKENS."""
    return min(max(tokens, 0), MOST_TOKENS)


def follow(spend: Callable[[Tokens], None]) -> None:
    """Calls `spend` with the tokens of each call, where events do not have them.

    crewai hands them to a method of the model, or in older releases to a callback of LiteLLM. It is never undone,
    because a process runs one project.
    """
    trackers = [model for model in models() if tracks_itself(model)]
    for model in trackers:
        setattr(model, TRACK, after(getattr(model, TRACK), spend, plain))
    if trackers:
        return
    handler = first_of("crewai.utilities.token_counter_callback:TokenCalcHandler")
    if handler is not None:
        recent: deque[Any] = deque(maxlen=RECENT)

        def new_usage(_: Any, answer: Any, *_times: Any) -> Mapping[str, Any]:
            usage = answer.get("usage")
            if any(usage is known for known in recent):  # crewai and LiteLLM both call the callback
                return {}
            recent.append(usage)
            return plain(usage)

        handler.log_success_event = after(handler.log_success_event, spend, new_usage)


def tracks_itself(model: type) -> bool:
    """Returns whether the class has a method for the tokens of a call that does not call that of its base."""
    track = vars(model).get(TRACK)
    return track is not None and "super" not in track.__code__.co_names


def after(report: Callable[..., Any], spend: Callable[[Tokens], None], read: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a method that does what `report` does, and then calls `spend` with what `read` makes of its arguments."""

    def report_and_spend(self: Any, *arguments: Any, **named: Any) -> None:
        report(self, *arguments, **named)
        spend(of_provider(read(*arguments, *named.values())))

    return report_and_spend


def plain(usage: Any) -> Mapping[str, Any]:
    """Returns a report as a dictionary. LiteLLM's is an object."""
    if isinstance(usage, dict):
        return usage
    return dict(usage.model_dump()) if hasattr(usage, "model_dump") else dict(getattr(usage, "__dict__", {}))
