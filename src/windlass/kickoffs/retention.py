"""How long the data of ended kickoffs is kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from windlass.kickoffs.declared_settings import DAYS, SettingTable, setting


@dataclass(frozen=True, slots=True)
class Retention(SettingTable):
    """Holds the days after the end of a kickoff for which the kickoff, its events and its journal are kept.

    0 stands for ever, and None for a time that is not set.
    """

    noun: ClassVar[str] = "retention time"

    kickoffs: float | None = setting(None, DAYS, "Kickoffs", "Kickoffs, with inputs, results and files.")
    events: float | None = setting(None, DAYS, "Events", "The course of each run, and its printed lines.")
    deliveries: float | None = setting(None, DAYS, "Deliveries", "The attempts to deliver webhooks.")
    journal: float | None = setting(None, DAYS, "Journal", "What an attempt needs to continue another.")
