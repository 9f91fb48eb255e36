"""The proxy of the company that the server is in: the server makes connections of runs through it with CONNECT."""

from __future__ import annotations

import asyncio
import base64
import errno
import ipaddress
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self
from urllib.parse import unquote, urlsplit

from windlass.ip_addresses import is_public
from windlass.runner.egress.forwarding import CONNECT_SECONDS, dial

if TYPE_CHECKING:
    import socket
    from collections.abc import Collection, Iterable, Mapping

    from windlass.ip_addresses import Address

OF_PROXIES = ("https_proxy", "all_proxy", "http_proxy")
"""The first one that is set names the proxy, for connections to all ports."""
OF_DIRECT_HOSTS = "no_proxy"
VARIABLES = tuple(one for name in (*OF_PROXIES, OF_DIRECT_HOSTS) for one in (name, name.upper()))
HTTP_PORT = 80
LONGEST_ANSWER = 16 * 1024
ANSWER = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: |\r?\n)")


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy. `direct` are the entries of NO_PROXY. `variables` are those of the server's environment that name
    the proxy. These and `credentials`, the value of a header, have its password and are shown nowhere.
    """

    host: str
    port: int
    credentials: str = field(default="", repr=False)
    direct: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Self | None:
        """Returns the proxy that this environment names. None without one, and for one of another kind than http."""
        url = _value(environment, OF_PROXIES)
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            host, port = parts.hostname, parts.port or HTTP_PORT
        except ValueError:
            return None
        if parts.scheme != "http" or not host:
            return None
        credentials = ""
        if parts.username is not None:
            plain = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            credentials = "Basic " + base64.b64encode(plain.encode()).decode()
        direct = _value(environment, (OF_DIRECT_HOSTS,)).lower().replace(",", " ").split()
        found = {name: environment[name] for name in VARIABLES if name in environment}
        return cls(host, port, credentials, tuple(direct), found)

    def is_direct(self, names: Collection[str], port: int | None = None, address: Address | None = None) -> bool:
        """Returns whether a connection goes past the proxy: to an address that is not public, and to a host in
        NO_PROXY. `names` are those of the address.
        """
        if address is not None and not is_public(str(address)):
            return True
        return any(_is_in(entry, names, port, address) for entry in self.direct)

    async def connect(self, proxies: Iterable[Address], host: str, port: int) -> socket.socket:
        """Returns a connection to the host through the proxy, which has one of the addresses `proxies`. Raises OSError,
        whose `strerror` describes what failed.
        """
        try:
            given = await dial(proxies, self.port)
        except OSError as error:
            raise _failed(f"does not answer: {error.strerror or 'no answer in time'}") from error
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                code = await self._request(given, f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        except (OSError, TimeoutError, EOFError) as error:
            given.close()
            raise _failed("ended the connection, or did not answer the request CONNECT in time") from error
        except BaseException:
            given.close()
            raise
        if code // 100 != 2:  # noqa: PLR2004 - the codes of success
            given.close()
            raise _failed(f"refused the connection with the status {code}")
        return given

    async def _request(self, given: socket.socket, place: str) -> int:
        """Returns the status of the answer. What follows the answer is not read: it comes from the host."""
        loop = asyncio.get_running_loop()
        lines = [f"CONNECT {place} HTTP/1.1", f"Host: {place}"]
        if self.credentials:
            lines.append(f"Proxy-Authorization: {self.credentials}")
        await loop.sock_sendall(given, "\r\n".join([*lines, "", ""]).encode())
        answer = bytearray()
        while not answer.endswith((b"\r\n\r\n", b"\n\n")):
            byte = await loop.sock_recv(given, 1)
            if not byte or len(answer) >= LONGEST_ANSWER:
                raise EOFError
            answer += byte
        found = ANSWER.match(answer)
        if found is None:
            raise EOFError
        return int(found[1])


def _value(environment: Mapping[str, str], names: Iterable[str]) -> str:
    """Returns the value of the first variable that has one. One in lower case precedes that in upper case."""
    values = (environment.get(one, "").strip() for name in names for one in (name, name.upper()))
    return next(filter(None, values), "")


def _failed(what: str) -> OSError:
    return OSError(errno.EPROTO, f"the proxy of the server {what}")


def _is_in(entry: str, names: Collection[str], port: int | None, address: Address | None) -> bool:
    """Returns whether an entry of NO_PROXY has the host: `*`, an address, a network, or a name with those below it."""
    try:
        network = ipaddress.ip_network(entry.strip("[]"), strict=False)
    except ValueError:
        pass
    else:
        return address is not None and address in network
    host, colon, number = entry.rpartition(":")
    if colon and number.isdecimal():
        return int(number) == port and _is_in(host, names, port, address)
    name = entry.removeprefix("*").removeprefix(".")
    return entry == "*" or any(one == name or one.endswith(f".{name}") for one in names if name)
