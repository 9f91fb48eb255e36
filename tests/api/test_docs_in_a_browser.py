from __future__ import annotations

import asyncio
import re
import shutil
from typing import TYPE_CHECKING

import pytest

from api.serving import INPUTS_SCHEMA

if TYPE_CHECKING:
    from pathlib import Path

    from api.serving import Crew

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
OPERATIONS = {
    "/",
    "/attempts/{kickoff_id}",
    "/inputs",
    "/kickoff",
    "/kickoffs",
    "/status/{kickoff_id}",
    "/stop/{kickoff_id}",
    "/{kickoff_id}/status",
}

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(BROWSER is None, reason=f"no browser is installed: none of {', '.join(NAMES)}"),
]


async def opened(url: str, folder: Path) -> tuple[str, str]:
    """The page's elements once its scripts have run, and what they and the browser complained of.

    No name but this machine's can be resolved.
    """
    options = [
        "--headless",
        "--no-sandbox",  # it can't run as root with one, nor in most containers
        "--disable-gpu",
        "--disable-dev-shm-usage",
        f"--user-data-dir={folder}",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        "--enable-logging=stderr",
        "--virtual-time-budget=10000",
        "--dump-dom",
        url,
    ]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(str(BROWSER), *options, stdout=pipe, stderr=pipe)
    async with asyncio.timeout(60):
        elements, complaints = await process.communicate()
    return elements.decode(), "\n".join(line for line in complaints.decode().splitlines() if "CONSOLE" in line)


async def test_the_page_shows_every_operation_and_loads_nothing_from_elsewhere(crew: Crew, tmp_path: Path) -> None:
    elements, complaints = await opened(f"{crew.base_url}/docs", tmp_path)
    shown = re.findall(r'data-path="([^"]+)"', elements)
    assert set(shown) == OPERATIONS
    assert "Writers" in elements
    assert not complaints


async def test_the_page_shows_an_example_that_can_be_sent(crew: Crew, tmp_path: Path) -> None:
    elements, complaints = await opened(f"{crew.base_url}/docs#/crew/kickoff", tmp_path)
    text = re.sub(r"<[^>]+>", "", elements)
    for name in INPUTS_SCHEMA["required"]:
        assert f'"{name}": "some {name}"' in re.sub(r"&quot;", '"', text)
    assert not complaints
