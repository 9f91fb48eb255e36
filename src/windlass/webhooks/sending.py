"""Sends a request to an address that a client gave: bounded, without redirects, and only to permitted networks."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

import httpx

from windlass.ip_addresses import contained, is_public
from windlass_child.masking.secret_values import SecretValues

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from windlass.webhooks.endpoints import Target

    Resolve = Callable[[str, int], Awaitable[list[str]]]

MOST_ADDRESSES = 4
LARGEST_ANSWER = 1024
"""Bytes of an answer that are read and kept."""
LONGEST_WAIT = 24 * 3600.0
"""Seconds of a Retry-After that count at most."""
SETTING = "WINDLASS_WEBHOOK_ALLOW"
SCHEMES = {"https", "http"}


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of an endpoint, or the reason why there is none. `retry_after` is in seconds."""

    status: int | None = None
    text: str = ""
    error: str | None = None
    retry_after: float | None = None

    @property
    def accepted(self) -> bool:
        return self.status is not None and 200 <= self.status < 300  # noqa: PLR2004 - HTTP's codes of success


class _Refused(Exception):  # noqa: N818 - describes the address
    """Reports an address that is not connected to, or that can't be found."""


async def look_up(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in found))


def has_host(url: str) -> bool:
    """Returns whether requests can be sent to the URL, by its form."""
    try:
        parsed = httpx.URL(url)
        return parsed.scheme in SCHEMES and bool(parsed.raw_host)
    except (httpx.InvalidURL, ValueError):
        return False


class Sender:
    """Sends requests. `allowed` are networks that webhooks may reach besides the public internet. `timeout` are the
    seconds from the look-up of the name to the last byte of the answer.

    Each request has a connection of its own: one that was checked for a name must not serve another name.
    """

    def __init__(
        self,
        allowed: Sequence[str] = (),
        *,
        resolve: Resolve = look_up,
        verify: ssl.SSLContext | None = None,
        timeout: float = 20.0,
    ) -> None:
        self._allowed = [ipaddress.ip_network(one) for one in allowed]
        self._resolve = resolve
        self._tls = verify or ssl.create_default_context()
        self._timeout = timeout

    async def post(
        self, target: Target, body: bytes, headers: Mapping[str, str], secrets: Mapping[str, str] | None = None
    ) -> Answer:
        """Returns the answer, or the reason why there is none. Never raises for what the other side does.

        Masks `secrets` of the body, and those of the target, in the answer: a receiver may repeat what it got.
        """
        hidden = SecretValues({**target.secrets, **(secrets or {})})
        try:
            async with asyncio.timeout(self._timeout):
                return await self._sent(httpx.URL(target.url), body, {**headers, **target.headers}, hidden)
        except TimeoutError:
            return Answer(error=f"no answer within {self._timeout:g} s")
        except _Refused as error:
            return Answer(error=str(error))
        except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError, UnicodeError, ValueError) as error:
            return Answer(error=_reason(error))

    async def _sent(self, url: httpx.URL, body: bytes, headers: Mapping[str, str], hidden: SecretValues) -> Answer:
        addresses = await self._addresses(url)
        client = httpx.AsyncHTTPTransport(verify=self._tls, trust_env=False, retries=0)
        async with client:
            for place, address in enumerate(addresses, 1):
                try:
                    return _answered(*await self._sent_to(client, url, address, body, headers), hidden)
                except httpx.ConnectError:  # nothing was sent
                    if place == len(addresses):
                        raise
        raise _Refused("the name has no address")

    async def _sent_to(
        self, client: httpx.AsyncHTTPTransport, url: httpx.URL, address: str, body: bytes, headers: Mapping[str, str]
    ) -> tuple[httpx.Response, bytes]:
        """Returns the answer, and what was read of its body: more than LARGEST_ANSWER only if that was not all."""
        request = httpx.Request(
            "POST",
            url.copy_with(host=address, username=None, password=None),
            content=body,
            headers={
                "host": url.netloc.decode("ascii"),
                "content-type": "application/json",
                "user-agent": "windlass-webhooks",
                "accept-encoding": "identity",
                **headers,
            },
            extensions={
                "sni_hostname": url.raw_host.decode("ascii"),
                "timeout": dict.fromkeys(("connect", "read", "write", "pool"), self._timeout),
            },
        )
        response = await client.handle_async_request(request)
        try:
            read = bytearray()
            async for piece in response.aiter_raw():
                read += piece
                if len(read) > LARGEST_ANSWER:
                    break
        finally:
            await response.aclose()
        return response, bytes(read)

    async def _addresses(self, url: httpx.URL) -> list[str]:
        """Resolves the name once, so that the addresses that are checked are those that are used."""
        if url.scheme not in SCHEMES or not url.host or url.userinfo:
            raise _Refused("the address must begin with https:// and have no user name")
        port = url.port or (443 if url.scheme == "https" else 80)
        try:
            addresses = await self._resolve(url.raw_host.decode("ascii").strip("[]"), port)
        except (OSError, UnicodeError):
            raise _Refused(f"the name {url.host} can't be resolved") from None
        if not all(self._permits(one) for one in addresses):
            raise _Refused(
                f"{url.host} leads to an address in a private network. An operator can permit it with {SETTING}."
            )
        return addresses[:MOST_ADDRESSES]

    def _permits(self, address: str) -> bool:
        return is_public(address) or any(
            one in network for one in contained(address) for network in self._allowed if one.version == network.version
        )


def _answered(response: httpx.Response, read: bytes, hidden: SecretValues) -> Answer:
    stream = hidden.stream()
    text = stream.feed(read[:LARGEST_ANSWER])
    if len(read) <= LARGEST_ANSWER:  # otherwise what is held back may be the beginning of a secret
        text += stream.end()
    shown, status = text[:LARGEST_ANSWER].decode("utf-8", "replace"), response.status_code
    return Answer(status, shown, _fault(status), _retry_after(response.headers))


def _reason(error: Exception) -> str:
    """Returns what failed, without the address, which may be a secret."""
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return "its certificate is not valid for the name"
    if isinstance(error, httpx.ConnectError):
        return "no connection"
    return f"the connection failed ({type(error).__name__})"


def _fault(status: int) -> str | None:
    if 200 <= status < 300:  # noqa: PLR2004 - HTTP's codes of success
        return None
    if 300 <= status < 400:  # noqa: PLR2004 - HTTP's codes of redirects
        return f"it answered {status}: redirects are not followed"
    return f"it answered {status}"


def _retry_after(headers: httpx.Headers) -> float | None:
    given = headers.get("retry-after", "")
    seconds: float | None = None
    if given.isascii() and given.isdigit() and len(given) <= 12:  # noqa: PLR2004 - more is a mistake
        seconds = float(given)
    elif given:
        with suppress(ValueError, TypeError, OverflowError):
            seconds = (parsedate_to_datetime(given) - datetime.now(UTC)).total_seconds()
    return None if seconds is None else min(LONGEST_WAIT, max(0.0, seconds))
