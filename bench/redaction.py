"""What it costs to mask the values of secret variables in texts and printed lines."""

from __future__ import annotations

import random
import string
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.figures import Figure, spread
from windlass_child.masking.redaction import Redaction
from windlass_child.masking.secret_values import SecretValues

if TYPE_CHECKING:
    from collections.abc import Callable

SECRETS = 20
KB = 1024
TEXT = 64 * KB
LINES = 1000
LINE = b"2026-11-23 12:00:00 INFO the crew has found three more items for the report\n"
WORDS = Path(__file__).parents[1] / "docs" / "concepts" / "security.md"


def redaction(*, rounds: int) -> list[Figure]:
    chance = random.Random(15)
    values = {f"TOKEN_{number}": word(chance, 40) for number in range(SECRETS)}
    with_short = {**values, "PASSWORD": word(chance, 9)}
    words = WORDS.read_text("utf-8").split()
    text = " ".join(chance.choice(words) for _ in range(TEXT))[:TEXT]
    named, short = SecretValues(values), SecretValues(with_short)
    both = Redaction({**values, "OTHER_KEY": word(chance, 40)}, values)
    stream = named.stream()
    forms = len(named.forms)

    def lines() -> None:
        for _ in range(LINES):
            stream.feed(LINE)

    kilobytes = TEXT / KB
    return [
        figure(
            f"masking {SECRETS} secrets of 40 characters ({forms} forms), per KB",
            lambda: named.masked(text),
            rounds,
            kilobytes,
        ),
        figure("  and one of 9 characters", lambda: short.masked(text), rounds, kilobytes),
        figure("  in an event or an error, with another variable's key", lambda: both.text(text), rounds, kilobytes),
        figure("  a line of 76 bytes that is read on its own", lines, rounds, LINES),
        figure("  preparation, once for each run", lambda: SecretValues(values).masked(text[:64]), rounds, 1),
    ]


def figure(name: str, work: Callable[[], object], rounds: int, parts: float) -> Figure:
    work()
    taken = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        taken.append((time.perf_counter() - began) * 1e6 / parts)
    return Figure(name, spread(taken, " us", 1))


def word(chance: random.Random, length: int) -> str:
    return "".join(chance.choices(string.ascii_letters + string.digits + "-_", k=length))
