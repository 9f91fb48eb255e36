"""Asks a person where a crew or a flow wants one: for tasks with human_input, for @human_feedback and for Flow.ask.

A project that asks persons in its own way keeps that: its own provider, or its own input().
"""

from __future__ import annotations

import builtins
import contextlib
import contextvars
import json
from typing import TYPE_CHECKING, Any

from windlass_child.crewai.agent_limits import Waits, limits_without_waits
from windlass_child.crewai.events import forward
from windlass_child.crewai.features import first_of, has, optional
from windlass_child.crewai.flow_shape import state_of
from windlass_child.crewai.tasks import described
from windlass_child.journal.questions import Question, driven, driven_meanwhile
from windlass_child.journal.step_context import step_here
from windlass_child.journal.value_codec import decoded, encoded
from windlass_child.process import process_env
from windlass_child.replacements import replaced
from windlass_child.results import text_of_output

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from windlass_child.crewai.tasks import TaskFollower
    from windlass_child.journal.questions import Dialog
    from windlass_child.process.report import Report
    from windlass_child.protocol.messages import Answered

human_input = optional("crewai.core.providers.human_input")
Texts = optional("crewai.utilities.i18n:I18N")
flow_config = optional("crewai.flow.flow_config:flow_config")
AgentFinish = first_of("crewai.agents.parser:AgentFinish")
FlowPaused = optional("crewai.events.types.flow_events:FlowPausedEvent")
current_method = optional("crewai.flow.flow_context:current_flow_method_name")
FLOW_CONFIG = "crewai.flow.flow_config:flow_config."
PROVIDERS = ("hitl_provider", "input_provider")
"""The attributes of `flow_config` for the human answers that a flow asks for."""

EXECUTOR = "crewai.agents.agent_executor:AgentExecutor"
MIXIN = "crewai.agents.agent_builder.base_agent_executor_mixin:CrewAgentExecutorMixin"
ASK = f"{MIXIN}._ask_human_input"
"""The method that asks in releases without a provider."""
ASKS_IN_EXECUTOR = has(ASK)
COLLAPSE = "crewai.flow.flow:Flow._collapse_to_outcome"
COLLAPSES = has(COLLAPSE)

PAUSES = has("crewai.hooks:HookAborted") and has(f"{EXECUTOR}._complete_feedback") and human_input is not None
"""Whether a task can go on with an answer in another process. In older releases the process waits for the answer."""

WAITS_ALIVE = "waits_alive"
"""The code of the warning for a question for which the process waits."""
APPROVED, REJECTED = "approved", "rejected"
"""The words for an answer without words, where the flow needs some."""


