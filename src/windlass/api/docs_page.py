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
SwaggerUIBundle({
  url: new URL("openapi.json", new URL("..", document.currentScript.src)).href,
  dom_id: "#docs", deepLinking: true, persistAuthorization: false, validatorUrl: null, defaultModelsExpandDepth: 0
});
"""
OWN_STYLE = ""
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
<nav class="wrapper" aria-label="Path"><p><a class="link" href="../../ui/">Dashboard</a> / {title}</p></nav>
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
