"""What the endpoints of the control API use, and how they get it."""

# See docs/decisions/api.md#a-route-of-the-control-api-names-its-role

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, Request

from windlass.api.errors import bad_request
from windlass.kickoffs.ids import parse_id

if TYPE_CHECKING:
    from uuid import UUID

    from windlass.access.authentication import TokenAuthenticator
    from windlass.access.tokens import Tokens
    from windlass.api.control_api.upload_limit import Uploads
    from windlass.deployments.credentials import Credentials
    from windlass.deployments.deploys import Deploys
    from windlass.deployments.identity import Identity
    from windlass.deployments.management import Management
    from windlass.deployments.members import Members
    from windlass.deployments.webhooks import DeploymentWebhooks
    from windlass.lifecycle.approvals import Approvals
    from windlass.lifecycle.deletion import Deletions
    from windlass.store.audit import AuditStore
    from windlass.store.overview import OverviewStore
    from windlass.store.statistics import StatisticsStore


@dataclass(frozen=True, slots=True)
class ControlApi:
    """What the endpoints use. `largest_body` is in bytes, `request_timeout` in seconds.

    `public_url` is the address with which base URLs begin, None if the server does not know it.
    """

    access: TokenAuthenticator
    tokens: Tokens
    management: Management
    members: Members
    overview: OverviewStore
    audit: AuditStore
    deploys: Deploys
    uploads: Uploads
    identity: Identity
    credentials: Credentials
    deletions: Deletions
    approvals: Approvals
    statistics: StatisticsStore
    webhooks: DeploymentWebhooks
    largest_body: int
    request_timeout: float
    public_url: str | None

    def base_url(self, slug: str) -> str:
        return f"{self.public_url or ''}/crews/{slug}"


async def _control(request: Request) -> Any:
    return request.app.state.control


if TYPE_CHECKING:
    Control = ControlApi
else:
    Control = Annotated[Any, Depends(_control)]


def id_cursor(given: str | None) -> UUID | None:
    """Returns the id that a cursor is. Raises Problem 400 for another text."""
    found = parse_id(given) if given else None
    if given and found is None:
        raise bad_request("The cursor is not valid. Send the `next_cursor` of the page before, or none.")
    return found
