"""Addresses of git repositories: which are fetched, and to which addresses of the network they lead."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

from windlass.errors import ProjectError
from windlass.ip_addresses import is_public

LONGEST = 2000
PORTS = {"https": 443, "ssh": 22, "http": 80, "git": 9418, "file": 0}
PUBLIC_SCHEMES = ("https", "ssh")
HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?|[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*")
USER = re.compile(r"[A-Za-z0-9_][\w.-]*")
SCP = re.compile(r"(?P<user>[A-Za-z0-9_][\w.-]*)@(?P<host>[A-Za-z0-9][\w.-]*):(?P<path>[^:].*)")
FORBIDDEN = re.compile(r"[\s\\?#\x00-\x20\x7f-\x9f]")
"""Characters that programs read differently."""
SETTING = "WINDLASS_GIT_ALLOW_PRIVATE"


@dataclass(frozen=True, slots=True)
class Address:
    """`url` is composed again of the checked parts. It has no credentials; with SSH it has the user's name."""

    url: str
    scheme: str
    host: str
    port: int

    @property
    def base(self) -> str:
        """The beginning of all URLs of this server."""
        return self.url.split("/", 3)[0] + "//" + self.url.split("/", 3)[2] + "/"


def parsed(url: str, *, allow_local: bool) -> Address:
    """Raises ProjectError for an address that is not fetched. The error does not quote a password in it."""
    if found := SCP.fullmatch(url):  # the short form for SSH, such as git@example.com:owner/name.git
        url = f"ssh://{found['user']}@{found['host']}/{found['path'].lstrip('/')}"
    scheme = url.partition("://")[0].lower() if "://" in url else ""
    allowed = tuple(PORTS) if allow_local else PUBLIC_SCHEMES
    if allow_local and url.startswith("/"):
        scheme, url = "file", f"file://{url}"
    if scheme not in allowed or len(url) > LONGEST:
        raise _refused_form(url, scheme)
    try:
        parts = urlsplit("" if FORBIDDEN.search(url) else url)
        host, port = (parts.hostname or "").rstrip("."), parts.port or PORTS[scheme]
    except ValueError:
        parts, host, port = urlsplit(""), "", 0
    user = parts.username or ""
    if parts.password is not None or (user and scheme != "ssh"):
        raise ProjectError(
            "The address of the repository has credentials in it, which would be stored and shown.",
            "Leave them out, and set the variables GIT_USERNAME and GIT_PASSWORD of the deployment.",
        )
    is_host = bool(HOST.fullmatch(host)) if scheme != "file" else not host
    if not is_host or (user and not USER.fullmatch(user)) or len(parts.path) < 2:  # noqa: PLR2004 - a slash and a name
        raise ProjectError(
            f"The address of the repository at {ascii(host)[:200]} has no valid form.",
            "Its form is https://example.com/owner/name.git, without ? and #.",
        )
    named = f"[{host}]" if ":" in host else host
    shown_port = f":{port}" if port != PORTS[scheme] else ""
    return Address(f"{scheme}://{f'{user}@' if user else ''}{named}{shown_port}{parts.path}", scheme, host, port)


def _refused_form(url: str, scheme: str) -> ProjectError:
    hint = f"Give an https:// or ssh:// address. The setting {SETTING} of the server allows local ones."
    if not scheme or scheme == "file":
        return ProjectError("The address of the repository is a path of a machine, or has no https:// before it.", hint)
    if len(url) > LONGEST:
        return ProjectError(f"The address of the repository is longer than {LONGEST} characters.", hint)
    return ProjectError(f"Repositories are not fetched with {ascii(scheme)[1:-1][:50]}://.", hint)


def resolved(address: Address, *, allow_local: bool) -> list[str]:
    """Returns the addresses of the host, as git gets them, so that it asks no name server again.

    Raises ProjectError when the host can't be resolved, and for an address that is not of the public internet.
    """
    if address.scheme == "file":
        return []
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise ProjectError(
            f"{address.url} can't be fetched: the name {address.host} can't be resolved.", "Check the address."
        ) from None
    addresses = list(dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in found))
    closed = [one for one in addresses if not is_public(one)]
    if closed and not allow_local:
        raise ProjectError(
            f"{address.url} is not fetched: {address.host} has an address in a private network.",
            f"Set {SETTING} on the server if its users may reach that network.",
        )
    return [f"[{one}]" if ":" in one else one for one in addresses]
