"""Users and their personal tokens: over the control API of the chosen server, or in the database of this machine."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from windlass.cli.servers import chosen_server, control_of, is_local

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import timedelta

    from windlass.wiring.infrastructure import Administration

MOST_USERS = 100_000


class People(Protocol):
    """A user is a dict with the members `name`, `role`, `disabled` and `created_at`."""

    def users(self) -> list[dict[str, Any]]: ...

    def add(self, name: str, role: str | None) -> None: ...

    def set_role(self, name: str, role: str | None) -> None: ...

    def set_disabled(self, name: str, *, disabled: bool) -> None: ...

    def create_token(self, user: str | None, name: str, expires_in: timedelta | None) -> dict[str, Any]:
        """Returns the token, its user and the end of its validity. `user` None is the person who runs the command."""


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
        from windlass.kickoffs.roles import Role

        self._administer(lambda opened: opened.tokens.add_user(name, Role(role) if role else None))

    def set_role(self, name: str, role: str | None) -> None:
        from windlass.kickoffs.roles import Role

        self._administer(lambda opened: opened.tokens.set_role(name, Role(role) if role else None))

    def set_disabled(self, name: str, *, disabled: bool) -> None:
        def change(opened: Administration) -> Awaitable[None]:
            return opened.tokens.disable_user(name) if disabled else opened.tokens.enable_user(name)

        self._administer(change)

    def create_token(self, user: str | None, name: str, expires_in: timedelta | None) -> dict[str, Any]:
        from windlass.access.tokens import OWNER

        expires_at = datetime.now(UTC) + expires_in if expires_in else None

        async def made(opened: Administration) -> dict[str, Any]:
            if user is None:
                await opened.tokens.command_line_token()  # makes the user an owner
            _, token = await opened.tokens.create_personal(user or OWNER, name, expires_at=expires_at)
            return {"token": token.reveal(), "user": user or OWNER, "expires_at": expires_at}

        found: dict[str, Any] = self._administer(made)
        return found

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

    def set_role(self, name: str, role: str | None) -> None:
        self._send("PATCH", "users", name, body={"role": role})

    def set_disabled(self, name: str, *, disabled: bool) -> None:
        self._send("PATCH", "users", name, body={"disabled": disabled})

    def create_token(self, user: str | None, name: str, expires_in: timedelta | None) -> dict[str, Any]:
        days = expires_in.total_seconds() / 86_400 if expires_in else None
        answer = self._send("POST", "tokens", body={"name": name, "expires_in_days": days, "user": user})
        return {member: answer[member] for member in ("token", "user", "expires_at")}

    def _send(self, method: str, *path: str, body: Any) -> dict[str, Any]:
        with control_of(self._server) as control:
            return control.send(method, *path, body=body)
