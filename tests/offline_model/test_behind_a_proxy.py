"""The offline model for crews whose environment has a proxy: clients go past it to this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from offline_model.offline_serving import served
from projects_for_tests.making import function_project, running_bench
from windlass.offline_model.app import NOBODY_LISTENS, model_environment, offline_model_app
from windlass_child.process.process_env import with_loopback_direct

if TYPE_CHECKING:
    from pathlib import Path

CODE = """
import asyncio, os, urllib.request
import aiohttp, httpx, openai, requests


async def by_aiohttp(url):
    async with aiohttp.ClientSession(trust_env=True) as session, session.get(url) as response:
        return response.status


def run():
    url = os.environ["OPENAI_BASE_URL"] + "/models"
    return {
        "httpx": httpx.get(url).status_code,
        "openai": 200 if openai.OpenAI(max_retries=0).models.list().data else 0,
        "requests": requests.get(url).status_code,
        "urllib": urllib.request.urlopen(url).status,
        "aiohttp": asyncio.run(by_aiohttp(url)),
    }
"""
ADDED = "localhost,127.0.0.1"


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])
async def test_clients_reach_the_offline_model_past_a_proxy(tmp_path: Path, name: str) -> None:
    project = function_project(tmp_path / "project", CODE)
    async with running_bench(tmp_path / "runs") as bench:
        with served(offline_model_app()) as address:
            environment = {**model_environment({}, address), name: NOBODY_LISTENS}
            outcome = await bench.run(project, environment=environment)
    assert outcome.json == dict.fromkeys(("httpx", "openai", "requests", "urllib", "aiohttp"), 200), outcome.error


@pytest.mark.parametrize(
    ("given", "lower", "upper"),
    [
        ({}, ADDED, ADDED),
        ({"NO_PROXY": "a.example, b"}, f"a.example,b,{ADDED}", f"a.example,b,{ADDED}"),
        ({"no_proxy": "127.0.0.1"}, "127.0.0.1,localhost", "127.0.0.1,localhost"),
        ({"no_proxy": "", "NO_PROXY": "a"}, ADDED, f"a,{ADDED}"),
        ({"NO_PROXY": "*"}, "*", "*"),
    ],
)
def test_hosts_without_a_proxy_are_kept_in_both_cases(given: dict[str, str], lower: str, upper: str) -> None:
    found = with_loopback_direct({"https_proxy": NOBODY_LISTENS, **given})
    assert (found["no_proxy"], found["NO_PROXY"]) == (lower, upper)
    assert with_loopback_direct({**given, "HTTP_PROXY": ""}) == {**given, "HTTP_PROXY": ""}
