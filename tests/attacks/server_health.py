"""Watches a server that runs as a process of its own: how long it takes to answer, and how much memory it takes."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import httpx
import psutil

if TYPE_CHECKING:
    from collections.abc import Iterator

PAUSE = 0.05


class Health:
    """`longest` is in seconds, `growth` in bytes since the first look. `answers` counts the answers of /health."""

    def __init__(self, url: str, pid: int) -> None:
        self.longest, self.answers, self.growth = 0.0, 0, 0
        self._url, self._process = f"{url}/health", psutil.Process(pid)
        self._before = self._process.memory_info().rss

    def watch(self, over: threading.Event) -> None:
        with httpx.Client(timeout=120, trust_env=False) as http:
            while not over.wait(PAUSE):
                began = time.monotonic()
                status = http.get(self._url).status_code
                self.longest = max(self.longest, time.monotonic() - began)
                self.answers += status == httpx.codes.OK
                self.growth = max(self.growth, self._process.memory_info().rss - self._before)


@contextmanager
def watched(url: str, pid: int) -> Iterator[Health]:
    """Watches the server during the block."""
    health, over = Health(url, pid), threading.Event()
    watching = threading.Thread(target=health.watch, args=(over,))
    watching.start()
    try:
        yield health
    finally:
        over.set()
        watching.join()
    assert health.answers
