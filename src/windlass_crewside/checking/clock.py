"""A clock that is ahead: what a project writes into its tasks by it is another text then."""

from __future__ import annotations

import contextlib
import datetime as dt
import time
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

AHEAD = dt.timedelta(days=400, hours=1, minutes=2, seconds=3)
"""So that year, month, day, weekday, hour, minute and second are others."""

as_it_is = contextlib.nullcontext


class LikeDate(type):
    """What was made by the class in whose place it stands is one of it, too."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, datetime if issubclass(cls, datetime) else date)


class LaterDatetime(datetime, metaclass=LikeDate):
    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> Any:
        return datetime.now(tz) + AHEAD

    @classmethod
    def today(cls) -> Any:
        return cls.now()

    @classmethod
    def utcnow(cls) -> Any:
        return cls.now(dt.UTC).replace(tzinfo=None)


class LaterDate(date, metaclass=LikeDate):
    @classmethod
    def today(cls) -> Any:
        return LaterDatetime.now().date()


@contextlib.contextmanager
def ahead() -> Iterator[None]:
    """For code that is imported meanwhile; what was imported before keeps the clock that it has taken."""
    places: list[tuple[Any, str, Any]] = [
        (dt, "datetime", LaterDatetime),
        (dt, "date", LaterDate),
        *((time, name, told_later(getattr(time, name))) for name in ("localtime", "gmtime", "ctime")),
        (time, "time", added_to(time.time)),
        (time, "strftime", formatted_later(time.strftime)),
    ]
    with contextlib.ExitStack() as stack:
        for owner, name, later in places:
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, later)
        yield


def added_to(tell: Callable[[], float]) -> Callable[[], float]:
    return lambda: tell() + AHEAD.total_seconds()


def told_later(tell: Callable[[float], Any]) -> Callable[..., Any]:
    now = time.time
    return lambda seconds=None: tell(now() + AHEAD.total_seconds() if seconds is None else seconds)


def formatted_later(tell: Callable[..., str]) -> Callable[..., str]:
    return lambda form, moment=None: tell(form, time.localtime() if moment is None else moment)
