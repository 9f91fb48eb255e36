from __future__ import annotations

import os
import threading

import pytest

from patience import DEADLINE
from windlass import accounts
from windlass.accounts import Account, take_rights_of, with_rights_of


def thread() -> threading.Thread:
    return with_rights_of(None, threading.current_thread).result(DEADLINE)


def idle(one: threading.Thread) -> bool:
    """Whether the thread waits for work, which it does a moment after the result of the last one is there."""
    for _ in range(1000):
        if one in accounts._idle:
            return True
        threading.Event().wait(0.01)
    return False


def test_a_thread_that_has_done_its_work_does_the_next_one() -> None:
    first = thread()
    assert idle(first)
    assert thread() is first


def test_no_work_waits_for_a_blocked_thread() -> None:
    go_on = threading.Event()
    blocked = with_rights_of(None, lambda: (go_on.wait(DEADLINE), threading.current_thread())[1])
    other = thread()
    assert not blocked.done()
    go_on.set()
    assert blocked.result(DEADLINE) is not other


def test_an_error_of_one_work_is_raised_where_its_result_is_read_and_the_thread_goes_on() -> None:
    failed = with_rights_of(None, lambda: int("none"))
    assert isinstance(failed.exception(DEADLINE), ValueError)
    assert thread().is_alive()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can take the rights of others")
def test_a_thread_whose_work_took_other_rights_does_no_other_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "IDLE_SECONDS", 3.0 * DEADLINE)  # it ends although it could go on
    other = Account(12345, 12345, "other", is_ours=False)

    def take() -> threading.Thread:
        take_rights_of(other)
        return threading.current_thread()

    taken = with_rights_of(None, take).result(DEADLINE)
    taken.join(DEADLINE)
    assert not taken.is_alive()
    with_theirs = with_rights_of(other, lambda: (os.geteuid(), threading.current_thread()))
    assert with_theirs.result(DEADLINE)[0] == other.uid
    assert idle(with_theirs.result(DEADLINE)[1])
    assert with_rights_of(None, os.geteuid).result(DEADLINE) == 0


def test_a_thread_without_work_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "IDLE_SECONDS", 0.01)
    monkeypatch.setattr(accounts, "_idle", [])
    one = thread()
    one.join(DEADLINE)
    assert not one.is_alive()
    assert one not in accounts._idle


def test_a_forked_process_has_threads_of_its_own() -> None:
    assert idle(thread())
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = 0 if with_rights_of(None, lambda: True).result(DEADLINE) else 1
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
