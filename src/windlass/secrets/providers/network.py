"""How the adapters use the network: time, size, and what of the server's environment counts.

Requests to cloud providers go through the proxy of the variables HTTPS_PROXY and NO_PROXY, and certificates are checked
with the file in REQUESTS_CA_BUNDLE, AWS_CA_BUNDLE for AWS. Keys, profiles, endpoints and configuration files of the
server's user do not count, and no .netrc. Requests to a Vault go directly to its address.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, TypeVar

from windlass.secrets.provider import ProviderUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import requests

Item = TypeVar("Item")

CONNECT_TIMEOUT = 3.0
READ_TIMEOUT = 8.0
"""Seconds in which a provider must send the next part of its answer."""
TOTAL_TIMEOUT = 10.0
"""Seconds that an answer may take, where this package reads it."""
LISTING_TIME = 8.0
"""Seconds after which no further page of names is requested."""
LARGEST_ANSWER = 1 << 20
TOO_MANY_REQUESTS = 429

for _name in ("azure", "botocore", "google", "msal", "urllib3"):
    logging.getLogger(_name).setLevel(
        logging.CRITICAL
    )  # some log whole answers at DEBUG, and errors that are raised too


def unavailable(title: str, cause: str) -> ProviderUnavailable:
    """`cause` is a part of a sentence that begins with "it"."""
    return ProviderUnavailable(
        f"{title} can't be used now: it {cause}.", "Check the network of the server and the status of the provider."
    )


def in_time(pages: Iterable[Item]) -> Iterator[Item]:
    """Yields items, each of which may cost a request, and none after `LISTING_TIME`."""
    until = time.monotonic() + LISTING_TIME
    for one in pages:
        yield one
        if time.monotonic() > until:
            return


def is_overloaded(status: int) -> bool:
    return status == TOO_MANY_REQUESTS or status >= 500  # noqa: PLR2004 - errors of the server


def session() -> requests.Session:
    """Returns a session that sends the headers that it is given, also where the server's user has a .netrc."""
    import requests  # noqa: PLC0415 - a part of the clients

    made = requests.Session()
    made.auth = _unchanged
    return made


def _unchanged(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


def body(response: requests.Response, title: str) -> bytes:
    """Reads the body of a streamed answer. Raises ProviderUnavailable when it is too long or takes too long."""
    until = time.monotonic() + TOTAL_TIMEOUT
    read = bytearray()
    for chunk in response.iter_content(64 * 1024):
        read += chunk
        if len(read) > LARGEST_ANSWER or time.monotonic() > until:
            raise unavailable(title, "sends an answer that is too long")
    return bytes(read)
