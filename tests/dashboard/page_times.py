"""Measures the time of every page on a server with 1,000 deployments and 1,000,000 executions (two minutes to fill):

.venv/bin/python tests/dashboard/page_times.py [EXECUTIONS]
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

from bench.backlogs import queue  # noqa: E402
from bench.scale import fill  # noqa: E402

from api.serving import serving  # noqa: E402
from dashboard.people import Visitor  # noqa: E402
from windlass.embedded_postgres.postgres import EmbeddedPostgres  # noqa: E402
from windlass.rights import Role  # noqa: E402

if TYPE_CHECKING:
    from api.serving import Server

DEPLOYMENTS, EXECUTIONS = 1000, 1_000_000
TIMES = 60
EXECUTION_LISTS = (
    *("executions", "executions?state=failed", "executions?state=stopped", "executions?user=nobody"),
    *("executions?crew=a", "executions?id=fffff", "?search=fffff"),
)
OTHERS = ("", "system", "system?span=day", "credentials", "identity", "people", "tokens", "audit", "account", "deploy")
OF_A_CREW = ("", "/run", "/executions", "/environment", "/versions", "/settings")
OF_AN_EXECUTION = ("", "?tab=timeline", "?tab=inputs", "?tab=files", "?tab=log", "?tab=attempts")


def main(executions: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # the user of PostgreSQL goes through it
        postgres = EmbeddedPostgres(Path(folder) / "home")
        try:
            asyncio.run(measure(postgres.start(), executions))
        finally:
            postgres.stop()


async def measure(url: str, executions: int) -> None:
    async with AsyncExitStack() as stack:
        place = await queue(url, "page_times", stack)
        await fill(place, executions, DEPLOYMENTS)
        async with serving(place.database.url) as server:
            times = await of_pages(server)
    for path, taken in times.items():
        print(f"{path:60} p50 {taken[TIMES // 2]:6.1f} ms   p95 {taken[int(TIMES * 0.95)]:6.1f} ms")


async def of_pages(server: Server) -> dict[str, list[float]]:
    """The times of each page in ms, the shortest first."""
    visitor = await Visitor.of(server, Role.OWNER)
    listed = (await visitor.get("/ui/executions")).text
    execution = re.findall(r'href="(/ui/crews/[a-z0-9-]+/executions/[0-9a-f-]+)"', listed)[10]
    crew = execution.partition("/executions")[0]
    pages = [f"/ui/{name}" for name in (*EXECUTION_LISTS, *OTHERS)]
    pages += [f"{crew}{name}" for name in OF_A_CREW] + [f"{execution}{name}" for name in OF_AN_EXECUTION]
    times: dict[str, list[float]] = {}
    for path in pages:
        for _ in range(TIMES):
            began = time.perf_counter()
            answer = await visitor.get(path)
            times.setdefault(path, []).append(1000 * (time.perf_counter() - began))
            assert answer.status_code == 200, path
        times[path].sort()
    await visitor.close()
    return times


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else EXECUTIONS)
