"""Requests to an address that a person typed: bounded in time and size, and never to a service for cloud machines.

Vault usually has an address in a private network, so these are permitted.
"""

# See docs/decisions/secrets.md#a-vault-is-asked-with-an-event-loop-for-each-request

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from typing import TYPE_CHECKING

import httpx

from windlass.ip_addresses import contained
from windlass.secrets.provider import BadCredential
from windlass.secrets.providers import network
from windlass.secrets.providers.network import LARGEST_ANSWER, unavailable
from windlass.secrets.providers.vault.methods import TITLE

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_ADDRESSES = 3
REFUSED = tuple(
    ipaddress.ip_network(one)
    for one in (
        "169.254.0.0/16",  # metadata services of AWS, Google Cloud, Azure and others; link-local
        "fe80::/10",
        "fd00:ec2::/32",  # AWS
        "fd20:ce::/32",  # Google Cloud
        "168.63.129.16/32",  # Azure
        "100.100.100.200/32",  # Alibaba Cloud
        "192.0.0.192/32",  # Oracle Cloud
        "0.0.0.0/8",
        "::/128",
        "224.0.0.0/4",
        "ff00::/8",
    )
)
"""Networks with services that trust every process of a machine, and addresses that stand for others."""


class Direct:
    """Sends requests to one address.

    Each has a connection of its own, and an event loop of its own, which ends it in time also when the server sends its
    answer a byte at a time.
    """

    def __init__(self, address: str, ca_certificate: str | None) -> None:
        self._url = httpx.URL(address)
        self._tls: ssl.SSLContext | bool = False
        if self._url.scheme == "https":  # reading the certificates of the machine takes 20 ms
            self._tls = ssl.create_default_context()
            if ca_certificate:
                self._tls.load_verify_locations(cadata=ca_certificate)

    def send(self, method: str, path: str, headers: Mapping[str, str], content: bytes | None) -> tuple[int, bytes]:
        """Returns status and body. Raises ProviderUnavailable, and BadCredential for an address that is refused."""
        addresses = self._addresses()  # before the loop begins: a look-up of a name can't be cancelled
        try:
            return asyncio.run(self._sent(addresses, method, path, headers, content))
        except TimeoutError:
            raise unavailable(TITLE, f"does not answer within {network.TOTAL_TIMEOUT:g} s") from None
        except httpx.HTTPError as error:
            raise unavailable(TITLE, f"can't be reached ({type(error).__name__})") from None

    def _addresses(self) -> list[str]:
        """Resolves the name once, so that the address that is checked is the one that is used."""
        port = self._url.port or (443 if self._url.scheme == "https" else 80)
        try:
            found = socket.getaddrinfo(self._url.host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            raise unavailable(TITLE, "has a name that can't be resolved") from None
        addresses = list(dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in found))
        if any(is_refused(one) for one in addresses):
            raise BadCredential(
                "The address of the Vault leads to a network that the server does not connect to.",
                "Give another address: link-local addresses and metadata services of clouds are refused.",
            )
        return addresses[:MOST_ADDRESSES]

    async def _sent(
        self, addresses: list[str], method: str, path: str, headers: Mapping[str, str], content: bytes | None
    ) -> tuple[int, bytes]:
        async with (
            asyncio.timeout(network.TOTAL_TIMEOUT),
            httpx.AsyncClient(
                transport=httpx.AsyncHTTPTransport(verify=self._tls, trust_env=False),
                timeout=httpx.Timeout(network.READ_TIMEOUT, connect=network.CONNECT_TIMEOUT),
                follow_redirects=False,
                trust_env=False,
            ) as client,
        ):
            for place, address in enumerate(addresses, 1):
                try:
                    return await self._sent_to(client, address, method, path, headers, content)
                except httpx.ConnectError:  # nothing was sent
                    if place == len(addresses):
                        raise
            raise httpx.ConnectError("no address")

    async def _sent_to(
        self,
        client: httpx.AsyncClient,
        address: str,
        method: str,
        path: str,
        headers: Mapping[str, str],
        content: bytes | None,
    ) -> tuple[int, bytes]:
        host = self._url.netloc.decode("ascii")
        target = self._url.copy_with(host=address, raw_path=path.encode("ascii"))
        async with client.stream(
            method,
            target,
            headers={**headers, "Host": host, "Accept-Encoding": "identity"},
            content=content,
            extensions={"sni_hostname": self._url.host},
        ) as response:
            read = bytearray()
            async for chunk in response.aiter_raw():
                read += chunk
                if len(read) > LARGEST_ANSWER:
                    raise unavailable(TITLE, "sends an answer that is too long")
            return response.status_code, bytes(read)


def is_refused(address: str) -> bool:
    """Returns whether the address, or an IPv4 address that it contains, is in a refused network."""
    return any(one in network for one in contained(address) for network in REFUSED)
