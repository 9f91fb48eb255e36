"""A real browser for the tests of pages: Chromium, driven by Playwright.

A `Tab` is one page in a context of its own, without cookies of other tests. It collects what no page may do: errors in
the console (violations of the Content-Security-Policy are among them), uncaught exceptions, and requests to other
hosts. The fixture `tabs` fails the test with what they collected.

WINDLASS_TESTS_SCREENSHOTS is a folder for the pictures of `Tab.picture`. WINDLASS_TESTS_BROWSER names another browser.
"""

from __future__ import annotations

import os
import shutil
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from patience import DEADLINE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from playwright.async_api import (
        Browser,
        BrowserContext,
        ConsoleMessage,
        Page,
        Request,
        Response,
        ViewportSize,
        WebError,
    )

OWN = os.environ.get("WINDLASS_TESTS_BROWSER")  # noqa: TID251 - it is the tests' own
NAMES = (OWN,) if OWN else ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
PICTURES = os.environ.get("WINDLASS_TESTS_SCREENSHOTS")  # noqa: TID251 - it is the tests' own
AXE = Path(__file__).parents[2] / "node_modules/axe-core/axe.min.js"
OF_COLOURS = ["color-contrast", "link-in-text-block"]
"""The rules of axe whose results differ between light and dark."""

FLAGS = [
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--disable-component-update",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
]
WIDE: ViewportSize = {"width": 1440, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}

Scheme = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")

needs_a_browser = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("browser"),  # one browser for all of them
    pytest.mark.skipif(BROWSER is None, reason=f"no browser is installed: none of {', '.join(NAMES)}"),
]
"""The `pytestmark` of a module whose tests use `tabs`."""


@asynccontextmanager
async def launched() -> AsyncIterator[Browser]:
    """A browser that resolves no name but this machine's. It runs as root too, and so without a sandbox."""
    from playwright.async_api import async_playwright  # noqa: PLC0415 - every process of the tests imports this module

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=BROWSER, args=FLAGS)
        try:
            yield browser
        finally:
            await browser.close()


@dataclass
class Tab:
    """One page at the server `url`. `problems` are the lines of what the page may not do."""

    url: str
    page: Page
    problems: list[str] = field(default_factory=list)
    _expected: list[str] = field(default_factory=list)

    @classmethod
    async def opened(cls, browser: Browser, url: str, **settings: Any) -> Tab:
        usual = {"base_url": url, "viewport": WIDE, "reduced_motion": "reduce", "locale": "en-GB"}
        context = await browser.new_context(**{**usual, **settings})
        context.set_default_timeout(DEADLINE * 1000)
        return cls(url, await context.new_page())._watching(context)

    def _watching(self, context: BrowserContext) -> Tab:
        context.on("console", self._console)
        context.on("weberror", self._error)
        context.on("request", self._request)
        return self

    def _console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self._note(f"the console has: {message.text} ({message.location.get('url')})")

    def _error(self, error: WebError) -> None:
        self._note(f"a script failed: {error.error}")

    def _request(self, request: Request) -> None:
        if not request.url.startswith((f"{self.url}/", "data:", "blob:")):
            self._note(f"a request went elsewhere: {request.url}")

    def _note(self, problem: str) -> None:
        if not any(words in problem for words in self._expected):
            self.problems.append(f"{self.page.url}: {problem}")

    @contextmanager
    def expecting(self, words: str) -> Iterator[None]:
        """Within it, a problem that holds these words is none: "status of 403" where the test asks for one."""
        self._expected.append(words)
        try:
            yield
        finally:
            self._expected.remove(words)

    async def go(self, path: str, status: int = 200) -> Response:
        """Opens the page at the path, which must answer with the status."""
        with self.expecting(f"the server responded with a status of {status}"):
            response = await self.page.goto(f"{self.url}{path}")
        assert response is not None
        assert response.status == status, (path, response.status)
        return response

    async def text(self) -> str:
        """All that a person can read on the page."""
        return await self.page.locator("body").inner_text()

    async def picture(self, name: str, *, whole: bool = True) -> None:
        """Saves a screenshot as NAME.png, if the environment names a folder for them."""
        if PICTURES:
            await self.page.screenshot(path=Path(PICTURES) / f"{name}.png", full_page=whole)

    async def assert_accessible(self, schemes: Sequence[Scheme] = SCHEMES, *, only_colours: bool = False) -> None:
        """Fails with what axe finds on the page that is more than minor, in light and in dark. With `only_colours`, it
        looks only at what differs between the schemes.
        """
        found = []
        for scheme in schemes:
            await self.page.emulate_media(color_scheme=scheme)
            rules = {"runOnly": OF_COLOURS} if only_colours or (scheme == "dark" and len(schemes) > 1) else {}
            found += [f"{scheme}: {line}" for line in await self._axe(rules)]
        await self.page.emulate_media(color_scheme="light")
        assert not found, f"{self.page.url}: axe finds\n" + "\n".join(found)

    async def _axe(self, rules: dict[str, Any]) -> list[str]:
        if not await self.page.evaluate("typeof axe === 'object'"):
            await self.page.evaluate(AXE.read_text("utf-8"))
        options = {"resultTypes": ["violations"], **rules}
        answer = await self.page.evaluate("options => axe.run(document, options)", options)
        return [
            f"{one['id']} ({one['impact']}): {one['help']}: {node['html'][:300]} {node['failureSummary']}"
            for one in answer["violations"]
            if one["impact"] != "minor"
            for node in one["nodes"][:5]
        ]

    async def close(self) -> None:
        await self.page.context.close()


class Tabs:
    """Opens the tabs of one test."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._tabs: list[Tab] = []

    async def __call__(self, url: str, **settings: Any) -> Tab:
        """A new tab at this server. `settings` are those of a context of Playwright, as `java_script_enabled=False`."""
        tab = await Tab.opened(self._browser, url, **settings)
        self._tabs.append(tab)
        return tab

    async def close(self) -> None:
        for tab in self._tabs:
            await tab.close()
        problems = [problem for tab in self._tabs for problem in tab.problems]
        assert not problems, "pages did what none may do:\n" + "\n".join(problems)
