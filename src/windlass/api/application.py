"""The ASGI application: allowed hosts, routing to crews, trusted proxies, client addresses and health checks."""

# See docs/decisions/api.md#get--leads-a-browser-to-the-dashboard

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, Router
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from windlass import metrics
from windlass.access.authentication import Source
from windlass.api.client_addresses import source_of
from windlass.api.cors import is_preflight, origin_of, preflight_response
from windlass.api.errors import (
    DEFAULT_HEADERS,
    Problem,
    problem_of,
    starting,
    stopping,
    unclear_path,
    unexpected,
    unknown_host,
)
from windlass.loopback import is_loopback

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Container, Iterable, Sequence

    from starlette.requests import Request
    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from windlass.api.cors import Headers
    from windlass.api.crew_api.routes import CrewApi
    from windlass.lifecycle.readiness import Check


RESERVED = ("ui", "api", "crews", "crewai_plus", "health", "ready", "metrics", ".well-known", "oauth2")
"""First segments of paths that belong to the server, also where a crew is served at the root."""

UNCLEAR = re.compile(rb"%(?:2[eEfF]|5[cC])|\\|/\.\.?(?:/|$)")
MOST_HOSTS = 1000
"""Host names whose check is cached."""
LONGEST_HOST = 253 + len(":65535")


def is_unclear(raw_path: bytes) -> bool:
    """Returns whether a proxy between client and server could decode the path to another path.

    A proxy may permit some paths only. Proxy and server must then mean the same path.
    """
    if b"%" in raw_path or b"/." in raw_path or b"\\" in raw_path:
        return UNCLEAR.search(raw_path) is not None
    return False


class Hosts:
    """The values that the server accepts in the Host header. This prevents DNS rebinding: a page of another site can't
    make a browser send requests to the server under the name of that site.

    Numeric addresses are always allowed, because the page of such an attack has a name. The loopback names of this
    machine are always allowed too. A request without a name is allowed, because browsers always send a name. A name of
    `names` may begin with `*.`; `*` alone allows every name. `plain` allows names without a dot, as services have
    within a cluster. No site of the internet can have such a name.
    """

    def __init__(self, names: Iterable[str | None], *, plain: bool) -> None:
        allowed = {name.lower().rstrip(".") for name in names if name}
        self._allow_all = "*" in allowed
        self._names = frozenset(allowed)
        self._suffixes = tuple(name[1:] for name in allowed if name.startswith("*."))
        self._plain = plain
        self._cache: dict[str, bool] = {}

    def allows(self, host: str) -> bool:
        """Returns whether a request with this Host header is accepted. `host` includes the port."""
        if len(host) > LONGEST_HOST:
            return False
        is_allowed = self._cache.get(host)
        if is_allowed is None:
            if len(self._cache) >= MOST_HOSTS:
                self._cache.clear()
            is_allowed = self._cache[host] = self._allow_all or self._allows(host.lower())
        return is_allowed

    def _allows(self, host: str) -> bool:
        found = re.fullmatch(r"(?:\[([0-9a-f:.]+)\]|([^\[\]:/@\s]*))(?::[0-9]*)?", host)
        if not found:
            return False
        name = (found[1] or found[2]).rstrip(".")
        is_known = name in self._names or name.endswith(self._suffixes) or (self._plain and "." not in name)
        return not name or is_known or is_loopback(name) or _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class CrewRoute:
    """The target of a request: `path` within the crew `slug`, or within the server itself if `slug` is None.

    `prefix` precedes `path` in the URLs of the crew. `by_host` is true if the host name selects the crew.
    """

    slug: str | None
    path: str
    prefix: str = ""
    by_host: bool = False


