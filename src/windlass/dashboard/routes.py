"""Routes of the dashboard. Each names the role that it needs, and each POST must come from a page of the dashboard."""

from __future__ import annotations

import gzip
import hmac
import io
import json
import secrets
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from windlass.access.sessions import Client
from windlass.api.bodies import read_body
from windlass.api.client_addresses import source_of_request
from windlass.api.control_api.uploads import uploaded_form
from windlass.api.errors import Problem, bad_request
from windlass.dashboard.cookies import NOTICE
from windlass.rights import SCOPES_OF_ROLE, Role
from windlass.store.audit import Actor

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from starlette.requests import Request

    from windlass.access.sessions import Person
    from windlass.dashboard.dashboard import Dashboard
    from windlass.rights import Scope

    Handler = Callable[["Visit"], Awaitable[Response]]

LONGEST_ADDRESS = 64
NOT_FOUND = 404
MOST_FIELDS = 2000
SHORTEST_COMPRESSED, COMPRESSION, MOST_BLURRED = 1000, 5, 100
"""The bytes from which on a page is compressed, the level of gzip, and the most bytes that blur the length."""
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class SignInNeeded(Exception):  # noqa: N818 - it leads to another page
    """Reports that the page needs a person who is signed in."""


@dataclass(slots=True)
class Visit:
    """A request for a page. `signed_in` is the person who sent it, None on a public page without one."""

    request: Request
    dashboard: Dashboard
    signed_in: Person | None
    fields: dict[str, str] = field(default_factory=dict)
    """The fields of the form that a POST sent."""
    files: dict[str, UploadFile] = field(default_factory=dict)
    """The files of a form with an upload. They are temporary."""
    questions: int = 0
    """Questions that wait for an answer of a person."""

    @property
    def person(self) -> Person:
        if self.signed_in is None:
            raise SignInNeeded
        return self.signed_in

    @property
    def client(self) -> Client:
        client = self.request.client
        address = client.host[:LONGEST_ADDRESS] if client else None
        return Client(address, self.request.headers.get("user-agent"), source_of_request(self.request.scope))

    @property
    def actor(self) -> Actor:
        """Returns the person as the audit log names them."""
        person = self.person
        return Actor(person.user_id, person.name, address=self.client.address, way="dashboard", role=person.role)

    @property
    def path(self) -> Mapping[str, str]:
        return self.request.path_params

    @property
    def query(self) -> Mapping[str, str]:
        """Returns the parameters of the query without NUL, which no text of the database holds."""
        return {name: value.replace("\0", "") for name, value in self.request.query_params.items()}

    @property
    def here(self) -> str:
        """Returns the path and query of this page."""
        query = self.request.url.query
        return f"{self.request.scope['place'].path}{'?' if query else ''}{query}"

    def may(self, role: str) -> bool:
        """Returns whether the person has the role, which templates give as its name."""
        return self.signed_in is not None and self.signed_in.role.includes(Role(role))

    def allows(self, scope: Scope) -> bool:
        """Returns whether the person's role has the scope in the API of each crew."""
        return self.signed_in is not None and scope in SCOPES_OF_ROLE[self.signed_in.role]

    def field(self, name: str, default: str = "") -> str:
        return self.fields.get(name, default)

    def page(self, template: str, status: int = 200, **context: Any) -> Response:
        """Returns the page that the template makes. It shows the notice of the request before, once."""
        notice = self.dashboard.notices.read(self.request.cookies.get(NOTICE))
        text = self.dashboard.templates.render(template, visit=self, notice=notice, **context)
        # a crew's JSON can hold halves of surrogate pairs, which UTF-8 does not have
        response = HTMLResponse(text.encode("utf-8", "replace"), status, headers=HEADERS)
        if self.request.method == "GET":  # an answer to a form can hold a new token
            compress(response, self.request.headers.get("accept-encoding", ""))
        if notice:
            response.delete_cookie(NOTICE, path=self.dashboard.cookie_path)
        return response

    def redirect(self, path: str, notice: str | None = None) -> Response:
        """Leads the browser to another page of the dashboard, which shows the notice. `path` begins with /ui."""
        response = RedirectResponse(self.dashboard.url(path), 303, headers=HEADERS)
        if notice:
            self.set_cookie(response, NOTICE, self.dashboard.notices.write(notice), seconds=60)
        return response

    def set_cookie(self, response: Response, name: str, value: str, *, seconds: int | None) -> None:
        response.set_cookie(
            name,
            value,
            max_age=seconds,
            path=self.dashboard.cookie_path,
            secure=self.dashboard.is_secure,
            httponly=True,
            samesite="lax",
        )


