"""Makes pictures of every page, in light and dark, on a wide screen and on a phone:

    .venv/bin/python tests/dashboard/screenshots.py FOLDER [PAGE...]

and, with `docs` in place of a folder, those of the documentation.

They show the demo of demo.py. Pages that do not exist are named, and left out.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

sys.path[:0] = [str(Path(__file__).parents[1])]

from dashboard.browser import PHONE, SCHEMES, WIDE, Tab, launched  # noqa: E402
from dashboard.demo import demo  # noqa: E402

if TYPE_CHECKING:
    from playwright.async_api import Browser, ViewportSize

    from dashboard.demo import Demo

DOCS: ViewportSize = {"width": 1280, "height": 700}
DOCS_PAGES = {"crews": "crews", "crew-status": "status", "execution-timeline": "execution"}
IMAGES = Path(__file__).parents[2] / "docs/images"
SIZES = {"wide": WIDE, "phone": PHONE}
OK = 200


def pages(server: Demo) -> dict[str, str]:
    """The path of each page, by the name of its picture."""
    done = run_of(server, "research-crew", "SUCCESS")
    failed = run_of(server, "invoice-function", "FAILED")
    running = run_of(server, "quarterly-report", "STARTED")
    waiting = run_of(server, "quarterly-report", "PENDING")
    (build, *_) = json.loads(server.run("deployments", "builds", "price-watch", "--json"))["builds"]
    crew, executions = "/ui/crews/research-crew", "/ui/crews/{}/executions/{}"
    return {
        "sign-in": "/ui/sign-in",
        "crews": "/ui/",
        "crew-status": crew,
        "crew-run": f"{crew}/run",
        "crew-run-list": "/ui/crews/invoice-function/run",
        "crew-executions": f"{crew}/executions",
        "executions": "/ui/executions",
        "execution": executions.format("research-crew", done),
        "execution-timeline": executions.format("research-crew", done) + "?tab=timeline",
        "execution-failed": executions.format("invoice-function", failed),
        "execution-running": executions.format("quarterly-report", running),
        "execution-waiting": executions.format("quarterly-report", waiting),
        "crew-environment": f"{crew}/environment",
        "crew-webhooks": f"{crew}/webhooks",
        "crew-webhook": f"{crew}/webhooks/set/events",
        "crew-deliveries": f"{crew}/webhooks/deliveries",
        "crew-versions": f"{crew}/versions",
        "crew-settings": f"{crew}/settings",
        "deploy": "/ui/deploy",
        "build": f"/ui/builds/{build['id']}",
        "credentials": "/ui/credentials",
        "identity": "/ui/identity",
        "people": "/ui/people",
        "tokens": "/ui/tokens",
        "audit": "/ui/audit",
        "system": "/ui/system",
        "account": "/ui/account",
        "not-found": "/ui/crews/no-such-crew",
    }


def run_of(server: Demo, slug: str, state: str) -> str:
    """The id of a run in the state: the quickest of some, which did not wait for a cold start."""
    listed = server.run("kickoffs", "--deployment", slug, "--state", state, "--limit", "20", "--json")
    found = json.loads(listed)["kickoffs"]
    return str(min(found, key=lambda one: one["execution_time"] or 0)["kickoff_id"])


async def docs_pictures(server: Demo) -> None:
    """Makes the pictures of the documentation."""
    wanted = pages(server)
    async with launched() as browser:
        tab = await Tab.opened(browser, server.url, viewport=DOCS)
        await tab.page.goto(server.link())
        for name, picture in DOCS_PAGES.items():
            await tab.page.goto(f"{server.url}{wanted[name]}")
            await tab.page.evaluate("document.fonts.ready")
            if name == "execution-timeline":
                await tab.page.get_by_role("link", name="offline-model").last.click()
                await tab.page.wait_for_load_state("networkidle")
            await tab.page.screenshot(path=IMAGES / f"dashboard-{picture}.png")
        await tab.close()


async def pictures(server: Demo, folder: Path, names: list[str]) -> None:
    wanted = {name: path for name, path in pages(server).items() if not names or name in names}
    async with launched() as browser:
        for scheme in SCHEMES:
            for size, viewport in SIZES.items():
                await round_of(browser, server, folder / f"{scheme}-{size}", wanted, scheme, viewport)


async def round_of(
    browser: Browser, server: Demo, folder: Path, wanted: dict[str, str], scheme: str, viewport: ViewportSize
) -> None:
    tab = await Tab.opened(browser, server.url, color_scheme=scheme, viewport=viewport)
    if path := wanted.get("sign-in"):
        await tab.page.goto(f"{server.url}{path}")
        await tab.page.screenshot(path=folder / "sign-in.png", full_page=True)
    await tab.page.goto(server.link())
    for name, path in wanted.items():
        if name == "sign-in":
            continue
        answer = await tab.page.goto(f"{server.url}{path}")
        if answer is None or (answer.status != OK and name != "not-found"):
            print(f"{folder.name}: no page {name} at {path}: {answer and answer.status}", flush=True)
            continue
        await tab.page.evaluate("document.fonts.ready")
        await tab.page.screenshot(path=folder / f"{name}.png", full_page=True)
        wide = await tab.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        if wide > 0:
            print(f"{folder.name}: {name} is {wide} px too wide", flush=True)
    print("\n".join(dict.fromkeys(line for line in tab.problems if "status of 404" not in line)), flush=True)
    await tab.close()


if __name__ == "__main__":
    place = Path(tempfile.gettempdir()) / "windlass-demo"
    with demo(place) as started:
        if sys.argv[1] == "docs":
            asyncio.run(docs_pictures(started))
        else:
            asyncio.run(pictures(started, Path(sys.argv[1]), sys.argv[2:]))