class Person:
    """Stands for crewai's providers of human answers in one run."""

    def __init__(self, report: Report, follower: TaskFollower | None) -> None:
        self._report = report
        self._questions = report.questions
        self._follower = follower
        self.waits = Waits()

    def setup_messages(self, context: Any) -> bool:
        """Begins the executor of an agent with the conversation of an earlier attempt and the person's words."""
        dialog = self._dialog(context.task) if PAUSES else None
        last = dialog.last() if dialog else None
        if last is None or last.answer is None or last.answer.approved:
            return False
        self._report.answered(self._question(context, last.draft), last.answer)
        context.messages = [*last.kept["messages"], *reply(context, last.draft, last.answer)]
        return True

    def post_setup_messages(self, _: Any) -> None:
        pass

    def handle_feedback(self, answer: Any, context: Any) -> Any:
        if not asks_by_default():
            return human_input.SyncHumanInputProvider().handle_feedback(answer, context)
        while not (given := driven(self._judged(answer, context))).approved:
            context.messages += reply(context, text_of_answer(answer), given)
            answer = gone_on(context)
        return answer

    async def handle_feedback_async(self, answer: Any, context: Any) -> Any:
        if not asks_by_default():
            return await human_input.SyncHumanInputProvider().handle_feedback_async(answer, context)
        while not (given := await driven_meanwhile(self._judged(answer, context))).approved:
            context.messages += reply(context, text_of_answer(answer), given)
            answer = await gone_on_async(context)
        return answer

    def request_feedback(self, context: Any, flow: Any) -> str:
        """Asks for the feedback on the output of a flow's method."""
        if not asks_by_default():
            return str(
                flow._request_human_feedback(  # noqa: SLF001 - what crewai does without a provider
                    message=context.message, output=context.method_output, metadata=context.metadata, emit=context.emit
                )
            )
        choices, step = tuple(context.emit or ()), step_here() or ""
        question = Question(
            step,
            self._questions.numbered(step, "feedback"),
            context.message,
            text_of_output(context.method_output),
            method=context.method_name,
            choices=choices,
        )
        given = self._questions.earlier(question)
        if given is not None:
            self._report.answered(question, given)
            return words_of(given, choices)
        self._report_state(context, flow)
        if step in self._questions.keeps and not learns(flow, context.method_name):
            driven(self._questions.pause(question))
        return words_of(driven(self._questions.wait(question)), choices)

    def _report_state(self, context: Any, flow: Any) -> None:
        """Reports the state of a flow that is about to ask, by crewai's own event for that."""
        if FlowPaused is None:
            return
        with contextlib.suppress(Exception):  # runs code of the project's state; the question has what is needed
            found = state_of(flow)
            # The event would leave out all fields of a model.
            state = found.model_dump() if hasattr(found, "model_dump") else dict(found)
            seen = {"flow_id": context.flow_id, "method_name": context.method_name, "message": context.message}
            event = FlowPaused(flow_name=type(flow).__name__, state=state, emit=context.emit, **seen)
            forward(self._report, flow, event)

    def request_input(self, message: str, flow: Any, metadata: Any = None) -> str:
        """Asks a question of Flow.ask. crewai takes an exception here for no answer, so the process waits."""
        if not asks_by_default():
            return str(flow_console().request_input(message, flow, metadata))
        step = step_here() or ""
        method = None if current_method is None else current_method.get(None)
        question = Question(step, self._questions.numbered(step, "input"), str(message), method=method)
        return driven(self._questions.wait(question)).feedback

    def ask_in_executor(self, executor: Any, draft: Any) -> str:
        """Asks for the feedback on a task's result in a release without providers, which takes "" for an approval."""
        with self.waits.of(executor.task):
            given = driven(self._questions.wait(self._question(executor, str(draft))))
        return "" if given.approved else in_words(given)

    def _judged(self, answer: Any, context: Any) -> Generator[None, None, Answered]:
        question = self._question(context, text_of_answer(answer), kept(answer, context))
        dialog = self._dialog(context.task)
        with self.waits.of(context.task):
            if PAUSES and dialog is not None:
                yield from self._questions.pause(question)
            return (yield from self._questions.wait(question))

    def _question(self, context: Any, draft: str, held: Any = None) -> Question:
        task, dialog = context.task, self._dialog(context.task) if PAUSES else None
        step = self._step(task)
        known = None if task is None else described(task)["name"]
        position = None if task is None or self._follower is None else self._follower.known_position(task)
        key = self._questions.numbered(step, "task") if dialog is None else dialog.next_key()
        what = f"the task {known}" if known else "a task"
        text = f"Approve the result of {what}, or describe what to change."
        return Question(step, key, text, draft, task=known, kept=held, position=position)

    def _step(self, task: Any) -> str:
        return self._questions.tasks.get(str(getattr(task, "id", None))) or step_here() or ""

    def _dialog(self, task: Any) -> Dialog | None:
        """Returns the questions about a task, or None for a task that the journal does not know."""
        step = self._questions.tasks.get(str(getattr(task, "id", None)))
        return None if step is None else self._questions.dialog(step)

    def answered_earlier(self, executor: Any, inputs: dict[str, Any]) -> Generator[None, None, Any]:
        """Returns the result that a person has approved, and repeats a question that was not answered. Returns None if
        the agent must work.
        """
        dialog = self._dialog(getattr(executor, "task", None)) if inputs.get("ask_for_human_input") else None
        last = dialog.last() if dialog else None
        if dialog is None or last is None or (last.answer is not None and not last.answer.approved):
            return None
        if last.answer is None:
            yield from self._questions.pause(self._question(executor, last.draft, last.kept))
        else:
            self._report.answered(self._question(executor, last.draft), last.answer)
        dialog.approved()
        return finished(executor, last.draft, last.kept)


