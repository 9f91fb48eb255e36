"""The endpoints of one crew. `request.scope["place"]` is its CrewRoute, which application.py sets before routing."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from windlass.access.authentication import CrewRates
from windlass.access.tickets import VALID_SECONDS
from windlass.api.application import address_of, source_of_request
from windlass.api.bodies import read_list, read_object
from windlass.api.cors import permission
from windlass.api.crew_api.event_stream import last_event_id, stream_response, wants_stream, with_first
from windlass.api.crew_api.files import file_response, find_file, zip_response
from windlass.api.crew_api.kickoff_requests import (
    MEMBER,
    KickoffRules,
    Starter,
    accept_each,
    key_in,
    members_of,
    new_kickoff,
    query_of,
)
from windlass.api.crew_api.openapi import crew_document
from windlass.api.crew_api.schemas import LARGEST_BATCH, EventsQuery, KickoffsQuery, StopRequest, StreamQuery
from windlass.api.crew_api.views import (
    Part,
    attempts_body,
    events_body,
    kickoffs_body,
    status_body,
    stop_all_body,
    stop_body,
)
from windlass.api.docs_page import assets, docs_page
from windlass.api.errors import (
    Problem,
    bad_request,
    forbidden,
    forbidden_by_role,
    no_such_crew,
    no_such_kickoff,
    not_ended,
    unauthorized,
)
from windlass.api.streaming_json import LargeAnswers, json_text
from windlass.kickoffs.files import listed
from windlass.kickoffs.ids import parse_id
from windlass.kickoffs.states import State
from windlass.rights import SCOPES_OF_KIND, Scope, may_see
from windlass.store.ending import OPEN, StopFilter
from windlass.store.kickoff_list import KickoffFilter
from windlass.store.tokens import PERSONAL

if TYPE_CHECKING:
    from uuid import UUID

    from starlette.requests import Request

    from windlass.access.authentication import TokenAuthenticator
    from windlass.access.tickets import Tickets
    from windlass.api.cors import Headers
    from windlass.api.streaming_json import AnswerFile
    from windlass.deployments.crews import Crew, Crews
    from windlass.kickoffs.manifest import Manifest
    from windlass.kickoffs.waiting import Waiting
    from windlass.lifecycle.accept import Acceptor, Stops
    from windlass.lifecycle.deletion import Deletions
    from windlass.lifecycle.event_streams import EventStreams, Shares
    from windlass.lifecycle.statuses import Statuses
    from windlass.store.audit import Actor
    from windlass.store.files import FileStore
    from windlass.store.reading import KickoffStatus
    from windlass.store.tokens import TokenRow

LONGEST_WAIT = 60.0
MARGIN = 10.0
"""Seconds that a deletion with `stop` waits for the end of the kickoff, in addition to the grace time of a stop."""
WAITING = {State.PENDING, State.PENDING_HUMAN_INPUT}
SECONDS = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
SLUG = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class CrewApi:
    """Endpoints and their dependencies. `largest_body` is in bytes, `request_timeout` and `stop_grace` in seconds."""

    crews: Crews
    access: TokenAuthenticator
    acceptor: Acceptor
    statuses: Statuses
    rules: KickoffRules
    largest_body: int
    request_timeout: float
    stops: Stops
    stop_grace: float
    deletions: Deletions
    large_answers: LargeAnswers
    stored_files: FileStore
    streams: EventStreams
    waits: Shares
    tickets: Tickets
    rates: CrewRates = field(default_factory=CrewRates)

    def routes(self) -> list[Route]:
        return [
            Route("/kickoff", self.kickoff, methods=["POST"]),
            Route("/kickoffs", self.kickoffs, methods=["GET", "POST"]),
            Route("/kickoffs/{kickoff_id}", self.delete, methods=["DELETE"]),
            Route("/status/{kickoff_id}", self.status, methods=["GET"]),
            Route("/attempts/{kickoff_id}", self.attempts, methods=["GET"]),
            Route("/events/{kickoff_id}", self.events, methods=["GET"]),
            Route("/stream-tickets", self.stream_ticket, methods=["POST"]),
            Route("/files/{kickoff_id}.zip", self.files_as_zip, methods=["GET"]),
            Route("/files/{kickoff_id}", self.files, methods=["GET"]),
            Route("/files/{kickoff_id}/{path:path}", self.file, methods=["GET"]),
            Route("/stop", self.stop_all, methods=["POST"]),
            Route("/stop/{kickoff_id}", self.stopped, methods=["POST"]),
            Route("/inputs", self.inputs, methods=["GET"]),
            Route("/", self.healthy, methods=["GET"]),
            Route("/openapi.json", self.openapi, methods=["GET"]),
            Route("/docs", self.docs, methods=["GET"]),
            Route("/docs/{name}", assets, methods=["GET"]),
            Route("/{kickoff_id}/status", self.status, methods=["GET"]),
        ]

    async def healthy(self, request: Request) -> Response:
        await self._authenticated(request)
        return PlainTextResponse("Healthy")

    async def inputs(self, request: Request) -> Response:
        crew, _ = await self._authenticated(request, Scope.READ)
        manifest = crew.manifest
        warnings = {"warnings": list(manifest.warnings)} if manifest.warnings else {}
        return answer({"inputs": manifest.required_inputs, "schema": manifest.inputs_schema, **warnings})

    async def kickoff(self, request: Request) -> Response:
        crew, token = await self._authenticated(request, Scope.RUN)
        body = await read_object(request, largest=self.largest_body, seconds=self.request_timeout)
        new = new_kickoff(body, key_in(request.headers), crew, _starter(request, token), self.rules)
        kickoff = await self.acceptor.accept(new)
        return Response(b'{"kickoff_id":"%s"}' % str(kickoff).encode(), media_type="application/json")

    async def kickoffs(self, request: Request) -> Response:
        return await (self.start_kickoffs if request.method == "POST" else self.list_kickoffs)(request)

    async def start_kickoffs(self, request: Request) -> Response:
        crew, token = await self._authenticated(request, Scope.RUN)
        batch = await read_list(
            request, MEMBER, most=LARGEST_BATCH, largest=self.largest_body, seconds=self.request_timeout
        )
        key = key_in(request.headers)
        answers = await accept_each(batch, key, crew, _starter(request, token), self.rules, self.acceptor)
        return await json_text([json.dumps({MEMBER: answers}, separators=(",", ":"))])

    async def status(self, request: Request) -> Response:
        crew, token = await self._authenticated(request, Scope.READ)
        wait = _wait(request)
        kickoff = await self._find(parse_id(request.path_params["kickoff_id"]), crew, token, wait)
        manifest = await self._manifest(kickoff, crew)
        waiting = await self._waiting(kickoff, token)
        profile = token.profile or crew.profile
        return await self._status_answer(kickoff, status_body(kickoff, manifest.tasks, profile, waiting), profile)

    async def attempts(self, request: Request) -> Response:
        crew, token = await self._authenticated(request, Scope.READ)
        kickoff = await self._find(parse_id(request.path_params["kickoff_id"]), crew, token)
        return answer(attempts_body(kickoff.id, await self.statuses.attempts(kickoff.id), asker=token.asker))

    async def list_kickoffs(self, request: Request) -> Response:
        crew, token = await self._authenticated(request, Scope.READ)
        query = query_of(KickoffsQuery, request)
        states = None if query.state is None else [state for state in State if state.state_on_the_wire == query.state]
        wanted = KickoffFilter(
            deployment=crew.deployment_id, states=states, owner=token.asker, user=query.user, before=query.cursor
        )
        return answer(kickoffs_body(await self.statuses.listed(wanted, query.limit)))

    async def events(self, request: Request) -> Response:
        if wants_stream(request):
            return await self.event_stream(request)
        crew, token = await self._authenticated(request, Scope.READ)
        kickoff = await self._find(parse_id(request.path_params["kickoff_id"]), crew, token)
        query = query_of(EventsQuery, request)
        events = await self.statuses.events(kickoff.id, query.after, query.limit, asker=token.asker)
        return await json_text(events_body(kickoff, events, query.after))

    async def event_stream(self, request: Request) -> Response:
        crew, token = await self._may_stream(request)
        kickoff = await self._find(parse_id(request.path_params["kickoff_id"]), crew, token)
        query, last = query_of(StreamQuery, request), last_event_id(request)

        async def is_valid() -> bool:
            now = await self.access.by_digest(token.digest)
            return now is not None and now.allows(Scope.READ)

        after = query.after if last is None else last
        pages = await self.streams.open(kickoff.id, crew.deployment_id, after, token.asker, is_valid)
        if last is not None and kickoff.state.ended:
            first = await anext(pages, None)
            if first is None or first.is_last:
                return Response(status_code=204)  # a browser does not connect again
            pages = with_first(first, pages)
        return stream_response(kickoff.id, pages)

    async def stream_ticket(self, request: Request) -> Response:
        crew, token = await self._authenticated(request, Scope.READ)
        ticket = self.tickets.issue(token.digest, crew.deployment_id)
        return answer({"ticket": ticket, "expires_in": VALID_SECONDS})

    async def _may_stream(self, request: Request) -> tuple[Crew, TokenRow]:
        """Returns the crew, and the token of the request or of the ticket in its query."""
        ticket = request.query_params.get("ticket")
        if ticket is None:
            return await self._authenticated(request, Scope.READ)
        source = source_of_request(request.scope)
        self.access.failures.check(source)
        given = self.tickets.read(ticket)
        token = await self.access.by_digest(given.token) if given else None
        crew = await self._crew(request) if given and token else None
        if given is None or token is None or crew is None or given.deployment != crew.deployment_id:
            self.access.failures.count(source)
            raise unauthorized()
        if not token.allows(Scope.READ):
            raise _forbidden(Scope.READ, token)
        self.rates.take(crew.deployment_id, crew.rate_limit, token.id)
        return crew, token

    async def files(self, request: Request) -> Response:
        kickoff = await self._with_files(request)
        files = await self.stored_files.of(kickoff.id) if kickoff.file_count else []
        return answer({"kickoff_id": str(kickoff.id), "files": listed(files)})

    async def file(self, request: Request) -> Response:
        kickoff = await self._with_files(request)
        file = await find_file(self.stored_files, kickoff, request.path_params["path"])
        return file_response(self.stored_files, kickoff.id, file, request)

    async def files_as_zip(self, request: Request) -> Response:
        kickoff = await self._with_files(request)
        files = await self.stored_files.of(kickoff.id) if kickoff.file_count else []
        return zip_response(self.stored_files, kickoff.id, files, request)

    async def stopped(self, request: Request) -> Response:
        crew, token = await self._authenticated(request, Scope.RUN)
        before = await self._find(parse_id(request.path_params["kickoff_id"]), crew, token)
        state = before.state if before.state.ended else await self.stops.stop(before.id, _actor(request, token))
        if state is None:
            raise no_such_kickoff()
        return answer(stop_body(before, state, self.stop_grace))

    async def stop_all(self, request: Request) -> Response:
        crew, token = await self._authenticated(request, Scope.RUN)
        body = await read_object(request, largest=self.largest_body, seconds=self.request_timeout)
        members = members_of(StopRequest, body)
        states = [State(members.state)] if members.state else OPEN
        kickoffs = StopFilter(crew.deployment_id, states, token.asker, members.user, members.before)
        stopped = await self.stops.stop_all(kickoffs, _actor(request, token))
        return answer(stop_all_body(stopped, self.stop_grace))

    async def delete(self, request: Request) -> Response:
        crew, token = await self._authenticated(request, Scope.ADMIN)
        stop, by = _flag(request, "stop"), _actor(request, token)
        kickoff = await self._find(parse_id(request.path_params["kickoff_id"]), crew, token)
        if stop and not kickoff.state.ended:
            await self.stops.stop(kickoff.id, by)
            kickoff = await self._find(kickoff.id, crew, token, self.stop_grace + MARGIN)
        if not kickoff.state.ended:
            raise not_ended(kickoff.id, stopping=stop)
        if not await self.deletions.delete([kickoff.id], by):
            raise no_such_kickoff()
        message = "The kickoff is deleted for good, with its events, journal, files, attempts and task records."
        return answer({"kickoff_id": str(kickoff.id), "message": message})

    async def openapi(self, request: Request) -> Response:
        crew = await self._crew(request)
        return answer(crew_document(crew.slug, crew.manifest, request.app.base_url(request)))

    async def docs(self, request: Request) -> Response:
        crew = await self._crew(request)
        return docs_page(f"API of the crew {crew.slug}")

    async def _authenticated(self, request: Request, scope: Scope | None = None) -> tuple[Crew, TokenRow]:
        """Returns the crew and the token. Raises Problem 401 first, so that nothing is revealed without a valid token,
        then 404 for an unknown crew, then 403 for a token without the scope.
        """
        source = source_of_request(request.scope)
        token = await self.access.token(_only(request, "authorization"), source)
        if token is None:
            raise unauthorized()
        crew = await self._crew(request)
        if token.deployment_id not in {None, crew.deployment_id}:
            self.access.failures.count(source)
            raise unauthorized()
        if scope and not token.allows(scope):
            raise _forbidden(scope, token)
        self.rates.take(crew.deployment_id, crew.rate_limit, token.id)
        return crew, token

    async def permission(self, slug: str, origin: str) -> Headers:
        """Returns the response headers that permit pages of this origin to use the crew."""
        crew = await self.crews.get(slug) if SLUG.fullmatch(slug) else None
        return permission(origin, crew.cors_origins) if crew else []

    async def _crew(self, request: Request) -> Crew:
        slug: str = request.scope["place"].slug
        crew = await self.crews.get(slug) if SLUG.fullmatch(slug) else None
        if crew is None:
            raise no_such_crew(slug)
        return crew

    async def _status_answer(self, kickoff: KickoffStatus, parts: list[Part], profile: str) -> Response:
        if not kickoff.large:
            return await json_text([part for part in parts if isinstance(part, str)])

        async def write(file: AnswerFile) -> None:
            async with self.statuses.large_members(kickoff.id) as pieces:
                for part in parts:
                    if isinstance(part, str):
                        await file.add(part.encode())
                        continue
                    size = file.size
                    async for piece in pieces(part):
                        await file.add(piece)
                    if file.size == size:  # it was deleted after its status was read
                        raise no_such_kickoff()

        # all readers of an ended kickoff get the same response; responses for an open one may differ
        key = (kickoff.id, profile) if kickoff.state.ended else object()
        return self.large_answers.response(key, write)

    async def _waiting(self, kickoff: KickoffStatus, token: TokenRow) -> Waiting | None:
        """Returns what the kickoff waits for. It runs a second statement only if the kickoff may wait for something."""
        if kickoff.state in WAITING or (kickoff.waiting_for and not kickoff.state.ended):
            return await self.statuses.waiting(kickoff.id, token.asker)
        return None

    async def _manifest(self, kickoff: KickoffStatus, crew: Crew) -> Manifest:
        """Returns the manifest of the kickoff's version, which may not be the crew's current version."""
        if kickoff.version_id == crew.version_id:
            return crew.manifest
        return await self.crews.manifest(kickoff.version_id) or crew.manifest

    async def _with_files(self, request: Request) -> KickoffStatus:
        crew, token = await self._authenticated(request, Scope.READ)
        return await self._find(parse_id(request.path_params["kickoff_id"]), crew, token)

    async def _find(self, kickoff: UUID | None, crew: Crew, token: TokenRow, wait: float = 0) -> KickoffStatus:
        """Waits for `wait` seconds at most until the kickoff has ended."""
        found = None
        if kickoff and wait:
            with self.waits.taken(crew.deployment_id):
                found = await self.statuses.get_ended(kickoff, wait, partial(_may_see, token, crew))
        elif kickoff:
            found = await self.statuses.get(kickoff)
        if found is None or not _may_see(token, crew, found):
            raise no_such_kickoff()
        return found


def answer(value: Any) -> Response:
    return Response(json.dumps(value, separators=(",", ":")), media_type="application/json")


def _actor(request: Request, token: TokenRow) -> Actor:
    return token.actor(address_of(request.scope))


def _starter(request: Request, token: TokenRow) -> Starter:
    return Starter(token.asker, _actor(request, token))


def _forbidden(scope: Scope, token: TokenRow) -> Problem:
    if token.kind == PERSONAL:
        return forbidden_by_role(scope, token.role)
    return forbidden(scope, possible=scope in SCOPES_OF_KIND[token.kind])


def _may_see(token: TokenRow, crew: Crew, kickoff: KickoffStatus) -> bool:
    return kickoff.deployment_id == crew.deployment_id and may_see(token.asker, kickoff.user_id)


def _only(request: Request, name: str) -> str | None:
    """Returns the header's value if the request has it exactly once. Two values would be ambiguous."""
    values = request.headers.getlist(name)
    return values[0] if len(values) == 1 else None


def _flag(request: Request, name: str) -> bool:
    given = request.query_params.get(name, "false")
    if given not in {"true", "false"}:
        raise bad_request(f"`{name}` must be true or false.")
    return given == "true"


def _wait(request: Request) -> float:
    if not request.scope["query_string"]:
        return 0.0
    given = request.query_params.get("wait", "0")
    seconds = float(given) if SECONDS.fullmatch(given) else -1.0
    if not 0 <= seconds <= LONGEST_WAIT:
        raise bad_request(f"`wait` must be a number of seconds from 0 to {LONGEST_WAIT:g}.")
    return seconds
