"""What the pages of the dashboard have in common: the APIs that they call, sessions, templates and addresses."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from windlass.dashboard.cookies import SignedNotices
from windlass.dashboard.templating import Templates

if TYPE_CHECKING:
    from uuid import UUID

    from windlass.access.sessions import Sessions
    from windlass.api.control_api.dependencies import ControlApi
    from windlass.api.crew_api.routes import CrewApi
    from windlass.dashboard.openid_client import OpenIdClient

PATH = "/ui"
KNOWN_FOR = 2.0
MOST_COUNTED = 1000
"""Users whose open questions are kept as a number."""


@dataclass
class Dashboard:
    """The dashboard of a server. `here` is the address of the server without a public URL, for commands to paste."""

    control: ControlApi
    crew_api: CrewApi
    sessions: Sessions
    notice_key: bytes = field(repr=False)
    openid: OpenIdClient | None = None
    here: str = "http://127.0.0.1:8000"
    _questions: dict[UUID | None, tuple[float, int]] = field(default_factory=dict)
    """When the open questions that a user sees were counted, and their number. None: those of all crews."""

    @cached_property
    def templates(self) -> Templates:
        return Templates(self.url)

    @cached_property
    def notices(self) -> SignedNotices:
        return SignedNotices(self.notice_key)

    async def questions(self, sees: UUID | None) -> int:
        """Returns the number of questions that wait for an answer and that the user sees, None for all.

        They are counted at most every KNOWN_FOR seconds.
        """
        counted_at, count = self._questions.get(sees, (-inf, 0))
        now = time.monotonic()
        if now - counted_at > KNOWN_FOR:
            count = await self.control.approvals.store.count_open_questions(sees=sees)
            if len(self._questions) >= MOST_COUNTED:
                self._questions.clear()
            self._questions[sees] = now, count
        return count

    def recount_questions(self) -> None:
        self._questions.clear()

    @property
    def server_url(self) -> str:
        """Returns the address of the server, for addresses and commands that a person copies."""
        return self.control.public_url or self.here

    @property
    def origin(self) -> str | None:
        public = urlsplit(self.control.public_url or "")
        return f"{public.scheme}://{public.netloc}" if public.netloc else None

    @property
    def is_secure(self) -> bool:
        """Returns whether browsers reach the server with TLS, so that cookies need it."""
        return (self.control.public_url or "").startswith("https://")

    @property
    def cookie_path(self) -> str:
        return self.url(PATH)

    def url(self, path: str) -> str:
        """Returns the path in the browser: a proxy may serve the server below a path, which the public URL names."""
        return urlsplit(self.control.public_url or "").path.rstrip("/") + path
