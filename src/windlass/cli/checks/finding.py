from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from windlass.errors import WindlassError

if TYPE_CHECKING:
    from collections.abc import Callable


class Level(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    text: str
    level: Level = Level.OK

    def line(self, subject: str) -> str:
        return " ".join(f"{self.level:<5} {subject + ':':<13} {self.text}".splitlines())


def examine(check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except WindlassError as error:
        return Finding(str(error), Level.FAIL)
