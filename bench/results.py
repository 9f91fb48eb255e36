"""Keeps the figures of the last run in bench/results/, so that the next run can show the change against them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.figures import Figure

FOLDER = Path(__file__).parent / "results"
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


class Results:
    """The figures of earlier runs by their names. Quick runs measure less, so they have a file of their own."""

    def __init__(self, *, quick: bool, folder: Path = FOLDER) -> None:
        self._file = folder / ("quick.json" if quick else "full.json")
        self._earlier: dict[str, str] = read(self._file)
        self._kept = dict(self._earlier)
        self._heading = self._above = ""

    def change(self, figure: Figure) -> str:
        """Keeps the figure. Returns how its first number differs from that of the last run, "" without one."""
        if not figure.name.startswith(" "):
            self._heading, self._above = figure.name, ""
        name = (
            f"{self._heading}, {self._above}, {figure.name}"  # "  ratio to it" means the last figure above that is none
        )
        if not figure.name.startswith("  ratio"):
            self._above = figure.name
        self._kept[name] = figure.value
        return difference(self._earlier.get(name, ""), figure.value)

    def write(self) -> None:
        self._file.parent.mkdir(exist_ok=True)
        self._file.write_text(json.dumps(self._kept, indent=1, ensure_ascii=False), "utf-8")


def read(file: Path) -> dict[str, str]:
    try:
        found = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):  # the first run, or one that was killed while it wrote
        return {}
    return found if isinstance(found, dict) else {}


def difference(earlier: str, now: str) -> str:
    """Compares the first numbers of two values: "+5 %", "same", or "was 0" where no percentage exists."""
    before, after = NUMBER.search(earlier), NUMBER.search(now)
    if before is None or after is None:
        return ""
    first, second = (float(found[0].replace(",", "")) for found in (before, after))
    if first == second:
        return "same"
    return f"{100 * (second / first - 1):+.0f} %" if first else f"was {before[0]}"
