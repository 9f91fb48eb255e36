from __future__ import annotations

import os
import threading

import pytest

from patience import DEADLINE
from windlass import accounts
from windlass.accounts import Account, take_rights_of, with_rights_of


def thread() -> threading.Thread:
    return with_rights_of(None, threading.current_thread).result(DEADLINE)


def test_no_work_waits_for_a_blocked_thread() -> None:
    go_on = threading.Event()
    blocked = with_rights_of(None, lambda: (go_on.wait(DEADLINE), threading.current_thread())[1])
    other = thread()
    assert not blocked.done()
    go_on.set()
    assert blocked.result(DEADLINE) is not other


def test_an_error_of_one_work_is_raised_where_its_result_is_read() -> None:
    failed = with_rights_of(None, lambda: int("none"))
    assert isinstance(failed.exception(DEADLINE), ValueError)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can take the rights of others")
def test_rights_that_work_has_or_takes_are_those_of_no_other_work() -> None:
    other = Account(12345, 12345, "other", is_ours=False)

    def take() -> int:
        take_rights_of(other)
        return os.geteuid()

    assert with_rights_of(None, take).result(DEADLINE) == other.uid
    assert with_rights_of(None, os.geteuid).result(DEADLINE) == 0
    assert with_rights_of(other, lambda: (os.geteuid(), os.getegid())).result(DEADLINE) == (other.uid, other.gid)
    assert with_rights_of(None, os.geteuid).result(DEADLINE) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can take the rights of others")
def test_work_does_not_begin_without_its_rights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "SYSTEM_CALLS", {})
    began = threading.Event()
    refused = with_rights_of(Account(12345, 12345, "other", is_ours=False), began.set)
    assert isinstance(refused.exception(DEADLINE), OSError)
    assert not began.is_set()


def test_a_forked_process_has_threads_of_its_own() -> None:
    thread()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = 0 if with_rights_of(None, lambda: True).result(DEADLINE) else 1
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