@dataclass(frozen=True, slots=True)
class Addresses:
    """Finds the crew of a request. `root` is the slug of the crew at the root path, `domain` the domain of crews'
    subdomains.
    """

    root: str | None = None
    domain: str | None = None

    def find(self, host: str, path: str) -> CrewRoute:
        path = _single_slashes(path)
        first, _, rest = path[1:].partition("/")
        if first == "crews" and rest:
            slug, _, inner = rest.partition("/")
            return CrewRoute(slug, f"/{inner}", f"/crews/{slug}")
        if (named := self._in_domain(host)) is not None:
            return CrewRoute(named, path, by_host=True)
        if self.root is not None and first not in RESERVED:
            return CrewRoute(self.root, path)
        return CrewRoute(None, path)

    def _in_domain(self, host: str) -> str | None:
        if not self.domain:
            return None
        name, ending = host.partition(":")[0].lower(), f".{self.domain.lower()}"
        return name.removesuffix(ending) if name.endswith(ending) else None


def _single_slashes(path: str) -> str:
    while "//" in path:
        path = path.replace("//", "/")
    return path or "/"


class TrustedProxies:
    """Applies X-Forwarded-For, -Proto and -Host of requests from these addresses, and ignores those of all others.

    If the only known address of a client is that of a trusted proxy, the client's address is unknown.
    """

    def __init__(self, app: ASGIApp, addresses: list[str]) -> None:
        self._app = app
        self._inner = ProxyHeadersMiddleware(self._forward, trusted_hosts=addresses)  # type: ignore[arg-type]

    def __contains__(self, host: object) -> bool:
        return isinstance(host, str) and host in self._inner.trusted_hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = scope.get("client")
        if client and client[0] in self:
            scope["headers"] = _with_forwarded_host(scope["headers"])
        await self._inner(scope, receive, send)  # type: ignore[arg-type]

    async def _forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = scope.get("client")
        if client and client[0] in self:
            scope["client"] = None
        await self._app(scope, receive, send)


def sources(trusted: Container[str] | None) -> Callable[[str | None], Source]:
    """Returns a function like `source_of` for the peers of connections. It does not limit trusted proxies either."""

    def of_peer(host: str | None) -> Source:
        source = source_of(host)
        return Source(source.name, limited=False) if trusted is not None and host in trusted else source

    return of_peer


