"""Users and their personal tokens: over the control API of the chosen server, or in the database of this machine."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from windlass.cli.servers import chosen_server, control_of, is_local
from windlass.errors import WindlassError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from datetime import timedelta

    from windlass.administration.opening import Administration

MOST_USERS = 100_000
MISSING = {"profile": None, "revoked_at": None, "disabled_at": None, "shown": False, "sign_in_until": None}
"""Members of a token that the control API does not return."""


class People(Protocol):
    """A user is a dict with the members `name`, `role`, `disabled` and `created_at`."""

    def users(self) -> list[dict[str, Any]]: ...

    def add(self, name: str, role: str | None) -> None: ...

    def change(self, name: str, changes: Mapping[str, Any]) -> None:
        """Sets the members `role` and `disabled` that `changes` has."""

    def create_token(self, user: str | None, name: str, expires_in: timedelta | None) -> dict[str, Any]:
        """Returns the token, its user and the end of its validity. `user` None is the person who runs the command."""

    def tokens(self, *, revoked_too: bool) -> list[dict[str, Any]]:
        """Returns tokens of all kinds that the person may see."""

    def revoke_token(self, name: str) -> str:
        """Revokes the token with this id or these last four characters. Returns its id."""


def people_of(profile: str | None) -> People:
    return OnThisMachine() if is_local(profile) else OverControlApi(profile)


class OnThisMachine:
    """Works also while no server runs, so that the first owner can be made."""

    def users(self) -> list[dict[str, Any]]:
        rows = self._administer(lambda opened: opened.tokens.users(limit=MOST_USERS))
        return [
            {
                "name": row.name,
                "role": row.role,
                "disabled": row.disabled_at is not None,
                "created_at": row.created_at,
            }
            for row in rows
        ]

    def add(self, name: str, role: str | None) -> None:
        from windlass.rights import Role

        self._administer(lambda opened: opened.tokens.add_user(name, Role(role) if role else None))

    def change(self, name: str, changes: Mapping[str, Any]) -> None:
        from windlass.rights import Role

        async def change(opened: Administration) -> None:
            if "role" in changes:
                await opened.tokens.set_role(name, Role(changes["role"]) if changes["role"] else None)
            if "disabled" in changes:
                tokens = opened.tokens
                await (tokens.disable_user if changes["disabled"] else tokens.enable_user)(name)

        self._administer(change)

    def create_token(self, user: str | None, name: str, expires_in: timedelta | None) -> dict[str, Any]:
        from windlass.access.tokens import OWNER

        expires_at = datetime.now(UTC) + expires_in if expires_in else None

        async def made(opened: Administration) -> dict[str, Any]:
            if user is None:
                await opened.tokens.command_line_token()  # makes the user an owner
            row, token = await opened.tokens.create_personal(user or OWNER, name, expires_at=expires_at)
            return {"token": token.reveal(), "user": user or OWNER, "expires_at": row.expires_at}

        found: dict[str, Any] = self._administer(made)
        return found

    def tokens(self, *, revoked_too: bool) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._administer(lambda opened: opened.tokens.all(revoked_too=revoked_too))
        return found

    def revoke_token(self, name: str) -> str:
        return str(self._administer(lambda opened: opened.tokens.revoke(name)).id)

    @staticmethod
    def _administer(work: Callable[[Administration], Awaitable[Any]]) -> Any:
        from windlass.cli.this_server import administer
        from windlass.config import load

        return administer(load(), work)


class OverControlApi:
    def __init__(self, profile: str | None) -> None:
        self._server = chosen_server(profile)

    def users(self) -> list[dict[str, Any]]:
        with control_of(self._server) as control:
            found, _ = control.pages("users", limit=MOST_USERS)
        return found

    def add(self, name: str, role: str | None) -> None:
        self._send("POST", "users", body={"name": name, "role": role})

    def change(self, name: str, changes: Mapping[str, Any]) -> None:
        self._send("PATCH", "users", name, body=changes)

    def create_token(self, user: str | None, name: str, expires_in: timedelta | None) -> dict[str, Any]:
        days = expires_in.total_seconds() / 86_400 if expires_in else None
        answer = self._send("POST", "tokens", body={"name": name, "expires_in_days": days, "user": user})
        return {member: answer[member] for member in ("token", "user", "expires_at")}

    def tokens(self, *, revoked_too: bool) -> list[dict[str, Any]]:
        if revoked_too:
            raise WindlassError("Another server lists valid tokens only.", "Leave --all out.")
        with control_of(self._server) as control:
            found, _ = control.pages("tokens", limit=MOST_USERS)
        times = ("last_used_at", "expires_at", "sign_in_until")
        return [{**MISSING, **row, **{name: _time(row.get(name)) for name in times}} for row in found]

    def revoke_token(self, name: str) -> str:
        found = [row["id"] for row in self.tokens(revoked_too=False) if name in {row["id"], row["last_four"]}]
        if len(found) != 1:
            what = "More than one token ends in" if found else "There is no token that you may revoke with the name"
            raise WindlassError(f"{what} {name!r}.", "Use an id of: windlass tokens list")
        with control_of(self._server) as control:
            control.send("DELETE", "tokens", found[0])
        return str(found[0])

    def _send(self, method: str, *path: str, body: Any) -> dict[str, Any]:
        with control_of(self._server) as control:
            return control.send(method, *path, body=body)


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
