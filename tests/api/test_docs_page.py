from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urljoin

import pytest

from api.serving import serving
from windlass.api.docs_page import ASSETS

if TYPE_CHECKING:
    from api.serving import Crew

pytestmark = pytest.mark.asyncio(loop_scope="session")

DASHBOARD = "../../ui/"
LINK = re.compile(r"""(?:href|src)="([^"]+)\"""")


async def test_everything_that_the_page_names_is_there_and_ours(crew: Crew) -> None:
    page = await crew.get("/docs", token="")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    links = [link for link in LINK.findall(page.text) if not link.startswith("data:")]
    links.remove(DASHBOARD)
    assert {link.rpartition("/")[2] for link in links} == {*ASSETS, "openapi.json"}
    for link in links:
        assert "//" not in link
        found = await crew.server.http.get(urljoin(str(page.url), link))
        assert found.status_code == 200, link
        assert len(found.content) > 100


async def test_its_links_lead_home_from_wherever_it_is_served(crew: Crew) -> None:
    async with serving(crew.server.database.url, root=crew.deployment.slug) as other:
        for base in ("", crew.path):
            page = await other.http.get(f"{other.url}{base}/docs")
            for link in set(LINK.findall(page.text)) - {DASHBOARD}:
                found = urljoin(str(page.url), link)
                assert found.startswith((f"{other.url}{base}/docs/", f"{other.url}{base}/openapi.json", "data:"))


async def test_the_policy_lets_the_page_load_from_nowhere_else(crew: Crew) -> None:
    policy = (await crew.get("/docs")).headers["content-security-policy"]
    directives = dict(directive.strip().split(" ", 1) for directive in policy.split(";"))
    assert {"default-src", "base-uri", "form-action", "frame-ancestors"} <= directives.keys()
    assert {source for listed in directives.values() for source in listed.split()} == {"'none'", "'self'", "data:"}


@pytest.mark.parametrize("name", ASSETS)
async def test_the_assets_have_their_types_and_may_be_kept(crew: Crew, name: str) -> None:
    answer = await crew.get(f"/docs/{name}", token="")
    assert answer.headers["content-type"].partition(";")[0] == ASSETS[name]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "max-age" in answer.headers["cache-control"]


@pytest.mark.parametrize("name", ["../crew.py", "..%2Fcrew.py", "%2e%2e", "LICENSE", "docs.js.map", ""])
async def test_nothing_else_is_served_beside_them(crew: Crew, name: str) -> None:
    assert (await crew.get(f"/docs/{name}", token="")).status_code in {400, 401, 404}


async def test_the_page_of_an_unknown_crew_is_404(crew: Crew) -> None:
    answer = await crew.server.http.get(f"{crew.server.url}/crews/%3Cscript%3E/docs")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/json"
