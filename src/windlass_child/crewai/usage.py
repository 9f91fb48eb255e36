"""The tokens of model calls, as the installed crewai reports them.

crewai's own totals are wrong here: they count a model that several agents share several times.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from windlass_child.crewai.features import has_fields, optional
from windlass_child.crewai.model_calls import base_of_models, looking, models
from windlass_child.process.error_text import text_of
from windlass_child.protocol.fields import MOST_TOKENS
from windlass_child.protocol.messages import Tokens
from windlass_child.replacements import replace_name

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
LOGGED = "crewai.utilities.token_counter_callback:TokenCalcHandler.log_success_event"
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


def follow(spend: Callable[[Tokens], None], warn: Callable[[str], None]) -> None:
    """Calls `spend` with the tokens of each call, where events do not have them, and `warn` if that fails.

    crewai hands them to a method of the model, to a callback of LiteLLM, or to both. The classes stay changed, because
    a process that is reused has a release with tokens in its events.
    """

    def report(usage: Any) -> None:
        try:
            spend(of_provider(plain(usage)))
        except Exception as error:  # noqa: BLE001 - an exception would end the model call
            warn(f"the tokens of a model call could not be reported: {text_of(error)}")

    reports = Reports()

    def report_of_model(usage: Any) -> None:
        if reports.is_new_of_model(usage):
            report(usage)

    follow_trackers(report_of_model)
    handler = optional(LOGGED.rpartition(".")[0])
    if handler is not None:

        def report_answer(call: Any, answer: Any, *_times: Any) -> None:
            if (usage := usage_of(call, answer)) is not None and reports.is_new_of_callback(usage):
                report(usage)

        replace_name(LOGGED, lambda run: after(run, report_answer), handler)


def follow_trackers(report: Callable[[Any], Any]) -> None:
    """Calls `report` with the usage that a model's method gets, also for classes that are imported later."""
    known: set[Any] = set()

    def look_for_trackers() -> None:
        for model in models():
            if model not in known:
                known.add(model)
                if tracks_itself(model):
                    replace_name(f"crewai:BaseLLM.{TRACK}", lambda track: after(track, report), model)

    look_for_trackers()
    base = base_of_models()
    if hasattr(base, TRACK):
        replace_name("crewai:BaseLLM.__init__", looking(look_for_trackers), base)


class Reports:
    """The last reports of tokens. One call may have several, in two threads, with the same object.

    A model's own reports are all of different calls.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of_models: deque[Any] = deque(maxlen=RECENT)
        self._of_callbacks: deque[Any] = deque(maxlen=RECENT)

    def is_new_of_model(self, usage: Any) -> bool:
        with self._lock:
            self._of_models.append(usage)
            return not any(usage is known for known in self._of_callbacks)

    def is_new_of_callback(self, usage: Any) -> bool:
        with self._lock:
            if any(usage is known for known in (*self._of_callbacks, *self._of_models)):
                return False
            self._of_callbacks.append(usage)
            return True


def usage_of(call: Any, answer: Any) -> Any:
    """Returns the usage in the arguments of the callback, or None.

    LiteLLM's own report of a streamed answer has another usage object than crewai's, and is ignored.
    """
    by_crewai = type(answer) is dict
    if not by_crewai and isinstance(call, dict) and call.get("stream"):
        return None
    return answer.get("usage") if hasattr(answer, "get") else None


def tracks_itself(model: type) -> bool:
    """Returns whether the class has a method for the tokens of a call that does not call that of its base."""
    track = getattr(vars(model).get(TRACK), "__code__", None)
    return track is not None and "super" not in track.co_names


def after(run: Callable[..., Any], report: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a method that does what `run` does, and then calls `report` with its arguments."""

    def run_and_report(self: Any, *arguments: Any, **named: Any) -> None:
        run(self, *arguments, **named)
        report(*arguments, *named.values())

    return run_and_report


def plain(usage: Any) -> Mapping[str, Any]:
    """Returns a report as a dictionary. LiteLLM's is an object."""
    if isinstance(usage, dict):
        return usage
    return dict(usage.model_dump()) if hasattr(usage, "model_dump") else dict(getattr(usage, "__dict__", {}))
