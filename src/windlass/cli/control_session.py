"""The control API of a server for the commands, with their errors and exit codes."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from windlass.cli.crew_session import cli_errors
from windlass.client import Forbidden, Unauthorized
from windlass.client.control import Control

if TYPE_CHECKING:
    from windlass.cli.servers import Server
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
                return super().perform(exchange)
            except Unauthorized as error:
                error.hint = self.server.login_again
                raise
            except Forbidden as error:
                error.hint = error.hint or "An owner of the server can change your role: windlass users role NAME ROLE"
                raise
