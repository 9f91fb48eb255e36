"""The examples on the Status page run as they are pasted, against a server with a worker."""

from __future__ import annotations

import re
import subprocess
import sys
from html import unescape
from typing import TYPE_CHECKING

import httpx
import pytest

from patience import DEADLINE

if TYPE_CHECKING:
    from dashboard.live import LiveServer

pytestmark = pytest.mark.xdist_group("browser")  # which has the server

COMMANDS = {
    "curl": ["bash", "-euo", "pipefail", "-c"],
    "python": [sys.executable, "-c"],
    "javascript": ["node", "--input-type=module", "-e"],
}
SAMPLE = "**green** some leaf tea"
"""What the crew answers for the inputs of the examples."""


@pytest.fixture(scope="module")
def page(live: LiveServer) -> str:
    as_opened = {"Sec-Fetch-Site": "none"}
    with httpx.Client(base_url=live.url, follow_redirects=True, timeout=DEADLINE, headers=as_opened) as http:
        http.get(live.link())
        return http.get("/ui/crews/tea").text


@pytest.mark.parametrize("language", list(COMMANDS))
def test_an_example_makes_the_three_calls(live: LiveServer, page: str, language: str) -> None:
    found = re.search(rf'class="example example-{language}".*?<pre[^>]*><code>(.*?)</code>', page, re.DOTALL)
    assert found
    text = unescape(found[1])
    token = live.windlass("tokens", "show", "--deployment", "tea", "--kind", "organization").out.strip()
    done = subprocess.run(
        [*COMMANDS[language], text],
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "WINDLASS_TOKEN": token},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    assert SAMPLE in done.stdout, done
    assert "required" in done.stdout  # of the schema of the inputs, the answer to the first call
