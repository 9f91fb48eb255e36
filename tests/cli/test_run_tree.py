"""What `windlass dev` shows of runs while they go."""

from __future__ import annotations

from typing import Any

import pytest

from windlass.cli.run_tree import AT_ONCE, WHILE, RunTree
from windlass.cli.run_words import LONGEST
from windlass.kickoffs.files import FileChanges
from windlass.kickoffs.ids import new_id
from windlass.kickoffs.manifest import Manifest
from windlass.kickoffs.outcome import Outcome
from windlass.kickoffs.states import Reason, State
from windlass.runner import Output, Preparing
from windlass.store.claiming import Claimed
from windlass_child.protocol.messages import Event, TaskEnded, TaskStarted, Tokens, Warned

pytestmark = pytest.mark.unit


MANIFEST = Manifest("crew", "tides", {}, ())


def kickoff(attempt: int = 1) -> Claimed:
    return Claimed(new_id(), attempt, {}, "tides", {}, MANIFEST)


class Terminal:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.now = 0.0
        self.tree = RunTree(lambda line: self.lines.append(str(line)), lambda: self.now, lambda: 40)

    def show(self, claimed: Claimed, *told: object) -> list[str]:
        """The lines that these come to, after the first one."""
        self.tree(claimed, None)
        before = len(self.lines)
        for what in told:
            self.tree(claimed, what)
        return self.lines[before:]


def event(kind: str, at: float = 1.0, **payload: Any) -> Event:
    return Event(kind, at, payload)


def test_an_import_that_takes_long_is_a_line() -> None:
    assert Terminal().show(kickoff(), Preparing("zygote"), Preparing(None), Preparing("import")) == [
        "[1] |  importing the project's code"
    ]


def test_a_run_is_a_tree_of_tasks_agents_models_and_tools() -> None:
    terminal = Terminal()
    terminal.now = 10.0
    claimed = kickoff()
    lines = terminal.show(
        claimed,
        TaskStarted(0, "key", "research", "Researcher", 1.0),
        event("agent_execution_started", agent_role="Researcher"),
        event("llm_call_started", 1.0, call_id="1", model="gpt-4o"),
        event("llm_call_completed", 2.5, call_id="1", model="gpt-4o", usage={"total_tokens": 1200}),
        Tokens(1000, 200, 1200),
        event("tool_usage_finished", tool_name="search", failure=None),
        event("tool_usage_error", tool_name="search"),
        TaskEnded(0, "completed", 3.0, "words", "Researcher", 2.0),
        Outcome(State.SUCCESS, output="words"),
    )
    assert terminal.lines[0] == f"[1] tides: kickoff {claimed.id}"
    assert lines == [
        "[1] |  task research (Researcher)",
        "[1] |  |  agent Researcher",
        "[1] |  |  model gpt-4o: 1.5 s, 1,200 tokens",
        "[1] |  |  tool search: done",
        "[1] |  |  tool search: failed",
        "[1] |  task research: completed in 2.0 s",
        "[1] completed in 0 ms, 1,200 tokens",
    ]


def test_of_several_runs_each_line_tells_which() -> None:
    terminal = Terminal()
    first, second = kickoff(), kickoff(attempt=2)
    terminal.show(first)
    terminal.show(second, event("journal_restored", tasks=["a", "b"], methods=[]))
    terminal.now = 4.0
    failed = Outcome(State.FAILED, reason=Reason.ERROR, error="no tea.")
    terminal.tree(first, failed)
    assert terminal.lines[1:] == [
        f"[2] tides: kickoff {second.id}, attempt 2",
        "[2] |  |  taken from the journal: a, b",
        "[1] failed in 4.0 s, 0 tokens: no tea.",
    ]


@pytest.mark.parametrize(
    ("told", "line"),
    [
        (TaskStarted(4, "key", None, None, 1.0), "task task 5"),
        (Warned("code", "be careful"), "warning: be careful"),
        (event("llm_call_failed", model=None, error="429"), "|  model of the crew: failed: 429"),
        (event("llm_call_completed", model="m", usage="none"), "|  model m: answered"),
    ],
)
def test_what_is_missing_is_done_without(told: object, line: str) -> None:
    assert Terminal().show(kickoff(), told) == [f"[1] |  {line}"]