def _with_forwarded_host(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Replaces Host with X-Forwarded-Host. The last of several values counts, because the trusted proxy added it."""
    forwarded = b",".join(value for name, value in headers if name == b"x-forwarded-host")
    host = forwarded.rpartition(b",")[2].strip()
    return [(b"host", host), *(header for header in headers if header[0] != b"host")] if host else headers


def health_routes(
    checks: dict[str, Check], degraded: Callable[[], list[str]] = list, faults_of_crews: Callable[[], int] = int
) -> list[Route]:
    """Returns the routes of /health and /ready. The server is ready if all `checks` pass; they run at each request.

    `degraded` returns codes of what does not work for some crews, while the server is ready. `faults_of_crews` is the
    number of interpreters whose warm-up failed. The server stays ready with them, because other crews run as they
    should: one project must not take the server away from the others.
    """

    async def health(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def ready(_: Request) -> Response:
        faults = dict(zip(checks, await asyncio.gather(*(check() for check in checks.values())), strict=True))
        results = {name: "ok" if fault is None else "failing" for name, fault in faults.items()}
        problems = {name: fault for name, fault in faults.items() if fault is not None}
        is_ready = not problems
        if failed := faults_of_crews():
            results["warm_up"] = "failing"
            problems["warm_up"] = WARM_UP_FAILED.format(f"{failed} interpreter{'' if failed == 1 else 's'}")
        answer = {"status": "ok" if is_ready else "failing", "checks": results}
        more = {"problems": problems, "degraded": degraded() if is_ready else []}
        return JSONResponse(answer | {name: value for name, value in more.items() if value}, 200 if is_ready else 503)

    return [Route("/health", health, methods=["GET"]), Route("/ready", ready, methods=["GET"])]


WARM_UP_FAILED = (
    "The warm-up of the framework failed in {}. Crews there run as they do without Windlass: they have no events, "
    "token limits and journal. The log has the reason (zygote.warm_up_failed). Install another release of it there."
)

RAW_DEFAULT_HEADERS = [(name.encode(), value.encode()) for name, value in DEFAULT_HEADERS.items()]


class Application:
    """The ASGI application. It finds the crew of a request, and turns every error into a response of one form."""

    def __init__(
        self,
        crew: CrewApi,
        server: Sequence[BaseRoute],
        addresses: Addresses,
        *,
        public_url: str | None = None,
        hosts: Hosts | None = None,
    ) -> None:
        """If `hosts` is None, every host name is allowed."""
        self._crew_api = crew
        self._crew = Router(crew.routes(), redirect_slashes=False)
        self._server = Router(server, redirect_slashes=False)
        self._addresses = addresses
        self._public_url = public_url
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        response = _ResponseSender(send)
        try:
            await self._route(scope, receive, response)
        except ClientDisconnect:
            return
        except asyncio.CancelledError:  # the HTTP server cancels the last requests at the end of its shutdown timeout
            await response.send_problem(stopping(), scope, receive)
        except Exception as error:  # noqa: BLE001 - the last handler: every error must become a response
            problem = problem_of(error) or unexpected(error, scope["method"], scope["path"])
            await response.send_problem(problem, scope, receive)

    def base_url(self, request: Request) -> str:
        """Returns the base URL of the request's crew, without a slash at the end.

        It is a path if the server does not know its own address. The Host header is not used, because anybody can
        choose it.
        """
        place = request.scope["place"]
        server = "" if place.by_host else self._public_url or ""
        return f"{server}{place.prefix}" or "/"

    async def _route(self, scope: Scope, receive: Receive, response: _ResponseSender) -> None:
        if is_unclear(scope["raw_path"]):
            raise unclear_path()
        host = _host(scope)
        if self._hosts is not None and not self._hosts.allows(host):
            raise unknown_host()
        place = self._addresses.find(host, scope["path"])
        if place.path == "/" and not place.prefix and not place.by_host and is_navigation(scope):
            place = CrewRoute(None, "/")  # a person who opens the server's address gets the dashboard
        router = self._server if place.slug is None else self._crew
        response.api = _api_of(place)
        inner = {**scope, "path": place.path, "root_path": "", "app": self, "place": place}
        if place.slug is not None and (origin := origin_of(scope)) is not None:
            response.extra = await self._crew_api.permission(place.slug, origin)
            if response.extra and is_preflight(scope):
                await preflight_response()(inner, receive, response.send)
                return
        await router(inner, receive, response.send)


class WaitingApplication:
    """The application of a server that can't answer requests yet, for this reason. Only /health answers 200."""

    def __init__(self, reason: str) -> None:
        async def fault() -> str:
            return reason

        self._health = Router(health_routes({"database": fault}), default=self._refuse)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._health(scope, receive, _ResponseSender(send).send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        await _ResponseSender(send).send_problem(starting(), scope, receive)


def is_navigation(scope: Scope) -> bool:
    """Returns whether a person opens the address in a browser. No other client sends this header."""
    return scope["method"] == "GET" and (b"sec-fetch-dest", b"document") in scope["headers"]


class _ResponseSender:
    def __init__(self, send: Callable[[Message], Awaitable[None]]) -> None:
        self._send = send
        self.is_started = False
        self.api = "server"
        self.extra: Headers = []
        """Headers that are added to the response, also to that of an error."""

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.is_started = True
            metrics.REQUESTS.labels(self.api, message["status"]).inc()
            headers = list(message["headers"])
            own = dict(headers)
            defaults = [header for header in RAW_DEFAULT_HEADERS if header[0] not in own]
            message["headers"] = [*headers, *defaults, *self.extra]
        await self._send(message)

    async def send_problem(self, problem: Problem, scope: Scope, receive: Receive) -> None:
        """Sends the problem unless a response has started. The HTTP server then closes the connection, because the
        response is not complete.
        """
        if not self.is_started:
            await JSONResponse(problem.body(), problem.status, problem.headers)(scope, receive, self.send)


def _api_of(place: CrewRoute) -> str:
    if place.slug is not None:
        return "crew"
    if place.path.startswith("/ui"):
        return "dashboard"
    return "control" if place.path.startswith("/api/") else "server"


def _host(scope: Scope) -> str:
    """Returns the Host header, or an empty string without one, which HTTP/1.0 allows. There is one at most."""
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "")
