"""The egress of a crew: the hosts that its runs may connect to."""

# See docs/decisions/security.md#a-run-has-a-network-of-its-own

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, Self

from windlass.ip_addresses import Address, contained, is_public
from windlass.kickoffs.declared_settings import BadSetting, Kind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

Base = Literal["unrestricted", "open", "public", "none"]
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

WORDS: tuple[Base, ...] = ("unrestricted", "open", "public", "none")
MEANINGS: dict[Base, str] = {
    "unrestricted": "everything that the machine reaches",
    "open": "everything but metadata services, link-local addresses, the server's own machine and its database",
    "public": "addresses of the public internet",
    "none": "nothing",
}
ALONE: tuple[Base, ...] = ("unrestricted", "none")
"""Words that stand alone. `open` and `public` may stand in a list, which then permits more."""
LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
NAME = re.compile(rf"(?:\*\.)?{LABEL}(?:\.{LABEL})*\.?", re.ASCII)
LONGEST_NAME = 253
MOST_DESTINATIONS = 200
LOOPBACK = ("127.0.0.1", "::1")
METADATA = tuple(
    ipaddress.ip_network(one)
    for one in (
        "100.100.100.200",  # Alibaba Cloud
        "168.63.129.16",  # Azure: the host of the machine
        "192.0.0.192",  # Oracle Cloud
        "fd00:ec2::/64",  # AWS
        "fd20:ce::254",  # Google Cloud
        "fd00:42::42",  # Scaleway
    )
)
"""Services that give credentials of the machine to all its processes, beside those with link-local addresses."""