def compress(response: Response, accepted: str) -> None:
    """Compresses the body of a page, if the browser accepts gzip.

    The length is blurred by a random name in the header of gzip. Otherwise who sees the lengths of answers could find
    out a text of a page by many guesses in its address (BREACH).
    """
    response.headers["Vary"] = "Accept-Encoding"
    if "gzip" not in accepted or len(response.body) < SHORTEST_COMPRESSED:
        return
    packed = io.BytesIO()
    name = secrets.token_hex(MOST_BLURRED // 2)[: secrets.randbelow(MOST_BLURRED)]
    with gzip.GzipFile(name, "wb", COMPRESSION, packed, mtime=0) as file:
        file.write(response.body)
    response.body = packed.getvalue()
    response.headers["Content-Encoding"] = "gzip"
    response.headers["Content-Length"] = str(len(response.body))


class Routes:
    """The routes of a group of pages. `role` None stands for a public page."""

    def __init__(self) -> None:
        self.table: list[tuple[str, str, Role | None, Handler]] = []
        self._with_uploads: set[Handler] = set()

    def get(self, path: str, role: Role | None) -> Callable[[Handler], Handler]:
        return self._adder("GET", path, role)

    def post(self, path: str, role: Role | None, *, back: str | None = None) -> Callable[[Handler], Handler]:
        """Adds a POST. One that answers with a page leaves its own address in the browser, which a reload or a sign-in
        opens with GET: this leads to the page `back`, which may have parameters of `path`.
        """
        if back is not None:

            async def lead_back(visit: Visit) -> Response:
                return visit.redirect(back.format(**visit.path))

            self.get(path, role)(lead_back)
        return self._adder("POST", path, role)

    def upload(self, path: str, role: Role) -> Callable[[Handler], Handler]:
        """Adds a POST whose form may have a file. The forms of others have none, and take no disk space."""

        def add(handler: Handler) -> Handler:
            self._with_uploads.add(handler)
            return self.post(path, role)(handler)

        return add

    def _adder(self, method: str, path: str, role: Role | None) -> Callable[[Handler], Handler]:
        def add(handler: Handler) -> Handler:
            self.table.append((method, path, role, handler))
            return handler

        return add

    def mounted(self, dashboard: Dashboard) -> list[Route]:
        return [
            Route(path, _endpoint(dashboard, role, handler, files=handler in self._with_uploads), methods=[method])
            for method, path, role, handler in self.table
        ]


def _endpoint(
    dashboard: Dashboard, role: Role | None, handler: Handler, *, files: bool
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        person = await dashboard.sessions.person(request.cookies.get(dashboard.sessions.cookie))
        visit = Visit(request, dashboard, person)
        request.state.visit = visit
        if person is not None:
            visit.questions = await dashboard.questions(visit.actor.sees)
        if role is not None and not visit.person.role.includes(role):
            raise Problem(
                403,
                f"This page needs the role {role}, and you have the role {visit.person.role}. An owner can change it.",
                {"required_role": str(role)},
            )
        if any("\0" in one for one in visit.path.values()):
            raise HTTPException(NOT_FOUND)
        if role is not None:
            await dashboard.control.members.check_path(visit.path, visit.actor)
        if request.method != "POST":
            return await handler(visit)
        async with _checked_form(visit, files=files):
            return await handler(visit)

    return endpoint


@asynccontextmanager
async def _checked_form(visit: Visit, *, files: bool) -> AsyncIterator[None]:
    """Reads the form, and refuses one that no page of this session made (CSRF).

    The token is in the form or in a header, never in an address: logs and histories have addresses.
    """
    request, dashboard = visit.request, visit.dashboard
    if not is_same_origin(request, dashboard.origin):
        raise Problem(403, "The form comes from another site. Open the dashboard itself, and send it from there.")
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        visit.fields = await read_form(request, dashboard)
    elif files:
        async with uploaded_form(request, dashboard.control) as form:
            visit.files = {name: value for name, value in form.items() if isinstance(value, UploadFile)}
            visit.fields = {name: value for name, value in form.items() if isinstance(value, str)}
            _check_token(visit)
            yield
        return
    _check_token(visit)
    yield


def _check_token(visit: Visit) -> None:
    if visit.signed_in is not None:
        given = visit.request.headers.get("x-csrf-token") or visit.field("csrf")
        if not hmac.compare_digest(given.encode(), visit.signed_in.csrf.encode()):
            raise Problem(403, "The form is from an older session. Load the page again, and send it once more.")


def is_same_origin(request: Request, public: str | None) -> bool:
    """Returns False if the browser names another site as the sender. `public` is the origin of the public URL."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site in {"same-origin", "none"}
    origin = request.headers.get("origin")
    return origin is None or origin == public or urlsplit(origin).netloc == request.headers.get("host")


async def read_form(request: Request, dashboard: Dashboard) -> dict[str, str]:
    """Returns the fields of the form in the body, the last value of each. Raises Problem 400, 408 or 413.

    A field whose name ends with `[]` holds all its values, as a JSON list.
    """
    control = dashboard.control
    body = await read_body(request, control.largest_body, control.request_timeout)
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS)
    except ValueError:
        raise bad_request(f"The form can't be read: it has more than {MOST_FIELDS} fields, or is not UTF-8.") from None
    lists: dict[str, list[str]] = {}
    for name, value in pairs:
        if name.endswith("[]"):
            lists.setdefault(name, []).append(value)
    return {**dict(pairs), **{name: json.dumps(values) for name, values in lists.items()}}


LONGEST_LINE = 500


def one_line(given: str | None, longest: int = LONGEST_LINE) -> str:
    """Returns a text without NUL, which no text of the database holds, and without spaces at its ends."""
    return (given or "").replace("\0", "").strip()[:longest]


def whole_number(given: str | None, longest: int) -> int | None:
    """Returns the number of a text with at most this many digits and nothing else. None for any other text."""
    is_number = given and given.isascii() and given.isdecimal() and len(given) <= longest
    return int(given) if given and is_number else None


def several_lines(given: str) -> str:
    """Returns the text of a `textarea`, whose lines browsers end with CR LF."""
    return given.replace("\r\n", "\n")


def chosen(visit: Visit, name: str) -> list[str]:
    """Returns the values of a group of check boxes whose name is `name[]`."""
    found: list[str] = json.loads(visit.field(f"{name}[]", "[]"))
    return found
