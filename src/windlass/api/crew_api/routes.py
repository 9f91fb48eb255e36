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
from windlass.api.bodies import read_list, read_object
from windlass.api.client_addresses import address_of, source_of_request
from windlass.api.cors import permission
from windlass.api.crew_api.answers import (
    ATTEMPTS_EXAMPLE,
    EVENTS_EXAMPLE,
    KICKOFFS_EXAMPLE,
    AttemptsAnswer,
    DeleteAnswer,
    EventsAnswer,
    FilesAnswer,
    InputsAnswer,
    KickoffAnswer,
    KickoffListAnswer,
    KickoffsAnswer,
    ResumeAnswer,
    StatusAnswer,
    StopAllAnswer,
    StopAnswer,
    TicketAnswer,
)
from windlass.api.crew_api.answers_of_people import answer_key, callback_answer, decided, resume_request
from windlass.api.crew_api.event_stream import MEDIA_TYPE as STREAM
from windlass.api.crew_api.event_stream import last_event_id, stream_response, wants_stream, with_first
from windlass.api.crew_api.examples import AT, BATCH_ANSWER, EXAMPLE_ID, FILE_EXAMPLE, STATUS_EXAMPLES
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
from windlass.api.crew_api.openapi import crew_document, ref
from windlass.api.crew_api.operations import (
    JSON,
    Call,
    Content,
    Operation,
    header,
    in_query,
    json_of,
    operation,
    operations_of,
)
from windlass.api.crew_api.schemas import (
    LARGEST_BATCH,
    EventsQuery,
    KickoffRequest,
    KickoffsQuery,
    KickoffsRequest,
    ResumeRequest,
    StopRequest,
    StreamQuery,
)
from windlass.api.crew_api.views import (
    Part,
    attempts_body,
    events_body,
    kickoffs_body,
    resume_body,
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
    invalid_signature,
    no_approver,
    no_such_crew,
    no_such_kickoff,
    no_such_task,
    not_ended,
    not_waiting,
    unauthorized,
)
from windlass.api.streaming_json import LargeAnswers, json_text
from windlass.kickoffs.files import listed
from windlass.kickoffs.ids import parse_id
from windlass.kickoffs.states import State
from windlass.rights import SCOPES_OF_KIND, WEBHOOK, Scope, limit_of, may_answer, may_see
from windlass.store.ending import OPEN, StopFilter
from windlass.store.kickoff_list import KickoffFilter
from windlass.store.tokens import PERSONAL

if TYPE_CHECKING:
    from uuid import UUID

    from starlette.requests import Request

    from windlass.access.authentication import TokenAuthenticator
    from windlass.access.callbacks import Callbacks
    from windlass.access.tickets import Tickets
    from windlass.api.cors import Headers
    from windlass.api.streaming_json import AnswerFile
    from windlass.deployments.crews import Crew, Crews
    from windlass.kickoffs.manifest import Manifest
    from windlass.kickoffs.waiting import Waiting
    from windlass.lifecycle.accept import Acceptor, Stops
    from windlass.lifecycle.approvals import Approvals
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
DELETED = "The kickoff is deleted for good, with its events, journal, files, attempts and task records."
BINARY, FILE_CONTENT = {"type": "string", "format": "binary"}, "# Tides\n"
RESUME_EXAMPLE = {"execution_id": EXAMPLE_ID, "task_id": "write_brief", "human_feedback": "", "is_approve": True}
WAIT = in_query(
    "wait",
    "Seconds to hold the answer, at most, until the kickoff ends or waits for a human.",
    type="number",
    minimum=0,
    maximum=60,
)
STREAM_EXAMPLE = (
    f'id: 1\ndata: {{"seq":1,"attempt":1,"type":"task_started","at":"{AT}","payload":{{"task_name":"plan"}}}}\n\n'
    f'event: end\ndata: {{"kickoff_id":"{EXAMPLE_ID}","status":"completed","state":"SUCCESS"}}\n\n'
)