@dataclass(frozen=True, slots=True)
class Destination:
    """An entry of a list: a name, such as `api.openai.com` or `*.serper.dev`, or networks. `port` None: all ports."""

    name: str = ""
    networks: tuple[Network, ...] = ()
    port: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises BadSetting."""
        if "://" in text:
            raise BadSetting(f"{text[:100]!r} is a URL: name its host alone, such as api.openai.com:443")
        if near := get_close_matches(text, WORDS, n=1, cutoff=0.8):
            raise BadSetting(f"{text!r} is no word that it can have: did you mean {near[0]!r}?")
        host, port = _divided(text)
        if host == "localhost":
            return cls(networks=tuple(map(ipaddress.ip_network, LOOPBACK)), port=port)
        try:
            return cls(networks=(ipaddress.ip_network(host, strict=False),), port=port)
        except ValueError:
            pass
        if re.fullmatch(r"[0-9./]+", host) or not NAME.fullmatch(host) or len(host) > LONGEST_NAME:
            raise BadSetting(
                f"{text[:100]!r} is none of {', '.join(WORDS)}, and no name, address or network, with or without a "
                "port, such as api.openai.com, *.serper.dev, 10.1.2.0/24 or [fd00::5]:5432"
            )
        return cls(host.removesuffix("."), port=port)

    def is_name(self, name: str) -> bool:
        if self.name.startswith("*."):
            return name.endswith(self.name[1:])
        return bool(self.name) and name == self.name

    def is_address(self, address: Address) -> bool:
        """Returns whether the address stands here itself, not only within a network."""
        return any(network.num_addresses == 1 and address in network for network in self.networks)

    def permits(self, addresses: Iterable[Address], port: int, names: Collection[str]) -> bool:
        if self.port not in (None, port):
            return False
        if self.name:
            return any(map(self.is_name, names))
        return any(address in network for network in self.networks for address in addresses)


def _divided(text: str) -> tuple[str, int | None]:
    """Returns the host and the port of an entry. Raises BadSetting."""
    found = re.fullmatch(r"\[([^\]]*)\](?::(.*))?|([^:\[\]]*)(?::([^:]*))?|([^\[\]]*)", text.strip().lower())
    if found is None:
        raise BadSetting(f"{text[:100]!r} has brackets that enclose no IPv6 address")
    host = found[1] or found[3] or found[5] or ""
    port = found[2] if found[2] is not None else found[4]
    if port is None:
        return host, None
    if not re.fullmatch(r"[0-9]{1,5}", port, re.ASCII) or int(port) not in range(1, 1 << 16):
        raise BadSetting(f"{text[:100]!r} ends with a port that is no number from 1 to 65535")
    return host, int(port)


@dataclass(frozen=True, slots=True)
class Egress:
    """What the runs of a crew may connect to.

    - `unrestricted`: everything that the machine reaches. The runs have the network of the machine.
    - `open`: everything but `closed` addresses and the server's own machine.
    - `public`: addresses of the public internet.
    - `none`: nothing.

    `destinations` are permitted in addition.
    """

    base: Base
    destinations: tuple[Destination, ...] = ()

    @classmethod
    def parse(cls, given: Collection[str]) -> Self:
        """Returns the egress for the value of the setting. Raises BadSetting."""
        return cls(*_parsed(tuple(given)))

    def also(self, given: Collection[str]) -> Egress:
        """Returns the egress that permits these destinations too."""
        return replace(self, destinations=(*self.destinations, *map(Destination.parse, given)))

    @property
    def is_enforced(self) -> bool:
        """Whether a run needs a network of its own."""
        return self.base != "unrestricted"

    @property
    def is_strict(self) -> bool:
        """Whether a run must not start where it is not enforced."""
        return self.is_enforced and self.base != "open"

    @property
    def is_closed(self) -> bool:
        """Whether it permits nothing."""
        return self.base == "none" and not self.destinations

    @property
    def meaning(self) -> str:
        """What runs may connect to, as a part of a sentence without the listed hosts."""
        return "only the hosts of the list" if self.destinations and self.base == "none" else MEANINGS[self.base]

    @property
    def ports(self) -> set[int]:
        """The ports that the list names."""
        return {one.port for one in self.destinations if one.port is not None}

    def permits(self, address: str, port: int, names: Collection[str] = (), *, own: bool = False) -> bool:
        """Returns whether runs may connect to the address.

        `names` are those for which this address was given to the run. `own` is whether the address is one of the
        server's machine or of its database.
        """
        if not self.is_enforced:
            return True
        found = [one for one in contained(address) if not _is_mapped(one)]
        if own or any(map(is_closed, found)):
            return any(one.port in (None, port) and any(map(one.is_address, found)) for one in self.destinations)
        if self.base == "open" or (self.base == "public" and all(is_public(str(one)) for one in found)):
            return True
        return any(one.permits(found, port, names) for one in self.destinations)

    def permits_name(self, name: str, port: int | None, *, public: bool) -> bool:
        """Returns whether runs may connect to the name by a proxy, which looks it up. `port` None is any one. `public`
        is whether the server knows the name, with a public address.
        """
        if self.base == "open" or (self.base == "public" and public):
            return True
        return any(one.is_name(name) and (port is None or one.port in (None, port)) for one in self.destinations)

    def resolves(self, name: str) -> bool:
        """Returns whether runs may look up a name: its addresses may be permitted."""
        if self.base in ("open", "public"):
            return True
        return any(one.networks or one.is_name(name) for one in self.destinations)


UNRESTRICTED = Egress("unrestricted")


def _is_mapped(address: Address) -> bool:
    return isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None


def is_closed(address: Address) -> bool:
    """Returns whether no word and no network permits the address: metadata services, link-local addresses, and this
    machine itself.
    """
    return (
        address.is_link_local
        or address.is_loopback
        or address.is_unspecified
        or address.is_multicast
        or any(address in network for network in METADATA if network.version == address.version)
    )


@lru_cache(1000)
def _parsed(given: tuple[str, ...]) -> tuple[Base, tuple[Destination, ...]]:
    words = [word for word in WORDS if word in given]
    others = [one for one in given if one not in WORDS]
    for word in words:
        if word in ALONE and len(given) > 1:
            raise BadSetting(f"{word!r} must stand alone")
    if len(words) > 1:
        raise BadSetting(f"{words[0]!r} and {words[1]!r} can't stand together")
    if len(others) > MOST_DESTINATIONS:
        raise BadSetting(f"has more than {MOST_DESTINATIONS} entries")
    return (words[0] if words else "none"), tuple(map(Destination.parse, others))


def _read(value: Any) -> list[str] | None:
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list) or not given or not all(isinstance(one, str) for one in given):
        return None
    Egress.parse(given)
    return [one.strip() for one in given]


EGRESS = Kind(
    "lines",
    f"a list of hosts such as api.openai.com:443, or one of {', '.join(WORDS)}",
    _read,
    list[str],
    {"max_length": MOST_DESTINATIONS + 1},
)
