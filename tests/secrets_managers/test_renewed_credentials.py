from __future__ import annotations

import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from windlass.secrets.provider import AccessDenied, CredentialRefused, ProviderUnavailable
from windlass.secrets.providers.renewal import Renewed

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.unit


class Maker:
    """Makes 1, 2, 3, ... which live for `life` seconds."""

    def __init__(self, life: float = 3600) -> None:
        self.life = life
        self.made = 0

    def __call__(self) -> tuple[int, float]:
        self.made += 1
        return self.made, self.life


@pytest.fixture
def pass_seconds(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def pass_seconds(seconds: float) -> None:
        now[0] += seconds

    return pass_seconds


@pytest.mark.parametrize(("life", "early"), [(3600, 300), (60, 12)])
def test_it_is_renewed_before_its_end(life: float, early: float, pass_seconds: Callable[[float], None]) -> None:
    renewed = Renewed(Maker(life))
    assert renewed.current is None
    assert renewed.use(int) == 1
    pass_seconds(life - early - 1)
    assert renewed.use(int) == 1
    pass_seconds(2)
    assert renewed.use(int) == 2
    assert renewed.current == 2


def test_one_that_the_provider_refuses_is_renewed_once() -> None:
    def refuse_old(value: int) -> int:
        if value < 3:
            raise CredentialRefused("refused")
        return value

    maker = Maker()
    renewed = Renewed(maker)
    with pytest.raises(CredentialRefused):  # it has just been made
        renewed.use(refuse_old)
    with pytest.raises(CredentialRefused):
        renewed.use(refuse_old)
    assert maker.made == 2
    assert renewed.use(refuse_old) == 3


def test_other_errors_do_not_renew_it() -> None:
    def deny(_: int) -> None:
        raise AccessDenied("denied")

    maker = Maker()
    renewed = Renewed(maker)
    renewed.get()
    with pytest.raises(AccessDenied):
        renewed.use(deny)
    assert maker.made == 1


def test_one_without_an_end_is_never_renewed() -> None:
    def refuse(_: int) -> None:
        raise CredentialRefused("refused")

    maker = Maker(math.inf)
    renewed = Renewed(maker)
    renewed.get()
    with pytest.raises(CredentialRefused):
        renewed.use(refuse)
    assert maker.made == 1


def test_threads_share_a_failure_and_the_next_call_tries_again() -> None:
    begun, go_on = threading.Event(), threading.Event()
    calls = []

    def make() -> tuple[int, float]:
        calls.append(1)
        begun.set()
        assert go_on.wait(60)
        raise ProviderUnavailable("down")

    renewed = Renewed(make)
    with ThreadPoolExecutor(5) as pool:
        first = pool.submit(renewed.get)
        assert begun.wait(60)
        current: Any = renewed._current
        others = [pool.submit(renewed.get) for _ in range(4)]
        until = time.monotonic() + 60
        while len(current._condition._waiters) < 4 and time.monotonic() < until:
            time.sleep(0.001)
        go_on.set()
        errors = [type(one.exception(60)) for one in (first, *others)]
    assert errors == [ProviderUnavailable] * 5
    assert len(calls) == 1
    with pytest.raises(ProviderUnavailable):
        renewed.get()
    assert len(calls) == 2
