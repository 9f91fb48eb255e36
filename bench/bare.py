"""A crew without any server: python -m bench.bare PROJECT ("forked" | "looping")

The crewai of these processes is warm.

Reads numbers from standard input, one a line: so many kickoffs, two at a time; prints one line of JSON for each with
the seconds that they took. "forked" starts a child for every kickoff from a parent that has crewai imported and warm;
"looping" has two such processes that do one kickoff after the other.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import sys
import tempfile
import time
import traceback
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from windlass_child.process.process_env import apply
from windlass_child.protocol.messages import ProcessEnvironment
from windlass_child.protocol.working_folder import PLACES

if TYPE_CHECKING:
    from collections.abc import Callable

AT_ONCE = 2
ANSWER = "done"


def main() -> None:
    project, way = Path(sys.argv[1]).resolve(), sys.argv[2]
    folder = Path(tempfile.mkdtemp(prefix="windlass-bench-bare-"))
    os.chdir(folder)  # crewai writes where it is
    warm()
    sys.path.insert(0, str(project / "src"))
    print(json.dumps({"ready": True}), flush=True)
    try:
        for line in sys.stdin:
            begun = time.perf_counter()
            {"forked": forked, "looping": looping}[way](int(line), folder)
            print(json.dumps({"seconds": time.perf_counter() - begun}), flush=True)
    finally:
        shutil.rmtree(folder)


def warm() -> None:
    enter(Path.cwd())
    prewarm = import_module("windlass_child.crewai.prewarm")
    prewarm.kick_off(lambda *_: nullcontext())  # as a run's, but for what Windlass adds
    prewarm.stop_threads()
    gc.collect()
    gc.freeze()


def enter(folder: Path) -> None:
    for name in PLACES:
        (folder / name).mkdir(exist_ok=True)
    apply(ProcessEnvironment(dict(os.environ), str(folder)))


def forked(count: int, folder: Path) -> None:
    for number in range(count):
        if number >= AT_ONCE:
            reap()
        start(lambda: kick_off(Path(tempfile.mkdtemp(dir=folder))))
    for _ in range(min(count, AT_ONCE)):
        reap()


def looping(count: int, folder: Path) -> None:
    def loop() -> None:
        own = Path(tempfile.mkdtemp(dir=folder))
        for _ in range(count // AT_ONCE):
            kick_off(own)

    for _ in range(AT_ONCE):
        start(loop)
    for _ in range(AT_ONCE):
        reap()


def start(work: Callable[[], None]) -> None:
    if os.fork() == 0:
        status = os.EX_SOFTWARE
        try:
            work()
            status = os.EX_OK
        except BaseException:  # noqa: BLE001 - the parent's stack is no place for it
            traceback.print_exc()
        finally:
            os._exit(status)


def reap() -> None:
    _, status = os.wait()
    if status:
        raise RuntimeError(f"a bare kickoff ended with wait status {status}")


def kick_off(folder: Path) -> None:
    enter(folder)
    result = import_module("three_tasks.crew").ThreeTasks().crew().kickoff(inputs={})
    if result.raw != ANSWER:
        raise RuntimeError(f"the crew said {result.raw!r}")


if __name__ == "__main__":
    main()