def idempotency_key(description: str) -> dict[str, Any]:
    return header("Idempotency-Key", description, type="string", minLength=1, maxLength=255)


def inputs_example(inputs: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "properties": {name: {} for name in inputs}, "required": list(inputs)}
    return {"inputs": list(inputs), "schema": schema}


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
    approvals: Approvals
    deletions: Deletions
    large_answers: LargeAnswers
    stored_files: FileStore
    streams: EventStreams
    waits: Shares
    tickets: Tickets
    callbacks: Callbacks
    rates: CrewRates = field(default_factory=CrewRates)

    def routes(self) -> list[Route]:
        return [
            Route("/openapi.json", self.openapi, methods=["GET"]),
            Route("/docs", self.docs, methods=["GET"]),
            Route("/docs/{name}", assets, methods=["GET"]),
            Route("/resume/{task_id}", self.answer_by_callback, methods=["POST"]),
            *(self._route(path) for path in dict.fromkeys(one.path for one in OPERATIONS)),
        ]

    def _route(self, path: str) -> Route:
        """Returns the route of a path. It checks the token, and calls the method of the operation."""
        operations = {one.method: one for one in OPERATIONS if one.path == path}

        async def endpoint(request: Request) -> Response:
            asked = operations["GET" if request.method == "HEAD" else request.method]
            return await asked.handler(self, await self.authenticated(request, asked))

        return Route(path, endpoint, methods=[*operations])

    @operation("GET", "/", "Check that the crew is served", None, Content("text/plain", {"type": "string"}, "Healthy"))
    async def healthy(self, _: Call) -> Response:
        return PlainTextResponse("Healthy")

    @operation("GET", "/inputs", "Get the inputs of the crew", Scope.READ, json_of(InputsAnswer, inputs_example))
    async def inputs(self, call: Call) -> Response:
        manifest = call.crew.manifest
        warnings = {"warnings": list(manifest.warnings)} if manifest.warnings else {}
        return answer({"inputs": manifest.required_inputs, "schema": manifest.inputs_schema, **warnings})

    @operation(
        "POST",
        "/kickoff",
        "Start the crew",
        Scope.RUN,
        json_of(KickoffAnswer, {"kickoff_id": EXAMPLE_ID}),
        errors=(409, 413, 422),
        body=json_of(KickoffRequest, lambda inputs: {"inputs": inputs}),
        parameters=[idempotency_key("The same key within 24 h returns the same kickoff.")],
    )
    async def kickoff(self, call: Call) -> Response:
        body = await read_object(call.request, largest=self.largest_body, seconds=self.request_timeout)
        new = new_kickoff(body, key_in(call.request.headers), call.crew, _starter(call), self.rules)
        kickoff = await self.acceptor.accept(new)
        return Response(b'{"kickoff_id":"%s"}' % str(kickoff).encode(), media_type="application/json")

    @operation(
        "POST",
        "/kickoffs",
        "Start the crew many times",
        Scope.RUN,
        json_of(KickoffsAnswer, BATCH_ANSWER),
        errors=(413,),
        body=Content(
            JSON,
            {"anyOf": [ref("KickoffsRequest"), ref("KickoffsRequest/properties/kickoffs")]},
            lambda inputs: {"kickoffs": [{"inputs": inputs}, {"inputs": inputs, "meta": {"order": 7}}]},
        ),
        models=[KickoffsRequest],
        parameters=[
            idempotency_key("The same key within 24 h returns the same kickoffs, by their places in the list.")
        ],
    )
    async def kickoffs(self, call: Call) -> Response:
        batch = await read_list(
            call.request, MEMBER, most=LARGEST_BATCH, largest=self.largest_body, seconds=self.request_timeout
        )
        key = key_in(call.request.headers)
        answers = await accept_each(batch, key, call.crew, _starter(call), self.rules, self.acceptor)
        return await json_text([json.dumps({MEMBER: answers}, separators=(",", ":"))])

    @operation(
        "GET",
        "/status/{kickoff_id}",
        "Get the status of a kickoff",
        Scope.READ,
        json_of(StatusAnswer, examples=STATUS_EXAMPLES),
        parameters=[WAIT],
    )
    async def status(self, call: Call) -> Response:
        wait = _wait(call.request)
        kickoff = await self._of(call, wait)
        manifest = await self._manifest(kickoff, call.crew)
        waiting = await self._waiting(kickoff, call.token)
        profile = call.token.profile or call.crew.profile
        details = await self.statuses.reads.details(kickoff.id) if profile == "live" else None
        parts = status_body(kickoff, manifest.tasks, waiting, details)
        return await self._status_answer(kickoff, parts, profile)

    @operation(
        "GET",
        "/attempts/{kickoff_id}",
        "Get the attempts of a kickoff",
        Scope.READ,
        json_of(AttemptsAnswer, ATTEMPTS_EXAMPLE),
    )
    async def attempts(self, call: Call) -> Response:
        kickoff = await self._of(call)
        return answer(attempts_body(kickoff.id, await self.statuses.reads.attempts(kickoff.id), asker=call.token.asker))

    @operation(
        "GET",
        "/kickoffs",
        "List the kickoffs that the token may see",
        Scope.READ,
        json_of(KickoffListAnswer, KICKOFFS_EXAMPLE),
        query=KickoffsQuery,
    )
    async def list_kickoffs(self, call: Call) -> Response:
        query = query_of(KickoffsQuery, call.request)
        states = None if query.state is None else [state for state in State if state.state_on_the_wire == query.state]
        wanted = KickoffFilter(
            deployment=call.crew.deployment_id,
            states=states,
            owner=call.token.asker,
            user=query.user,
            before=query.cursor,
        )
        return answer(kickoffs_body(await self.statuses.reads.listed(wanted, limit=query.limit)))

    @operation(
        "GET",
        "/events/{kickoff_id}",
        "Get a page of the events of a kickoff, or all as a stream",
        Scope.READ,
        json_of(EventsAnswer, EVENTS_EXAMPLE),
        Content(STREAM, {"type": "string"}, STREAM_EXAMPLE),
        description=f"With `Accept: {STREAM}`, the answer is a stream of Server-Sent Events: the stored events, then "
        "each new one until the kickoff ends. The message `end` is the last one. The query is `after`, and `ticket` in "
        "place of the header Authorization.",
        query=EventsQuery,
        parameters=[
            header(
                "Last-Event-ID",
                "For a stream: only events with a larger `seq`. It overrides `after`.",
                type="integer",
                minimum=0,
            )
        ],
        responses={"204": {"description": "For a stream: the kickoff has ended, and has no further events."}},
        by_ticket=True,
    )
    async def events(self, call: Call) -> Response:
        if wants_stream(call.request):
            return await self._event_stream(call)
        kickoff = await self._of(call)
        query = query_of(EventsQuery, call.request)
        events = await self.statuses.events(kickoff.id, query.after, query.limit, asker=call.token.asker)
        return await json_text(events_body(kickoff, events, query.after))

    async def _event_stream(self, call: Call) -> Response:
        kickoff = await self._of(call)
        query, last = query_of(StreamQuery, call.request), last_event_id(call.request)

        async def is_valid() -> bool:
            now = await self.access.by_digest(call.token.digest)
            crew = await self.crews.get(call.crew.slug)
            return now is not None and now.allows(Scope.READ) and crew is not None and is_visible(crew, now)

        after = query.after if last is None else last
        pages = await self.streams.open(kickoff.id, call.crew.deployment_id, after, call.token.asker, is_valid)
        if last is not None and kickoff.state.ended:
            first = await anext(pages, None)
            if first is None or first.is_last:
                return Response(status_code=204)  # a browser does not connect again
            pages = with_first(first, pages)
        return stream_response(kickoff.id, pages)

    @operation(
        "POST",
        "/stream-tickets",
        "Get a ticket, with which a browser opens a stream",
        Scope.READ,
        json_of(TicketAnswer, {"ticket": "AAAAAGlo5hQ...", "expires_in": VALID_SECONDS}),
        description="`EventSource` can't send a header. It opens `/events/{kickoff_id}?ticket=...` with a ticket, "
        f"which has the rights of the request's token for this crew, for {VALID_SECONDS} seconds.",
    )
    async def stream_ticket(self, call: Call) -> Response:
        ticket = self.tickets.issue(call.token.digest, call.crew.deployment_id)
        return answer({"ticket": ticket, "expires_in": VALID_SECONDS})

    async def _by_ticket(self, request: Request, ticket: str) -> Call:
        """Returns the crew and the token for which the ticket was issued."""
        source = source_of_request(request.scope)
        self.access.failures.check(source)
        given = self.tickets.read(ticket)
        token = await self.access.by_digest(given.token) if given else None
        crew = await self._crew(request) if given and token else None
        is_of_crew = given is not None and crew is not None and given.deployment == crew.deployment_id
        if token is None or crew is None or not is_of_crew or not is_visible(crew, token):
            self.access.failures.count(source)
            raise unauthorized()
        if not token.allows(Scope.READ):
            raise _forbidden(Scope.READ, token)
        self.rates.take(crew.deployment_id, crew.rate_limit, token.id)
        return Call(request, crew, token)

    @operation(
        "GET",
        "/files/{kickoff_id}.zip",
        "Get all files of a kickoff as one zip",
        Scope.READ,
        Content("application/zip", BINARY, FILE_CONTENT),
    )
    async def files_as_zip(self, call: Call) -> Response:
        kickoff = await self._of(call)
        files = await self.stored_files.of(kickoff.id) if kickoff.file_count else []
        return zip_response(self.stored_files, kickoff.id, files, call.request)

    @operation(
        "GET",
        "/files/{kickoff_id}",
        "List the files that the run of a kickoff wrote",
        Scope.READ,
        json_of(FilesAnswer, {"kickoff_id": EXAMPLE_ID, "files": [FILE_EXAMPLE]}),
    )
    async def files(self, call: Call) -> Response:
        kickoff = await self._of(call)
        files = await self.stored_files.of(kickoff.id) if kickoff.file_count else []
        return answer({"kickoff_id": str(kickoff.id), "files": listed(files)})

    @operation(
        "GET",
        "/files/{kickoff_id}/{path:path}",
        "Get the content of one file",
        Scope.READ,
        Content("*/*", BINARY, FILE_CONTENT),
        parameters=[
            header("If-None-Match", "The ETag of a known content: the same content gets 304."),
            header("Range", "One range of bytes, such as `bytes=0-1023`."),
            header("If-Range", "The ETag for which the range holds; for another content the answer is the whole file."),
        ],
        responses={
            "206": {
                "description": "The requested range of the file",
                "content": {"*/*": {"schema": BINARY, "example": FILE_CONTENT}},
            },
            "304": {"description": "The file has the ETag that `If-None-Match` names.", "content": {}},
            "416": {"$ref": "#/components/responses/416"},
        },
    )
    async def file(self, call: Call) -> Response:
        kickoff = await self._of(call)
        file = await find_file(self.stored_files, kickoff, call.request.path_params["path"])
        return file_response(self.stored_files, kickoff.id, file, call.request)

    @operation(
        "POST",
        "/resume",
        "Answer the question of a kickoff",
        Scope.RUN,
        json_of(ResumeAnswer, {"status": "resumed", "message": "The kickoff goes on.", "kickoff_id": EXAMPLE_ID}),
        errors=(409, 413),
        body=json_of(ResumeRequest, RESUME_EXAMPLE),
        parameters=[idempotency_key("The same answer with the same key succeeds again. Without one it gets 409.")],
    )
    async def resume(self, call: Call) -> Response:
        body = await read_object(
            call.request, largest=self.largest_body, seconds=self.request_timeout, such_as=json.dumps(RESUME_EXAMPLE)
        )
        given = resume_request(body)
        kickoff = await self._find(parse_id(given.execution_id), call.crew, call.token)
        question = await self.approvals.store.question_of(kickoff.id, given.task_id)
        if question is None:
            manifest = await self._manifest(kickoff, call.crew)
            is_task = any(given.task_id in {task.task_id, task.key, task.name} for task in manifest.tasks)
            if not is_task and not await self.approvals.store.has_task(kickoff.id, given.task_id):
                raise no_such_task(given.task_id)
            raise not_waiting(kickoff.id, ended=kickoff.state.ended)
        token = call.token
        if not may_answer(question.approvers, user=token.user, role=token.role, kind=token.kind):
            raise no_approver()
        key = answer_key(body, key_in(call.request.headers), token)
        webhooks = self.rules.endpoints.given(kickoff.deployment_id, body)
        decision = decided(question, given.is_approve, given.human_feedback, "is_approve")
        answered = await self.approvals.answer(question, decision, _actor(call), key, webhooks)
        return answer(resume_body(answered))

    async def answer_by_callback(self, request: Request) -> Response:
        """Takes the answer of the receiver of a webhook. The signature of its `callback_url` replaces a token."""
        source, task = source_of_request(request.scope), parse_id(request.path_params["task_id"])
        self.access.failures.check(source)
        if task is None or not self.callbacks.is_valid(task, request.query_params.get("signature", "")):
            self.access.failures.count(source)
            raise invalid_signature()
        crew, question = await self._crew(request), await self.approvals.store.question(task)
        if question is None or question.deployment_id != crew.deployment_id:
            raise no_such_task(str(task))
        self.rates.take(crew.deployment_id, crew.rate_limit, task)
        if not may_answer(question.approvers, user=None, role=None, kind=WEBHOOK):
            raise no_approver()
        body = await read_object(
            request, largest=self.largest_body, seconds=self.request_timeout, such_as='{"feedback": "approved"}'
        )
        given = callback_answer(question, body, address_of(request.scope))
        return answer(resume_body(await self.approvals.answer(question, *given)))

    @operation(
        "POST",
        "/stop/{kickoff_id}",
        "Stop a kickoff",
        Scope.RUN,
        json_of(
            StopAnswer,
            {
                "kickoff_id": EXAMPLE_ID,
                "status": "running",
                "state": "STARTED",
                "message": "It is being stopped: its processes are gone within 5 seconds.",
            },
        ),
    )
    async def stop(self, call: Call) -> Response:
        before = await self._of(call)
        state = before.state if before.state.ended else await self.stops.stop(before.id, _actor(call))
        if state is None:
            raise no_such_kickoff()
        return answer(stop_body(before, state, self.stop_grace))

    @operation(
        "POST",
        "/stop",
        "Stop all kickoffs that match",
        Scope.RUN,
        json_of(
            StopAllAnswer,
            {
                "stopped": 42,
                "message": "42 kickoffs are stopped. The processes of those that ran are gone within 5 seconds.",
            },
        ),
        errors=(413,),
        body=json_of(StopRequest, {"state": "PENDING", "user": "ann", "before": AT}),
    )
    async def stop_all(self, call: Call) -> Response:
        body = await read_object(call.request, largest=self.largest_body, seconds=self.request_timeout)
        members = members_of(StopRequest, body)
        states = [State(members.state)] if members.state else OPEN
        kickoffs = StopFilter(call.crew.deployment_id, states, call.token.asker, members.user, members.before)
        stopped = await self.stops.stop_all(kickoffs, _actor(call))
        return answer(stop_all_body(stopped, self.stop_grace))

    @operation(
        "DELETE",
        "/kickoffs/{kickoff_id}",
        "Delete a kickoff permanently, with all its data",
        Scope.ADMIN,
        json_of(DeleteAnswer, {"kickoff_id": EXAMPLE_ID, "message": DELETED}),
        errors=(409,),
        parameters=[
            in_query(
                "stop",
                "Stop the kickoff first if it has not ended. Otherwise an open kickoff gets 409.",
                type="boolean",
                default=False,
            )
        ],
    )
    async def delete(self, call: Call) -> Response:
        stop, by = _flag(call.request, "stop"), _actor(call)
        kickoff = await self._of(call)
        if stop and not kickoff.state.ended:
            await self.stops.stop(kickoff.id, by)
            kickoff = await self._find(kickoff.id, call.crew, call.token, self.stop_grace + MARGIN)
        if not kickoff.state.ended:
            raise not_ended(kickoff.id, stopping=stop)
        if not await self.deletions.delete([kickoff.id], by):
            raise no_such_kickoff()
        return answer({"kickoff_id": str(kickoff.id), "message": DELETED})

    @operation(
        "GET",
        "/{kickoff_id}/status",
        "Get the status of a kickoff, at the path of older clients",
        Scope.READ,
        json_of(StatusAnswer, examples=STATUS_EXAMPLES),
        parameters=[WAIT],
    )
    async def status_of_old_clients(self, call: Call) -> Response:
        return await self.status(call)

    async def openapi(self, request: Request) -> Response:
        crew = await self._crew(request)
        return answer(crew_document(crew.slug, crew.manifest, request.app.base_url(request), OPERATIONS))

    async def docs(self, request: Request) -> Response:
        crew = await self._crew(request)
        return docs_page(f"API of the crew {crew.slug}")

    async def authenticated(self, request: Request, operation: Operation) -> Call:
        """Returns the crew and the token. Raises Problem 401 first, so that nothing is revealed without a valid token,
        then 404 for an unknown crew, then 403 for a token without the scope.
        """
        if operation.by_ticket and wants_stream(request) and "ticket" in request.query_params:
            return await self._by_ticket(request, request.query_params["ticket"])
        source, scope = source_of_request(request.scope), operation.scope
        token = await self.access.token(_only(request, "authorization"), source)
        if token is None:
            raise unauthorized()
        crew = await self._crew(request)
        if token.deployment_id not in {None, crew.deployment_id}:
            self.access.failures.count(source)
            raise unauthorized()
        if not is_visible(crew, token):
            raise no_such_crew(crew.slug)
        if scope and not token.allows(scope):
            raise _forbidden(scope, token)
        self.rates.take(crew.deployment_id, crew.rate_limit, token.id)
        return Call(request, crew, token)

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

    async def _of(self, call: Call, wait: float = 0) -> KickoffStatus:
        """Returns the kickoff that the path names. Raises Problem 404."""
        kickoff = parse_id(call.request.path_params["kickoff_id"])
        return await self._find(kickoff, call.crew, call.token, wait, or_asking=True)

    async def _find(
        self, kickoff: UUID | None, crew: Crew, token: TokenRow, wait: float = 0, *, or_asking: bool = False
    ) -> KickoffStatus:
        """Waits for `wait` seconds at most until the kickoff has ended. With `or_asking`, waits only until it waits for
        a person.
        """
        found = None
        if kickoff and wait:
            with self.waits.taken(crew.deployment_id):
                found = await self.statuses.get_ended(
                    kickoff, wait, partial(_may_see, token, crew), or_asking=or_asking
                )
        elif kickoff:
            found = await self.statuses.get(kickoff)
        if found is None or not _may_see(token, crew, found):
            raise no_such_kickoff()
        return found


OPERATIONS = operations_of(CrewApi)


def answer(value: Any) -> Response:
    return Response(json.dumps(value, separators=(",", ":")), media_type="application/json")


def _actor(call: Call) -> Actor:
    return call.token.actor(address_of(call.request.scope))


def _starter(call: Call) -> Starter:
    return Starter(call.token.asker, _actor(call))


def is_visible(crew: Crew, token: TokenRow) -> bool:
    """Returns whether the person of a personal token sees the crew. Other tokens are not limited to members."""
    return token.kind != PERSONAL or crew.is_visible(limit_of(token.user_id, token.role))


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
