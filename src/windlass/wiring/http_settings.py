"""What the settings decide of the HTTP server: host names, sign-in with OpenID Connect, and the warning without TLS."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from windlass import log
from windlass.access.openid import OpenId, RoleRules
from windlass.api.application import Hosts
from windlass.loopback import is_loopback
from windlass.secrets.secret import Secret

if TYPE_CHECKING:
    from windlass.config import Settings
    from windlass.wiring.infrastructure import Notify

logger = log.logger(__name__)


def openid_of(settings: Settings) -> OpenId | None:
    """Returns the provider with which people sign in to the dashboard, None without one. Raises SettingsError."""
    roles = RoleRules.parse(settings.sign_in_roles, settings.sign_in_default_role)
    issuer, client_id, secret = (
        settings.sign_in_issuer,
        settings.sign_in_client_id,
        settings.sign_in_client_secret,
    )
    if issuer is None or client_id is None or secret is None:
        return None
    given = Secret(secret.get_secret_value())
    return OpenId(issuer, client_id, given, settings.sign_in_claim, settings.sign_in_groups_claim, roles)


def hosts_of(settings: Settings) -> Hosts:
    """Returns the host names that the server accepts.

    A server that only this machine reaches accepts known names only. A server that other machines reach also accepts
    names without a dot, which are the names of services in a cluster.
    """
    domain, public = settings.crew_domain, urlsplit(settings.public_url or "").hostname
    issuer = urlsplit(settings.oidc_issuer or "").hostname
    known = [settings.host, public, issuer, domain, f"*.{domain}" if domain else None, socket.gethostname()]
    return Hosts([*settings.allowed_hosts, *known], plain=not is_loopback(settings.host))


def warn_without_tls(settings: Settings, notify: Notify) -> None:
    """Warns when other machines reach the server and no proxy with TLS is configured.

    A server speaks plain HTTP, so tokens and inputs cross the network unencrypted without such a proxy.
    """
    if is_loopback(settings.host) or (settings.public_url or "").startswith("https://"):
        return
    logger.event("server.without_tls", host=settings.host)
    notify(
        f"warning: other machines reach {settings.host} without TLS, so tokens and inputs cross the network "
        "unencrypted. Put a proxy with TLS in front of the server, and set WINDLASS_PUBLIC_URL=https://... "
        "(docs/concepts/security.md)"
    )
