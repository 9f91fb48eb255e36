"""The interactive pages of the APIs. It loads only assets that are part of the package."""

from __future__ import annotations

import asyncio
import gzip
from functools import cache
from html import escape
from importlib import resources
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response

if TYPE_CHECKING:
    from starlette.requests import Request

ASSETS = {"swagger-ui-bundle.js": "text/javascript", "swagger-ui.css": "text/css", "docs.js": "text/javascript"}
STARTER = """const dark = matchMedia("(prefers-color-scheme: dark)");
const follow = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", follow);
follow();

// What screen readers need, and Swagger UI does not have: a name of the list of servers, no link in a button, no
// landmark for each table, landmarks around all else, and headings without a gap.
const mend = (root) => {
  for (const one of root.querySelectorAll(".servers select")) one.setAttribute("aria-label", "Server");
  for (const one of root.querySelectorAll(".opblock-summary-control a[href]")) one.removeAttribute("href");
  for (const one of root.querySelectorAll("table[role=region]")) one.removeAttribute("role");
  for (const one of root.querySelectorAll("h3, h4, h5")) one.setAttribute("aria-level", one.tagName[1] - 1);
  for (const [part, name] of [[".information-container", "About"], [".scheme-container", "Server and token"]]) {
    for (const one of root.querySelectorAll(part)) {
      one.setAttribute("role", "region");
      one.setAttribute("aria-label", name);
    }
  }
};
const docs = document.getElementById("docs");
new MutationObserver(() => mend(docs)).observe(docs, { childList: true, subtree: true });
SwaggerUIBundle({
  url: new URL("openapi.json", new URL("..", document.currentScript.src)).href,
  dom_id: "#docs", deepLinking: true, persistAuthorization: false, validatorUrl: null, defaultModelsExpandDepth: 0
});
"""
OWN_STYLE = """
.swagger-ui nav a { color: inherit; text-decoration: underline; }
.swagger-ui nav p { color: inherit; margin: 16px 0 0; }
.swagger-ui .opblock .opblock-summary .opblock-summary-method { background: #4a5160; color: #fff; text-shadow: none; }
.swagger-ui .opblock.opblock-get .opblock-summary .opblock-summary-method { background: #1d5fa8; }
.swagger-ui .opblock.opblock-post .opblock-summary .opblock-summary-method { background: #157347; }
.swagger-ui .opblock.opblock-put .opblock-summary .opblock-summary-method { background: #8a5200; }
.swagger-ui .opblock.opblock-patch .opblock-summary .opblock-summary-method { background: #0b6f63; }
.swagger-ui .opblock.opblock-delete .opblock-summary .opblock-summary-method { background: #b42318; }
.swagger-ui .info .title small { background: #4a5160; }
.swagger-ui .info .title small.version-stamp { background: #3d6b00; }
.swagger-ui pre span[style*="rgb(211, 99, 99)"] { color: #ff9d9d !important; }
html:not(.dark-mode) .swagger-ui .btn.authorize { border-color: #157347; color: #157347; }
html:not(.dark-mode) .swagger-ui .btn.authorize svg { fill: #157347; }
html:not(.dark-mode) .swagger-ui .parameter__in { color: #565c68; }
html:not(.dark-mode) .swagger-ui .info .link { color: #1d5fa8; }
html.dark-mode .swagger-ui table.headers td { color: #e4e6e6; }
"""
"""Replaces colours of Swagger UI that are hard to read."""
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} · Windlass</title>
<link rel="icon" href="data:,">
<meta name="color-scheme" content="light dark">
<link rel="stylesheet" href="docs/swagger-ui.css">
</head>
<body class="swagger-ui">
<nav class="wrapper" aria-label="Path"><p><a href="../../ui/">Dashboard</a> / {title}</p></nav>
<div id="docs">
<noscript>This page needs JavaScript; <a href="openapi.json">openapi.json</a> is the document itself.</noscript>
</div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/docs.js"></script>
</body>
</html>
"""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def docs_page(title: str) -> Response:
    """Returns the page. Its links are relative, because a proxy may serve the API under another path."""
    return HTMLResponse(PAGE.format(title=escape(title)), headers={"Content-Security-Policy": POLICY})


async def assets(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in ASSETS:
        raise HTTPException(404)
    headers = {"Cache-Control": "public, max-age=3600", "X-Content-Type-Options": "nosniff", "Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        packed = await asyncio.to_thread(_compressed, name)
        return Response(packed, media_type=ASSETS[name], headers={**headers, "Content-Encoding": "gzip"})
    return Response(_asset(name), media_type=ASSETS[name], headers=headers)


@cache
def _asset(name: str) -> bytes:
    if name == "docs.js":
        return STARTER.encode()
    try:
        content = resources.files("windlass.api").joinpath("static", name).read_bytes()
    except FileNotFoundError:
        raise HTTPException(404) from None
    return content + OWN_STYLE.encode() if name.endswith(".css") else content


@cache
def _compressed(name: str) -> bytes:
    return gzip.compress(_asset(name), mtime=0)
