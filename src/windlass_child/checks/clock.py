"""Sets the clock of a project's code ahead, so that task descriptions that contain the time differ."""

# See docs/decisions/commands.md#a-check-builds-the-project-twice

from __future__ import annotations

import contextlib
import datetime as dt
import time
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

AHEAD = dt.timedelta(days=400, hours=1, minutes=2, seconds=3)
"""A shift that changes the year, month, day, weekday, hour, minute and second."""

as_it_is = contextlib.nullcontext


class LikeDate(type):
    """The class of a replacement for `date` or `datetime`. Objects of the replaced class count as its instances."""

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
        return cls.now(dt.timezone.utc).replace(tzinfo=None)


class LaterDate(date, metaclass=LikeDate):
    @classmethod
    def today(cls) -> Any:
        return LaterDatetime.now().date()


@contextlib.contextmanager
def ahead() -> Iterator[None]:
    """Sets the clock ahead for code that is imported inside the `with` block.

    Modules that were imported before keep the functions that they have imported.
    """
    places: list[tuple[Any, str, Any]] = [
        (dt, "datetime", LaterDatetime),
        (dt, "date", LaterDate),
        *((time, name, shifted_conversion(getattr(time, name))) for name in ("localtime", "gmtime", "ctime")),
        (time, "time", shifted_clock(time.time)),
        (time, "strftime", shifted_format(time.strftime)),
    ]
    with contextlib.ExitStack() as stack:
        for owner, name, later in places:
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, later)
        yield


def shifted_clock(clock: Callable[[], float]) -> Callable[[], float]:
    return lambda: clock() + AHEAD.total_seconds()


def shifted_conversion(convert: Callable[[float], Any]) -> Callable[..., Any]:
    now = time.time
    return lambda seconds=None: convert(now() + AHEAD.total_seconds() if seconds is None else seconds)


def shifted_format(format_time: Callable[..., str]) -> Callable[..., str]:
    return lambda form, moment=None: format_time(form, time.localtime() if moment is None else moment)
