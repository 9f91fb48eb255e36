"""However a child dies, its zygote tells it, goes on, and the reason is there to be told."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from projects_for_tests.driver import DrivenChild, DrivenZygote, value_of
from projects_for_tests.wild import wild
from windlass_child.protocol.frames import BadMessage
from windlass_child.protocol.messages import DUMP_SIGNAL, Budget, Project, Signal, Succeeded, TaskEnded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DrivenZygote]:
    """One for all of these: none of the deaths may harm it."""
    with DrivenZygote(tmp_path_factory.mktemp("zygote")) as zygote:
        zygote.ready()
        yield zygote


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return wild(tmp_path / "project")


@pytest.fixture(autouse=True)
def goes_on(zygote: DrivenZygote, project: Project, tmp_path: Path) -> Iterator[None]:
    yield
    child = zygote.fork()
    child.run(project, tmp_path / "after", inputs={"do": "threads"})
    assert child.answer() == Succeeded("threads")
    child.exited()


def run(zygote: DrivenZygote, project: Project, folder: Path, do: str, **inputs: Any) -> DrivenChild:
    child = zygote.fork()
    child.run(project, folder / "folder", inputs={"do": do, **inputs})
    return child


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE])
def test_a_signal(zygote: DrivenZygote, project: Project, tmp_path: Path, number: int) -> None:
    status = run(zygote, project, tmp_path, "signal", number=number).exited()
    if number == signal.SIGPIPE:
        assert os.waitstatus_to_exitcode(status) == 0, "Python ignores it"
    else:
        assert os.WTERMSIG(status) == number


@pytest.mark.parametrize("code", [0, 1, 3, 255])
def test_an_exit_without_an_answer(zygote: DrivenZygote, project: Project, tmp_path: Path, code: int) -> None:
    child = run(zygote, project, tmp_path, "exit", code=code)
    assert os.waitstatus_to_exitcode(child.exited()) == code
    assert not child.talk.of(Succeeded)


@pytest.mark.parametrize(
    ("deed", "number", "words"),
    [
        ("segfault", signal.SIGSEGV, "Fatal Python error: Segmentation fault"),
        ("abort", signal.SIGABRT, "Fatal Python error: Aborted"),
        ("recurse_in_c", signal.SIGSEGV, "Fatal Python error: Segmentation fault"),
    ],
)
def test_native_code_that_fails_says_where(
    zygote: DrivenZygote, project: Project, tmp_path: Path, deed: str, number: int, words: str
) -> None:
    child = run(zygote, project, tmp_path, deed)
    status = child.exited()
    assert os.WTERMSIG(status) == number
    assert not os.WCOREDUMP(status)
    assert words in child.errors.data.decode()
    assert f"in do_{deed}" in child.errors.data.decode()


def test_a_recursion(zygote: DrivenZygote, project: Project, tmp_path: Path) -> None:
    failed = run(zygote, project, tmp_path, "recurse").failure()
    assert failed.message.startswith("RecursionError: maximum recursion depth exceeded")
    assert failed.hint == "Look for a function that calls itself without end."


def test_an_exception(zygote: DrivenZygote, project: Project, tmp_path: Path) -> None:
    child = run(zygote, project, tmp_path, "raise")
    assert child.failure().message.startswith("LookupError: nothing there (work.py:")
    assert child.failure().reason == "error"
    assert os.waitstatus_to_exitcode(child.exited()) == 0


def test_of_an_exception_with_much_text_the_ends_are_kept(
    zygote: DrivenZygote, project: Project, tmp_path: Path
) -> None:
    failed = run(zygote, project, tmp_path, "raise_much").failure()
    assert len(failed.message) < 1000
    assert len(failed.trace) < 250_000
    assert failed.trace.startswith("Traceback")


def test_garbage_on_its_socket(zygote: DrivenZygote, project: Project, tmp_path: Path) -> None:
    child = run(zygote, project, tmp_path, "garbage")
    with pytest.raises(BadMessage):
        child.answer()
    child.talk.ended = True
    zygote.talk.send(Signal(child.name, signal.SIGKILL))
    assert os.WTERMSIG(child.exited()) == signal.SIGKILL


@pytest.mark.parametrize("more", [{}, {"open": True}], ids=["closed", "another in its place"])
def test_a_closed_socket_is_told_as_that_and_nothing_is_sent_elsewhere(
    zygote: DrivenZygote, project: Project, tmp_path: Path, more: dict[str, bool]
) -> None:
    child = run(zygote, project, tmp_path, "close_descriptors", **more)
    assert os.waitstatus_to_exitcode(child.exited()) == os.EX_OSERR
    assert child.errors.data.decode() == (
        "the crew's code closed the socket that its process reports on; look for os.closerange or os.close\n"
    )
    assert child.printed == ""


def test_closed_output(zygote: DrivenZygote, project: Project, tmp_path: Path) -> None:
    assert run(zygote, project, tmp_path, "close_output").answer() == Succeeded("closed")


def test_ten_megabytes_of_output_a_second(zygote: DrivenZygote, project: Project, tmp_path: Path) -> None:
    child = run(zygote, project, tmp_path, "flood", seconds=3)
    answer = child.answer()
    child.exited()
    assert len(child.output.data) == value_of(answer) > 10_000_000
    assert child.talk.of(TaskEnded)[0].state == "completed"


def test_threads_that_do_not_end(zygote: DrivenZygote, project: Project, tmp_path: Path) -> None:
    child = run(zygote, project, tmp_path, "threads")
    assert child.answer() == Succeeded("threads")
    assert os.waitstatus_to_exitcode(child.exited()) == 0


@pytest.mark.parametrize(("deed", "place"), [("block_python", "in do_block_python"), ("block_in_c", "in match")])
def test_a_child_that_is_blocked_tells_where_its_threads_stand_and_goes_on(
    zygote: DrivenZygote, project: Project, tmp_path: Path, deed: str, place: str
) -> None:
    child = run(zygote, project, tmp_path, deed)
    zygote.until(lambda: "blocked" in child.printed)
    zygote.talk.send(Signal(child.name, DUMP_SIGNAL))
    zygote.until(lambda: 'work.py", line' in child.stacks and place in child.stacks)
    assert "Current thread" in child.stacks or "Thread 0x" in child.stacks
    zygote.talk.send(Signal(child.name, signal.SIGKILL))
    assert os.WTERMSIG(child.exited()) == signal.SIGKILL, "not of the signal that asked"


@pytest.mark.parametrize("start", ["fork", "exec"])
def test_a_child_that_has_no_order_yet_tells_its_stacks_and_goes_on(
    zygote: DrivenZygote, project: Project, tmp_path: Path, start: str
) -> None:
    child = zygote.fork(start)
    zygote.until(lambda: child.talk.messages)

    def waits_for_its_order() -> bool:
        zygote.talk.send(Signal(child.name, DUMP_SIGNAL))  # once is not enough: the child may not wait yet
        return "in listen" in child.stacks

    zygote.until(waits_for_its_order)
    child.run(project, tmp_path / "folder", inputs={"do": "threads"})
    assert child.answer() == Succeeded("threads")


def test_input_is_refused_in_words(zygote: DrivenZygote, project: Project, tmp_path: Path) -> None:
    failed = run(zygote, project, tmp_path, "ask").failure()
    assert failed.message.startswith("the code called input() and asked for 'your name?', but a kickoff has no one")
    assert "(work.py:" in failed.message


def test_code_that_can_do_without_an_answer_finds_the_end_of_its_input(
    zygote: DrivenZygote, project: Project, tmp_path: Path
) -> None:
    assert run(zygote, project, tmp_path, "ask_softly").answer() == Succeeded("no one")


def test_a_result_over_its_limit_ends_the_run_with_the_limit_and_how_large_it_is(
    zygote: DrivenZygote, project: Project, tmp_path: Path
) -> None:
    child = zygote.fork()
    inputs = {"do": "many", "characters": 3000}
    child.run(project, tmp_path / "folder", inputs=inputs, budget=Budget(result_limit=2048))
    failed = child.failure()
    assert (failed.reason, failed.message) == ("limit", "its result is 5.9 KB; its limit is 2 KB.")
    assert failed.hint == (
        "Raise result_limit under [tool.windlass.limits] in pyproject.toml, or in the kickoff's `limits`."
    )


def test_a_result_at_its_limit_is_given(zygote: DrivenZygote, project: Project, tmp_path: Path) -> None:
    child = zygote.fork()
    inputs = {"do": "many", "characters": 1023}
    child.run(project, tmp_path / "folder", inputs=inputs, budget=Budget(result_limit=2048))
    assert child.answer() == Succeeded("é" * 1023)