def asks_by_default() -> bool:
    """Returns whether input() is that of Windlass. A project that has replaced it answers in its own way."""
    return builtins.input is process_env.refuse


def in_words(answer: Answered) -> str:
    """Returns the words of a person who did not approve."""
    return answer.feedback if answer.feedback.strip() else REJECTED


def words_of(answer: Answered, choices: tuple[str, ...]) -> str:
    """Returns the answer as text. Without words it is the matching word for a flow with choices."""
    if answer.approved and not answer.feedback.strip():
        return APPROVED if choices else ""
    return in_words(answer)


def text_of_answer(answer: Any) -> str:
    return answer.output if isinstance(answer.output, str) else str(answer.output.model_dump_json())


def kept(answer: Any, context: Any) -> dict[str, Any]:
    """Returns the conversation of an agent, and its result if that is no text, as JSON."""
    found = {"messages": json.loads(json.dumps(context.messages, default=str))}
    with contextlib.suppress(Exception):  # runs code of the project's classes; the text of the result is kept anyhow
        return found if isinstance(answer.output, str) else {**found, "output": encoded(answer.output)}
    return found


def reply(context: Any, draft: str, answer: Answered) -> list[Any]:
    """Returns the messages that follow a draft: crewai itself leaves the draft out, which the model must see."""
    words = in_words(answer)
    if hasattr(context, "_format_feedback_message"):
        feedback = context._format_feedback_message(words)  # noqa: SLF001 - a provider's own work
    else:
        feedback = {"role": "user", "content": Texts().slice("feedback_instructions").format(feedback=words)}
    return [{"role": "assistant", "content": draft}, feedback]


def gone_on(context: Any) -> Any:
    """Lets the agent work on with its conversation. Returns its new result."""
    if hasattr(context, "_invoke_loop"):
        return context._invoke_loop()  # noqa: SLF001 - a provider's own work
    begin_again(context)
    context.kickoff()
    return result_of(context)


async def gone_on_async(context: Any) -> Any:
    if hasattr(context, "_ainvoke_loop"):
        return await context._ainvoke_loop()  # noqa: SLF001 - as above
    begin_again(context)
    await context.kickoff_async()
    return result_of(context)


def begin_again(context: Any) -> None:
    """Resets the executor of crewai 1.14.5 to 1.15.1 except for its conversation. It has no method for feedback: crewai
    would fail there, and begin the task again without the words of the person.
    """
    fresh = type(context._state)()  # noqa: SLF001 - the object behind a proxy
    for name in set(type(fresh).model_fields) - {"id", "messages", "ask_for_human_input"}:
        setattr(context.state, name, getattr(fresh, name))
    context._finalize_called = False  # noqa: SLF001 - as its method `invoke` does


def result_of(context: Any) -> Any:
    answer = context.state.current_answer
    if not isinstance(answer, AgentFinish):
        raise RuntimeError("Agent execution ended without reaching a final answer.")  # noqa: TRY004 - crewai's own exception
    return answer


def finished(executor: Any, draft: str, held: Any) -> Any:
    """Ends the executor of an agent with a result that a person has approved."""
    output: Any = draft
    with contextlib.suppress(Exception):  # as above: the text gives the same result
        output = decoded(held["output"]) if "output" in held else draft
    executor.state.messages = list(held["messages"])
    end = AgentFinish(thought="", output=output, text=draft)
    executor._complete_feedback(end)  # noqa: SLF001 - as the executor does after an approval
    executor._save_to_memory(end)  # noqa: SLF001 - as above
    return {"output": output}


