"""The control API of a server for the commands, with their errors and exit codes."""

# See docs/decisions/commands.md#commands-use-the-control-api

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from windlass.cli.crew_session import RequestRefused, cli_errors
from windlass.client import NotACrew, Unauthorized
from windlass.client.control import Control

if TYPE_CHECKING:
    from windlass.cli.profiles import Server
    from windlass.client.protocol import Exchange

Parsed = TypeVar("Parsed")


class ControlSession(Control):
    """A client of the control API that raises the errors of commands, with what to do about a refused token."""

    def __init__(self, server: Server) -> None:
        super().__init__(server.url, server.token.reveal())
        self.server = server

    def perform(self, exchange: Exchange[Parsed]) -> Parsed:
        with cli_errors():
            try:
                answer: Any = super().perform(exchange)
            except Unauthorized as error:
                error.hint = self.server.login_again
                raise
        checked: Parsed = _checked(answer)
        return checked


class _Facts(dict[str, Any]):
    """An object of an answer. A missing member is an error of the server, not of this program."""

    def __missing__(self, name: str) -> Any:
        cause = NotACrew(200, f"The server's answer has no `{name}`.", "Check the address, and the server's version.")
        raise RequestRefused(cause, cause.hint)


def _checked(value: Any) -> Any:
    if isinstance(value, dict):
        return _Facts({name: _checked(one) for name, one in value.items()})
    return [_checked(one) for one in value] if isinstance(value, list) else value
