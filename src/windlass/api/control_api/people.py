"""Endpoints of users, tokens and the audit log."""

import csv
import io
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Path, Request
from fastapi import Query as InQuery
from pydantic import AfterValidator, BaseModel, Field, StringConstraints
from starlette.responses import Response, StreamingResponse

from windlass.access.tokens import NoSuchToken
from windlass.api.control_api.answers import LARGEST_PAGE, Body, MeAnswer, OwnToken, Page, Query, Text
from windlass.api.control_api.callers import ControlRoute, Owner, Viewer
from windlass.api.control_api.dependencies import Control, id_cursor
from windlass.api.crew_api.schemas import Time
from windlass.api.errors import Problem
from windlass.lifecycle.deletion import KickoffsStillOpen
from windlass.rights import Role
from windlass.store.audit import Actor, AuditEntry, AuditFilter, AuditStore
from windlass.store.tokens import UserRow

router = APIRouter(route_class=ControlRoute, tags=["people"])
UserName = Annotated[Text, Path(description="The name of the user.")]
NewName = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=100, pattern=r"^\S(.*\S)?$")]
COLUMNS = ("id", "at", "user", "token_id", "action", "target", "details", "address")
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Beginnings of a cell that a spreadsheet would run as a formula."""


class UserItem(BaseModel):
    name: str
    role: Role | None = Field(description="Null: the user has no access to the control API.")
    disabled: bool = Field(description="Whether all tokens of the user are refused.")
    created_at: datetime


def _printable(name: str) -> str:
    if not name.isprintable():
        raise ValueError("it has characters that can't be printed")
    return name


class NewUser(Body):
    name: Annotated[NewName, AfterValidator(_printable)]
    role: Role | None = Field(None, strict=False, description="Null: no access to the control API.")


class UserPatch(Body):
    role: Role | None = Field(None, strict=False, description="Null takes the access to the control API.")
    disabled: bool | None = None


class RemovedUser(BaseModel):
    name: str
    message: str


class TokenItem(BaseModel):
    id: UUID
    kind: Literal["organization", "user", "personal"]
    name: str | None = Field(description="The name of a personal token.")
    last_four: str
    user: str | None
    deployment: str | None = Field(description="The crew that it opens. Null: every crew.")
    scopes: list[str] | None = Field(description="Null: all scopes of its kind, or those of the user's role.")
    profile: Literal["documented", "live"] | None = Field(description="Null: that of the crew.")
    shown: bool = Field(description="Whether it is one of the two tokens that a crew shows.")
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    disabled_at: datetime | None = Field(description="Since when its user is disabled.")
    sign_in_until: datetime | None = Field(
        description="After this time it is refused until its user signs in with OpenID Connect. Null: no such limit."
    )
    last_used_at: datetime | None


class TokensQuery(Query):
    revoked: bool = Field(False, description="Also tokens that are revoked or have expired.")


class NewToken(Body):
    name: NewName = Field(description="A name by which its user recognises it.")
    expires_in_days: float | None = Field(
        None,
        gt=0,
        le=3650,
        description="Null: it does not expire, or after WINDLASS_SIGN_IN_TOKEN_DAYS if its user signs in with OpenID "
        "Connect.",
    )
    user: Text | None = Field(None, description="For owners: the user that it is for. Null: the caller.")


class CreatedToken(BaseModel):
    """A new personal token. It is not shown again."""

    id: UUID
    token: str
    name: str
    user: str
    expires_at: datetime | None


class AuditItem(BaseModel):
    id: UUID
    at: datetime
    user: str
    token_id: UUID | None
    action: str
    target: str
    details: dict[str, Any]
    address: str | None = Field(description="The client's address. Null: a command on the server's machine.")


class AuditQuery(Query):
    user: Text | None = Field(None, description="Only changes by this user.")
    action: Text | None = Field(None, description="Only this action, or those below it: `variable` or `variable.set`.")
    target: Text | None = Field(None, description="Only changes of this deployment, user or token.")
    since: Time | None = Field(None, description="RFC 3339. Only changes at or after this time.")
    until: Time | None = Field(None, description="RFC 3339. Only changes before this time.")


@router.get("/me")
async def me(caller: Viewer) -> MeAnswer:
    """Returns the person and the token of this request."""
    token = caller.token
    own = OwnToken(id=token.id, name=token.name, expires_at=token.expires_at, sign_in_until=token.sign_in_until)
    return MeAnswer(user=caller.name, role=caller.role, token=own)


@router.get("/users")
async def list_users(_: Owner, control: Control, query: Annotated[Query, InQuery()]) -> Page[UserItem]:
    """Lists users in the order of their names."""
    rows = await control.tokens.users(after=query.cursor, limit=query.limit)
    return Page(items=[_user(row) for row in rows], next_cursor=rows[-1].name if len(rows) == query.limit else None)


@router.post("/users", status_code=201)
async def add_user(caller: Owner, control: Control, body: NewUser) -> UserItem:
    """Adds a user. 409 if the name is taken."""
    await control.tokens.add_user(body.name, body.role, by=caller.actor)
    return _user(await control.tokens.user(body.name))


@router.patch("/users/{name}")
async def change_user(caller: Owner, control: Control, name: UserName, body: UserPatch) -> UserItem:
    """Changes the role of a user, disables or enables a user, on all servers within a second.

    409 for the last owner: one owner must remain.
    """
    await control.tokens.user(name)
    if "role" in body.model_fields_set:
        await control.tokens.set_role(name, body.role, by=caller.actor)
    if body.disabled is not None:
        change = control.tokens.disable_user if body.disabled else control.tokens.enable_user
        await change(name, by=caller.actor)
    return _user(await control.tokens.user(name))


@router.delete("/users/{name}", status_code=202)
async def remove_user(
    caller: Owner,
    control: Control,
    name: UserName,
    stop: Annotated[bool, InQuery(description="Stop the user's kickoffs that have not ended.")] = False,
) -> RemovedUser:
    """Removes a user with all tokens and kickoffs, for good.

    The tokens are refused within a second. The rest is deleted in the background. 409 for the last owner, and for a
    user with kickoffs that have not ended.
    """
    await end_user(control, name, caller.actor, stop=stop)
    return RemovedUser(name=name, message="The user is disabled. The user's kickoffs and tokens are being deleted.")


@router.get("/tokens")
async def list_tokens(caller: Viewer, control: Control, query: Annotated[TokensQuery, InQuery()]) -> Page[TokenItem]:
    """Lists valid tokens in the order of their creation: all of them for an owner, else those of the caller."""
    user = None if caller.role is Role.OWNER else caller.token.user_id
    rows = await control.tokens.all(
        revoked_too=query.revoked, user=user, after=id_cursor(query.cursor), limit=query.limit
    )
    return Page(
        items=[token_item(row) for row in rows], next_cursor=str(rows[-1]["id"]) if len(rows) == query.limit else None
    )


@router.post("/tokens", status_code=201)
async def create_token(caller: Viewer, control: Control, body: NewToken) -> CreatedToken:
    """Creates a personal token: of the caller or, for an owner, of any user. The token is not shown again."""
    return await make_personal_token(control, body, caller.role, caller.actor)


@router.delete("/tokens/{token_id}", status_code=204)
async def revoke_token(caller: Viewer, control: Control, token_id: str) -> None:
    """Revokes a token: one of the caller or, for an owner, any token. Every server refuses it within a second."""
    await end_token(control, token_id, caller.role, caller.actor)


@router.get(
    "/audit",
    response_model=Page[AuditItem],
    responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}}},
)
async def list_changes(
    _: Owner, control: Control, request: Request, query: Annotated[AuditQuery, InQuery()]
) -> Page[AuditItem] | Response:
    """Lists the changes that people made, newest first.

    With `Accept: text/csv`, the answer is a CSV file: without `limit`, it has all changes that match.
    """
    wanted = AuditFilter(query.user, query.action, query.target, query.since, query.until, id_cursor(query.cursor))
    if "text/csv" in request.headers.get("accept", ""):
        headers = {"Content-Disposition": 'attachment; filename="audit.csv"'}
        most = query.limit if "limit" in query.model_fields_set else None
        return StreamingResponse(audit_csv(control.audit, wanted, most), media_type="text/csv", headers=headers)
    rows = await control.audit.listed(wanted, limit=query.limit)
    items = [AuditItem.model_validate(row, from_attributes=True) for row in rows]
    return Page(items=items, next_cursor=str(rows[-1].id) if len(rows) == query.limit else None)


def id_of(text: str) -> UUID:
    """Returns the id in a path. Raises NoSuchToken for another text: the last four characters may fit two tokens."""
    try:
        return UUID(text)
    except ValueError:
        raise NoSuchToken("There is no such token, or it is revoked already.", "GET /tokens lists them.") from None


async def end_user(control: Control, name: str, by: Actor, *, stop: bool) -> None:
    """Removes a user. Raises NoSuchUser, LastOwner, and KickoffsStillOpen without `stop`."""
    user = await control.tokens.user(name)
    if not stop and (count := await control.deletions.store.open_kickoffs(user.id)):
        raise KickoffsStillOpen(f"{count} kickoffs of the user have not ended.", "Send the request with ?stop=true.")
    await control.tokens.remove_user(name, by=by)


async def make_personal_token(control: Control, body: NewToken, role: Role, by: Actor) -> CreatedToken:
    """Creates a personal token. `role` is that of `by`. Raises Problem 403, NoSuchUser, UserCanNot, TooManyTokens."""
    user = by.user if body.user is None else body.user
    if user != by.user and role is not Role.OWNER:
        raise Problem(403, "Only an owner creates tokens of other users.", {"required_role": str(Role.OWNER)})
    expires_at = datetime.now(UTC) + timedelta(days=body.expires_in_days) if body.expires_in_days else None
    row, token = await control.tokens.create_personal(user, body.name, expires_at=expires_at, by=by)
    return CreatedToken(id=row.id, token=token.reveal(), name=body.name, user=user, expires_at=row.expires_at)


async def end_token(control: Control, token_id: str, role: Role, by: Actor) -> None:
    """Revokes a token. `role` is that of `by`. Raises NoSuchToken, also for a token that `by` may not revoke."""
    token = id_of(token_id)
    if role is not Role.OWNER:
        rows = await control.tokens.all(user=by.user_id) if by.user_id else []
        if not any(row["id"] == token for row in rows):
            raise NoSuchToken("There is no such token of yours, or it is revoked already.", "GET /tokens lists them.")
    await control.tokens.revoke(str(token), by=by)


def token_item(row: dict[str, Any]) -> TokenItem:
    return TokenItem.model_validate({name: row[name] for name in TokenItem.model_fields})


def _user(row: UserRow) -> UserItem:
    return UserItem(name=row.name, role=row.role, disabled=row.disabled_at is not None, created_at=row.created_at)


async def audit_csv(audit: AuditStore, wanted: AuditFilter, most: int | None = None) -> AsyncIterator[str]:
    """Yields the entries that match, newest first, as parts of a CSV file: `most` of them, or all."""
    yield _lines([COLUMNS])
    while rows := await audit.listed(wanted, limit=most or LARGEST_PAGE):
        yield _lines([_cells(row) for row in rows])
        if most:
            return
        wanted = replace(wanted, before=rows[-1].id)


def _cells(row: AuditEntry) -> tuple[str, ...]:
    values = AuditItem.model_validate(row, from_attributes=True).model_dump(mode="json")
    return tuple(_cell(values[name]) for name in COLUMNS)


def _cell(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else "" if value is None else str(value)
    return f"'{text}" if text.startswith(FORMULA) else text


def _lines(rows: list[tuple[str, ...]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()