@pytest.mark.parametrize(
    "told",
    [
        event("task_started"),
        event("agent_execution_started"),
        TaskEnded(0, "skipped", 1.0),
        object(),
        event("journal_restored", tasks=5),
    ],
)
def test_what_does_not_matter_is_not_shown(told: object) -> None:
    assert Terminal().show(kickoff(), told) == []


def test_what_a_crew_says_can_not_move_the_cursor_and_is_cut() -> None:
    (line,) = Terminal().show(kickoff(), event("agent_execution_started", agent_role="\x1b[2J\nA" * 100))
    assert "\x1b" not in line
    assert "\n" not in line
    assert len(line) < LONGEST + 30


def test_a_run_that_is_over_or_was_never_begun_is_not_shown() -> None:
    terminal = Terminal()
    terminal.tree(kickoff(), Warned("code", "words"))
    claimed = kickoff()
    terminal.show(claimed, Outcome(State.SUCCESS))
    terminal.tree(claimed, Warned("code", "words"))
    assert len(terminal.lines) == 2


def printed(line: str) -> Output:
    return Output("stdout", line, 1.0)


def test_what_a_crew_prints_is_shown_without_terminal_codes_and_cut_to_the_width() -> None:
    lines = Terminal().show(
        kickoff(),
        printed("  \x1b[1;31mred\x1b[0m and \x1b]8;;https://tea.example\x07linked\x1b]8;;\x07  "),
        printed("10 %\r20 %\rdone\r"),
        printed("\x1b[2J"),
        printed(""),
        printed("ring\x07"),
        printed("long " * 20),
    )
    assert lines == [
        "[1] |  |  >   red and linked",
        "[1] |  |  > done",
        "[1] |  |  > ring\\x07",
        "[1] |  |  > long long long long long long long "[:40],
    ]


def test_of_many_lines_the_first_are_shown_and_the_others_counted() -> None:
    terminal = Terminal()
    terminal.now = 10.0
    claimed = kickoff()
    lines = terminal.show(claimed, *(printed(f"line {number}") for number in range(1500 + AT_ONCE)))
    assert lines == [f"[1] |  |  > line {number}" for number in range(AT_ONCE)]
    terminal.now += WHILE
    terminal.tree(claimed, printed("later"))
    for number in range(AT_ONCE):
        terminal.tree(claimed, printed(f"again {number}"))
    terminal.tree(claimed, Outcome(State.SUCCESS))
    assert terminal.lines[1 + AT_ONCE :] == [
        "[1] |  |  > (1,500 more lines)",
        "[1] |  |  > later",
        *(f"[1] |  |  > again {number}" for number in range(AT_ONCE - 1)),
        "[1] |  |  > (1 more lines)",
        "[1] completed in 1.0 s, 0 tokens",
    ]


TRACE = """Traceback (most recent call last):
  File "/venv/windlass_child/process/child.py", line 60, in live
    answer = work()
             ^^^^^^
  File "<frozen importlib._bootstrap>", line 1204, in _gcd_import
  File "/project/steep.py", line 3, in steep
    raise ValueError("no tea\x1b[2J")
ValueError: no tea\x1b[2J

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/venv/windlass_child/kinds/function.py", line 20, in run
    return function()
RuntimeError: no tea
"""


def test_a_failed_run_shows_its_trace_without_the_frames_of_windlass() -> None:
    outcome = Outcome(State.FAILED, reason=Reason.ERROR, error="no tea", trace=TRACE)
    assert Terminal().show(kickoff(), outcome) == [
        "[1] |  Traceback (most recent call last):",
        '[1] |    File "/project/steep.py", line 3, in steep',
        '[1] |      raise ValueError("no tea\\x1b[2J")',
        "[1] |  ValueError: no tea\\x1b[2J",
        "[1] |  ",
        "[1] |  The above exception was the direct cause of the following exception:",
        "[1] |  ",
        "[1] |  Traceback (most recent call last):",
        "[1] |  RuntimeError: no tea",
        "[1] failed in 0 ms, 0 tokens: no tea",
    ]


def test_the_files_of_a_run_are_mentioned_before_its_end() -> None:
    terminal, claimed = Terminal(), kickoff()
    lines = terminal.show(claimed, FileChanges(3), Outcome(State.SUCCESS, output="words"))
    assert lines[0] == f"[1] |  3 files: windlass files {claimed.id}"
    assert "completed" in lines[1]
