"""Encodes dates and times as JSON, with their time zones.

An offset can't replace the zone of a place: in such a zone a day is not always 24 hours.
"""

from __future__ import annotations

import datetime as dt
from typing import Any
from zoneinfo import ZoneInfo

MICROSECOND = dt.timedelta(microseconds=1)


def encoded_moment(value: dt.datetime | dt.time) -> list[Any]:
    """Returns the ISO text, the zone and the fold.

    The ISO text alone contains neither the zone nor the fold. The fold selects one of two moments when clocks are set
    back.
    """
    return [value.replace(tzinfo=None).isoformat(), encoded_zone(value.tzinfo), value.fold]


def decoded_moment(kind: type[dt.datetime | dt.time], held: list[Any]) -> dt.datetime | dt.time:
    text, zone, fold = held
    return kind.fromisoformat(text).replace(tzinfo=decoded_zone(zone), fold=fold)


def encoded_zone(zone: dt.tzinfo | None) -> str | int | None:
    """Returns the name of a place, the offset from UTC in microseconds, or None for no zone.

    Raises TypeError for any other zone.
    """
    if zone is None:
        return None
    if isinstance(zone, ZoneInfo):
        return key_of(zone)
    offset = zone.utcoffset(None)
    if offset is None:
        raise TypeError(f"a time in a zone that is a {type(zone).__name__} has no form in the journal; use zoneinfo")
    return offset // MICROSECOND


def key_of(zone: ZoneInfo) -> str:
    if not zone.key:
        raise TypeError("a time zone without a key has no form in the journal")
    return zone.key


def decoded_zone(held: str | int | None) -> dt.tzinfo | None:
    if held is None:
        return None
    return ZoneInfo(held) if isinstance(held, str) else dt.timezone(held * MICROSECOND)
