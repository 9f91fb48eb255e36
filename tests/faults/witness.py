from __future__ import annotations

import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import httpx

USAGE_OF_A_CALL = 18
"""Tokens."""
PROGRAM = Path(__file__).with_name("witness_server.py")


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the model. `began` and `ended` are Unix times; `gone`: its caller did not wait for the answer."""

    run: str
    step: int
    pid: int | None
    began: float
    ended: float | None
    gone: bool

    @property
    def in_flight(self) -> bool:
        return self.ended is None and not self.gone


class Witness:
    """The model server of the crews, and what it saw."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen([sys.executable, str(PROGRAM)], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._address = f"http://127.0.0.1:{int(self._process.stdout.readline())}"
        self._client = httpx.Client(base_url=self._address, trust_env=False, timeout=60)
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._process.kill()
        self._process.communicate()

    @property
    def environment(self) -> dict[str, str]:
        """Of crews that are to ask it."""
        return {"OPENAI_API_KEY": "sk-witnessed-0123456789", "OPENAI_BASE_URL": f"{self._address}/v1"}

    def calls(self, run: str | None = None, *, after: int = 0) -> list[Call]:
        """In the order in which they came, from the `after`th on."""
        told = self._client.get("/calls", params={"after": after}).json()
        return [Call(**call) for call in told if run in (None, call["run"])]

    def in_flight(self, run: str | None = None) -> list[Call]:
        return [call for call in self.calls(run) if call.in_flight]

    def release(self, run: str) -> None:
        """Answers the call that is held."""
        self._client.post("/release", json={"run": run}).raise_for_status()


def run_again(calls: list[Call]) -> list[Call]:
    """Calls of a step that was finished: a later step of the same run had begun, which it does only once the journal
    holds the earlier one.
    """
    furthest: dict[str, int] = defaultdict(int)
    found = []
    for call in sorted(calls, key=lambda call: call.began):
        if call.step < furthest[call.run]:
            found.append(call)
        furthest[call.run] = max(furthest[call.run], call.step)
    return found


def repeated(calls: list[Call]) -> Counter[str]:
    """By run, the calls that were not the first of their step."""
    counted = Counter((call.run, call.step) for call in calls)
    more: Counter[str] = Counter()
    for (run, _), count in counted.items():
        more[run] += count - 1
    return more
