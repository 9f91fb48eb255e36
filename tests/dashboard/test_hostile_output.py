"""What a crew returns, and what its users send, is text for the reader: in a browser it does nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from api.runs import begin
from dashboard.browser import needs_a_browser
from dashboard.people import signed_in

if TYPE_CHECKING:
    from api.serving import Crew, Server
    from dashboard.browser import Tab, Tabs

pytestmark = needs_a_browser

MARKUP = """<script>window.hit = 1</script><img src=x onerror="window.hit = 2"><svg onload="window.hit = 3"></svg>
<iframe srcdoc="<script>parent.hit = 4</script>"></iframe><style>body { display: none }</style>
<form action="https://elsewhere.test"><input name="password"><button>Sign in again</button></form>
<a href="javascript:window.hit = 5">one</a><base href="https://elsewhere.test/">
<meta http-equiv="refresh" content="0;url=//elsewhere.test">
"""
OUTPUT = f"""# Result {MARKUP}

{MARKUP}

[two](javascript:window.hit=6) [three](data:text/html;base64,PHNjcmlwdD4=) [four]( java\tscript:window.hit=7 )
<javascript:window.hit=8> ![five](http://elsewhere.test/pixel.png) ![six](data:image/svg+xml,<svg/onload=alert(1)>)

[good](https://example.com/page) **bold**

```html
{MARKUP}
```
"""
INSIDE = """() => {
  const all = [...document.querySelectorAll("main *")];
  const found = selector => all.filter(one => one.matches(selector));
  return {
    hit: window.hit ?? null,
    handlers: all.filter(one => [...one.attributes].some(a => a.name.startsWith("on"))).length,
    active: found("script, iframe, object, embed, style, base, meta, link, img").map(one => one.outerHTML),
    forms: found("form").filter(one => new URL(one.action).origin !== location.origin).length,
    links: found("a[href]").map(one => one.href).filter(href => !/^https?:/.test(href)),
  };
}"""
HARMLESS: dict[str, Any] = {"hit": None, "handlers": 0, "active": [], "forms": 0, "links": []}
VIEWS = ("view=markdown", "view=raw", "view=json")
TABS = ("tab=timeline", "tab=inputs", "tab=log", "tab=attempts", "tab=files")
LARGEST_PAGE = 3 * 1024 * 1024 // 2
"""Bytes of a page about a run, whatever it returned."""


async def is_harmless(tab: Tab, path: str) -> None:
    response = await tab.go(path)
    assert len(await response.body()) < LARGEST_PAGE, path
    await tab.page.wait_for_load_state("networkidle")
    assert await tab.page.evaluate(INSIDE) == HARMLESS, path


async def test_markup_in_outputs_inputs_and_errors_is_text(server: Server, crew: Crew, tabs: Tabs) -> None:
    inputs = {"topic": MARKUP, "audience": MARKUP, MARKUP: [{MARKUP: MARKUP}]}
    good = await crew.kickoff(inputs, meta={MARKUP: MARKUP})
    run = await begin(crew, good)
    await run.start_task(0)
    await run.end_task(0, OUTPUT)
    await run.succeed(OUTPUT, structured=[{"name": MARKUP, MARKUP: OUTPUT}])
    tab = await signed_in(tabs, server)
    base = f"/ui/crews/{crew.deployment.slug}/executions"
    for part in (*VIEWS, *TABS):
        await is_harmless(tab, f"{base}/{good}?{part}")
    await tab.go(f"{base}/{good}?view=markdown")
    shown = tab.page.locator("main")
    assert await shown.get_by_role("link", name="good").get_attribute("href") == "https://example.com/page"
    assert await shown.locator("strong", has_text="bold").count() == 1
    assert "<script>window.hit = 1</script>" in await tab.text()

    bad = await crew.kickoff(inputs)
    await (await begin(crew, bad)).fail(error=MARKUP)
    of_crew = f"/ui/crews/{crew.deployment.slug}"
    for path in (f"{base}/{bad}", base, f"{of_crew}/run?from={bad}", of_crew, "/ui/"):
        await is_harmless(tab, path)


async def test_a_deep_and_a_huge_output_leave_the_page_small(server: Server, crew: Crew, tabs: Tabs) -> None:
    tab = await signed_in(tabs, server)
    deep: object = "bottom"
    for _ in range(400):
        deep = {"deeper": [deep]}
    outputs: list[tuple[str, Any]] = [
        ("deep", deep),
        ("# large\n\n" + "word " * 4_000_000, None),
        ("[" * 50_000, [0] * 200_000),
    ]
    paths = []
    for output, structured in outputs:
        kickoff = await crew.kickoff({"topic": "tides", "audience": "sailors"})
        await (await begin(crew, kickoff)).succeed(output, structured=structured)
        paths.append(f"/ui/crews/{crew.deployment.slug}/executions/{kickoff}")
    for path in paths:
        for view in VIEWS:
            await is_harmless(tab, f"{path}?{view}")
    await tab.go(f"{paths[1]}?view=raw")
    assert "This is the beginning of 19 MB." in await tab.text()
    async with tab.page.expect_download() as download:
        await tab.page.get_by_role("link", name="Download", exact=True).click()
    saved = await (await download.value).path()
    assert saved.stat().st_size == len("# large\n\n") + 20_000_000
