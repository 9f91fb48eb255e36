"""The endpoints of one crew. `request.scope["place"]` says which: the address was read before (see application.py)."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from windlass.api.attempts_view import attempts_body
from windlass.api.bodies import read_list, read_object
from windlass.api.docs_page import assets, docs_page
from windlass.api.kickoff_batches import MEMBER, accept_each
from windlass.api.kickoff_requests import Seal, key_in, new_kickoff
from windlass.api.large import json_text
from windlass.api.openapi import crew_document
from windlass.api.problems import bad_request, no_such_crew, no_such_kickoff, unauthorized
from windlass.api.schemas import LARGEST_BATCH
from windlass.api.status_view import status_body
from windlass.api.stop_view import stop_body
from windlass.kickoffs.ids import parse_id
from windlass.kickoffs.states import State
from windlass.kickoffs.visibility import may_see

if TYPE_CHECKING:
    from uuid import UUID

    from starlette.requests import Request

    from windlass.kickoffs.manifest import Manifest
    from windlass.kickoffs.waiting import Waiting
    from windlass.lifecycle.accept import Acceptor
    from windlass.lifecycle.access import Access
    from windlass.lifecycle.crews import Crew, Crews
    from windlass.lifecycle.statuses import Statuses
    from windlass.store.kickoffs import KickoffStatus
    from windlass.store.tokens import TokenRow

Stop = Callable[["UUID"], Awaitable["State | None"]]
"""Records that a kickoff is to be stopped, and gives the state that it has then; None for an unknown one."""
LONGEST_WAIT = 60.0
WAITING = {State.PENDING, State.PENDING_HUMAN_INPUT}
SECONDS = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
SLUG = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class CrewApi:
    """What the endpoints work with. `largest_body` is in bytes, `request_timeout` and `stop_grace` in seconds."""

    crews: Crews
    access: Access
    acceptor: Acceptor
    statuses: Statuses
    seal: Seal
    largest_body: int
    request_timeout: float
    stop: Stop
    stop_grace: float

    def routes(self) -> list[Route]:
        return [
            Route("/kickoff", self.kickoff, methods=["POST"]),
            Route("/kickoffs", self.kickoffs, methods=["POST"]),
            Route("/status/{kickoff_id}", self.status, methods=["GET"]),
            Route("/attempts/{kickoff_id}", self.attempts, methods=["GET"]),
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
        crew, _ = await self._authenticated(request)
        manifest = crew.manifest
        return answer({"inputs": manifest.required_inputs, "schema": manifest.inputs_schema})

    async def kickoff(self, request: Request) -> Response:
        crew, token = await self._authenticated(request)
        body = await read_object(request, largest=self.largest_body, seconds=self.request_timeout)
        new = new_kickoff(body, key_in(request.headers), crew, token.user_id, self.seal)
        kickoff = await self.acceptor.accept(new)
        return Response(b'{"kickoff_id":"%s"}' % str(kickoff).encode(), media_type="application/json")

    async def kickoffs(self, request: Request) -> Response:
        crew, token = await self._authenticated(request)
        batch = await read_list(
            request, MEMBER, most=LARGEST_BATCH, largest=self.largest_body, seconds=self.request_timeout
        )
        key = key_in(request.headers)
        answers = await accept_each(batch, key, crew, token.user_id, self.seal, self.acceptor)
        return await json_text([json.dumps({MEMBER: answers}, separators=(",", ":"))])

    async def status(self, request: Request) -> Response:
        crew, token = await self._authenticated(request)
        wait = _wait(request)
        kickoff = await self._find(parse_id(request.path_params["kickoff_id"]), crew, token)
        if wait and not kickoff.state.ended:
            kickoff = await self._ended(kickoff, wait)
        manifest = await self._manifest(kickoff, crew)
        waiting = await self._waiting(kickoff, token)
        return await json_text(status_body(kickoff, manifest.tasks, token.profile or crew.profile, waiting))

    async def attempts(self, request: Request) -> Response:
        crew, token = await self._authenticated(request)
        kickoff = await self._find(parse_id(request.path_params["kickoff_id"]), crew, token)
        return answer(attempts_body(kickoff.id, await self.statuses.attempts(kickoff.id)))

    async def stopped(self, request: Request) -> Response:
        crew, token = await self._authenticated(request)
        before = await self._find(parse_id(request.path_params["kickoff_id"]), crew, token)
        state = before.state if before.state.ended else await self.stop(before.id)
        if state is None:
            raise no_such_kickoff()
        return answer(stop_body(before, state, self.stop_grace))

    async def openapi(self, request: Request) -> Response:
        crew = await self._crew(request)
        return answer(crew_document(crew.slug, crew.manifest, request.app.base_url(request)))

    async def docs(self, request: Request) -> Response:
        crew = await self._crew(request)
        return docs_page(crew.slug)

    async def _authenticated(self, request: Request) -> tuple[Crew, TokenRow]:
        """Raises Problem 401 before anything is told of what there is, then 404 for an unknown crew."""
        token = await self.access.token(_only(request, "authorization"))
        if token is None:
            raise unauthorized()
        crew = await self._crew(request)
        if token.deployment_id not in {None, crew.deployment_id}:
            raise unauthorized()
        return crew, token

    async def _crew(self, request: Request) -> Crew:
        slug: str = request.scope["place"].slug
        crew = await self.crews.get(slug) if SLUG.fullmatch(slug) else None
        if crew is None:
            raise no_such_crew(slug)
        return crew

    async def _ended(self, kickoff: KickoffStatus, seconds: float) -> KickoffStatus:
        """As it stands after `seconds` when it has not ended by then."""
        found = await self.statuses.get_ended(kickoff.id, seconds) or kickoff
        return found if found.state.ended else await self.statuses.get(kickoff.id) or found

    async def _waiting(self, kickoff: KickoffStatus, token: TokenRow) -> Waiting | None:
        """Asked for only where there can be something: a run that simply runs costs no second statement."""
        if kickoff.state in WAITING or (kickoff.waiting_for and not kickoff.state.ended):
            return await self.statuses.waiting(kickoff.id, token.user_id)
        return None

    async def _manifest(self, kickoff: KickoffStatus, crew: Crew) -> Manifest:
        """Of the version that the kickoff runs; it may not be the crew's current one."""
        if kickoff.version_id == crew.version_id:
            return crew.manifest
        return await self.crews.manifest(kickoff.version_id) or crew.manifest

    async def _find(self, kickoff: UUID | None, crew: Crew, token: TokenRow) -> KickoffStatus:
        found = await self.statuses.get(kickoff) if kickoff else None
        if found is None or not _may_see(token, crew, found):
            raise no_such_kickoff()
        return found


def answer(value: Any) -> Response:
    return Response(json.dumps(value, separators=(",", ":")), media_type="application/json")


def _may_see(token: TokenRow, crew: Crew, kickoff: KickoffStatus) -> bool:
    return kickoff.deployment_id == crew.deployment_id and may_see(token.user_id, kickoff.user_id)


def _only(request: Request, name: str) -> str | None:
    """The header's value, when it is there once: of two, nobody can say which is meant."""
    values = request.headers.getlist(name)
    return values[0] if len(values) == 1 else None


def _wait(request: Request) -> float:
    if not request.scope["query_string"]:
        return 0.0
    given = request.query_params.get("wait", "0")
    seconds = float(given) if SECONDS.fullmatch(given) else -1.0
    if not 0 <= seconds <= LONGEST_WAIT:
        raise bad_request(f"`wait` must be a number of seconds from 0 to {LONGEST_WAIT:g}.")
    return seconds
