"""What a terminal shows in place of plain lines, and when it gets plain lines."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from cli.fake_crew import KICKOFF, TOKEN
from cli.the_command import line, read_to_end
from patience import DEADLINE
from windlass.cli.live_tree import MOST_RUNS, LiveTree
from windlass.cli.printing import columns, print_table
from windlass.kickoffs.ids import new_id
from windlass.kickoffs.manifest import Manifest
from windlass.kickoffs.outcome import Outcome
from windlass.kickoffs.states import Reason, State
from windlass.runner import Output
from windlass.store.claiming import Claimed
from windlass_child.protocol.messages import Event, TaskEnded, TaskStarted, Tokens, Warned

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.fake_crew import FakeCrew
    from cli.the_command import Command

HOSTILE = "[red]x[/red]\x1b[2J\x9b2J\u202e:warning:"
SHOWN = "[red]x[/red]\\x1b[2J\\x9b2J\\u202e:warning:"
CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


def kickoff(slug: str = "tides") -> Claimed:
    return Claimed(new_id(), 1, {}, slug, {}, Manifest("crew", slug, {}, ()))


class Screen:
    """A live tree on a terminal of 80 columns, at a time that a test sets."""

    def __init__(self) -> None:
        self.file = io.StringIO()
        console = Console(
            file=self.file, force_terminal=True, width=80, markup=False, highlight=False, emoji=False, _environ={}
        )
        self.now = 10.0
        self.tree = LiveTree(console, lambda: self.now)
        self._console = console

    def drawn(self) -> list[str]:
        """The lines of the tree without the rule above it, without colours."""
        plain = Console(width=80, color_system=None, file=io.StringIO())
        with plain.capture() as found:
            plain.print(self.tree.tree())
        return [text.rstrip() for text in found.get().splitlines()[1:]]

    def lines(self) -> list[str]:
        """All lines that stay, without colours."""
        return [text for text in CODES.sub("", self.file.getvalue()).splitlines() if text[:1] == "["]


@pytest.fixture
def screen() -> Iterator[Screen]:
    screen = Screen()
    yield screen
    screen.tree.close()


def test_the_tree_shows_what_each_run_does_now(screen: Screen) -> None:
    first, second = kickoff(), kickoff("moon")
    screen.tree(first, None)
    screen.tree(second, None)
    screen.tree(first, TaskStarted(0, "key", "research", "Researcher", 1.0))
    screen.tree(first, Event("llm_call_started", 4102444800.0, {"call_id": "1", "model": "gpt-4o"}))
    screen.tree(first, Tokens(1000, 200, 1200))
    screen.now += 2.5
    assert screen.drawn() == [
        "[1] tides  2.5 s  1,200 tokens",
        "\u2514\u2500\u2500 task research  2.5 s",
        "    \u2514\u2500\u2500 model gpt-4o  0.0 s",
        "[2] moon  2.5 s  0 tokens",
    ]
    screen.tree(first, Event("llm_call_completed", 4102444801.0, {"call_id": "1", "model": "gpt-4o"}))
    screen.tree(first, TaskEnded(0, "completed", 3.0, "words", "Researcher", 2.0))
    assert screen.drawn()[:2] == ["[1] tides  2.5 s  1,200 tokens", "[2] moon  2.5 s  0 tokens"]
    screen.tree(first, Outcome(State.SUCCESS))
    screen.tree(second, Outcome(State.FAILED, reason=Reason.ERROR, error="no tea"))
    assert screen.drawn() == []
    assert screen.file.getvalue().endswith("\x1b[2K")  # the tree is removed, and the cursor is at its place
    shown = CODES.sub("", screen.file.getvalue())
    assert "[1] completed in 2.5 s, 1,200 tokens\n" in shown
    assert "[2] failed in 2.5 s, 0 tokens: no tea\n" in shown


def test_of_many_runs_the_first_are_drawn_and_the_others_counted(screen: Screen) -> None:
    for _ in range(MOST_RUNS + 3):
        screen.tree(kickoff(), None)
    assert len(screen.drawn()) == MOST_RUNS + 1
    assert screen.drawn()[-1] == "and 3 more runs"


@pytest.mark.parametrize(
    "told",
    [
        TaskStarted(0, "key", HOSTILE, HOSTILE, 1.0),
        Warned("code", HOSTILE),
        Event("llm_call_started", 1.0, {"call_id": "1", "model": HOSTILE}),
        Event("llm_call_failed", 1.0, {"call_id": "1", "model": HOSTILE, "error": HOSTILE}),
        Event("agent_execution_started", 1.0, {"agent_role": HOSTILE}),
        Output("stdout", "[red]x[/red]\x9b2J\u202e:warning:", 1.0),
        Outcome(State.FAILED, reason=Reason.ERROR, error=HOSTILE, trace=HOSTILE),
    ],
    ids=lambda told: type(told).__name__,
)
def test_text_of_a_crew_is_neither_markup_nor_terminal_codes(screen: Screen, told: Any) -> None:
    claimed = kickoff()
    screen.tree(claimed, None)
    screen.tree(claimed, told)
    shown = "\n".join([*screen.lines(), *screen.drawn()])
    assert "[red]x[/red]" in shown
    assert "\\x9b2J\\u202e:warning:" in shown
    assert not set("\x1b\x9b\u202e") & set(shown)
    assert "\x1b[2J" not in screen.file.getvalue()
    assert "\x9b" not in screen.file.getvalue()


def test_log_lines_stand_above_the_tree(screen: Screen) -> None:
    screen.tree(kickoff(), None)
    screen.tree.log.write(f"2026 WARNING {HOSTILE}\n")
    screen.tree.notify(f"warning: {HOSTILE}")
    shown = CODES.sub("", screen.file.getvalue())
    assert f"2026 WARNING {SHOWN}\n" in shown
    assert f"warning: {SHOWN}\n" in shown


def test_no_rows_are_no_lines() -> None:
    assert columns([]) == []


def test_columns_are_as_wide_as_their_cells_are_on_a_screen() -> None:
    assert columns([["NAME", "STATE"], ["\u6f6e\u6c50\u8868", "ok"], ["x", "a\nb"]]) == [
        "NAME    STATE",
        "\u6f6e\u6c50\u8868  ok",
        "x       a\\nb",
    ]


def test_a_table_that_is_wider_than_the_terminal_is_not_cut() -> None:
    terminal, id_ = Terminal(), "0199aaaa-0000-7000-8000-000000000001"
    for width, styled in ((80, True), (40, False)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("COLUMNS", str(width))
            patch.delenv("NO_COLOR", raising=False)
            patch.setenv("TERM", "xterm")
            patch.setattr("sys.stdout", terminal)
            print_table(["STATE", "ID"], [["active", id_]])
        shown = terminal.taken()
        assert ("\x1b[32mactive" in shown) is styled
        assert f"active  {id_}" in CODES.sub("", shown)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def taken(self) -> str:
        shown = self.getvalue()
        self.seek(0)
        self.truncate()
        return shown


def on_a_terminal(windlass: Command, *arguments: str, **variables: str) -> str:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        line(*arguments), stdout=theirs, stderr=theirs, env={**windlass.environment, **variables}
    )
    os.close(theirs)
    shown = read_to_end(ours)
    process.wait(DEADLINE)
    return shown


def test_an_error_is_in_a_panel_on_a_terminal_only(windlass: Command) -> None:
    arguments = ("status", "http://127.0.0.1:1", KICKOFF, "--token", TOKEN)
    shown = on_a_terminal(windlass, *arguments, COLUMNS="200")
    assert re.search(r"\x1b\[31m.* error ", shown)
    assert "http://127.0.0.1:1 can't be reached" in shown
    plain = windlass(*arguments).err
    assert plain.startswith("error: http://127.0.0.1:1 can't be reached")
    assert "\x1b" not in plain


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
def test_plain_lines_when_a_person_wants_them(windlass: Command, crew: FakeCrew, variables: dict[str, str]) -> None:
    shown = on_a_terminal(windlass, "status", crew.url, KICKOFF, "--watch", "--token", TOKEN, **variables)
    assert "\x1b" not in shown
    assert shown.splitlines() == ["completed, 4.2 s, 1,234 tokens", "Tea is a leaf."]
    assert on_a_terminal(windlass, "status", "http://127.0.0.1:1", KICKOFF, "--token", TOKEN, **variables).startswith(
        "error: "
    )


def test_a_pipe_gets_plain_lines_whatever_the_variables_ask_for(windlass: Command, crew: FakeCrew) -> None:
    ended = windlass("status", crew.url, KICKOFF, "--token", TOKEN, FORCE_COLOR="1", TTY_COMPATIBLE="1")
    assert (ended.out, ended.err) == ("Tea is a leaf.\n", "completed, 4.2 s, 1,234 tokens\n")
    table = windlass("inputs", crew.url, "--token", TOKEN, FORCE_COLOR="1").out
    assert table.startswith("topic  required   string")
    assert "\x1b" not in table