def learns(flow: Any, method: str) -> bool:
    """Returns whether crewai changes the output of the method before a person reads it, by lessons that it keeps."""
    definition = flow._definition.methods.get(str(method)) if hasattr(flow, "_definition") else None  # noqa: SLF001 - crewai has no public one
    feedback = getattr(definition, "human_feedback", None)
    return bool(getattr(feedback, "learn", False)) and getattr(flow, "memory", None) is not None


def flow_console() -> Any:
    return first_of("crewai.flow.async_feedback.providers:ConsoleProvider")()


@contextlib.contextmanager
def standing_for_persons(person: Person) -> Iterator[None]:
    """Installs `person` as each provider that this crewai has and the project has not set, inside the `with` block.

    Without a provider crewai calls input(), which fails in a kickoff.
    """
    with contextlib.ExitStack() as stack:
        if human_input is not None and not project_asks_elsewhere():
            # set as the variable's default and not as its value: threads that crew code starts see only the default
            variable = contextvars.ContextVar("human_input_provider", default=person)
            stack.enter_context(replaced("crewai.core.providers.human_input:_provider", lambda _: variable))
        if PAUSES:
            for name, make in {"invoke": answering, "invoke_async": answering_async}.items():
                stack.enter_context(replaced(f"{EXECUTOR}.{name}", make(person)))
        if ASKS_IN_EXECUTOR and optional(ASK).__module__.startswith("crewai."):
            stack.enter_context(replaced(ASK, lambda ask: asking(person, ask)))
        stack.enter_context(limits_without_waits(person.waits))
        if COLLAPSES:
            stack.enter_context(replaced(COLLAPSE, exact_first))
        for name in PROVIDERS:
            if hasattr(flow_config, name):
                stack.enter_context(replaced(FLOW_CONFIG + name, lambda given: given or person))
        yield


def answering(person: Person) -> Callable[[Any], Any]:
    def make(invoke: Callable[..., Any]) -> Callable[..., Any]:
        def invoke_or_answer(executor: Any, inputs: dict[str, Any]) -> Any:
            return driven(person.answered_earlier(executor, inputs)) or invoke(executor, inputs)

        return invoke_or_answer

    return make


def answering_async(person: Person) -> Callable[[Any], Any]:
    def make(invoke: Callable[..., Any]) -> Callable[..., Any]:
        async def invoke_or_answer(executor: Any, inputs: dict[str, Any]) -> Any:
            return await driven_meanwhile(person.answered_earlier(executor, inputs)) or await invoke(executor, inputs)

        return invoke_or_answer

    return make


def asking(person: Person, ask: Callable[..., Any]) -> Callable[..., Any]:
    def ask_person(executor: Any, draft: Any) -> Any:
        return person.ask_in_executor(executor, draft) if asks_by_default() else ask(executor, draft)

    return ask_person


def exact_first(collapse: Callable[..., str]) -> Callable[..., str]:
    """Takes an answer that is one of the outcomes for that outcome, without a model."""

    def collapse_other_words(flow: Any, feedback: str, outcomes: Any, llm: Any) -> str:
        words, names = feedback.strip(), list(outcomes)
        found = [one for one in names if one == words] or [one for one in names if one.casefold() == words.casefold()]
        return str(found[0]) if found else collapse(flow, feedback=feedback, outcomes=outcomes, llm=llm)

    return collapse_other_words


def project_asks_elsewhere() -> bool:
    """Returns whether the project's code has set a provider of human answers other than the console."""
    if human_input is None:
        return False
    provider = human_input._provider.get()  # noqa: SLF001 - get_provider would create a provider
    return provider is not None and type(provider) is not human_input.SyncHumanInputProvider
