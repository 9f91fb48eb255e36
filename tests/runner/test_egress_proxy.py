"""The proxy of the server is read from its environment, as curl and requests read it."""

from __future__ import annotations

import ipaddress

import pytest

from windlass.runner.egress.proxy import Proxy

pytestmark = pytest.mark.unit
FAR = ipaddress.ip_address("93.184.216.34")


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({"HTTPS_PROXY": "http://proxy.test:3128"}, ("proxy.test", 3128)),
        ({"https_proxy": "http://a.test", "HTTPS_PROXY": "http://b.test"}, ("a.test", 80)),
        ({"HTTP_PROXY": "http://a.test:1", "ALL_PROXY": "http://b.test:2"}, ("b.test", 2)),
        ({"http_proxy": "proxy.test:3128"}, ("proxy.test", 3128)),
        ({"https_proxy": "", "http_proxy": "http://[fd00::1]:3128/"}, ("fd00::1", 3128)),
        ({"HTTPS_PROXY": "socks5://proxy.test:1080"}, None),
        ({"HTTPS_PROXY": "http://proxy.test:port"}, None),
        ({"HTTPS_PROXY": "http://"}, None),
        ({"NO_PROXY": "*"}, None),
        ({}, None),
    ],
)
def test_the_proxy_of_an_environment(given: dict[str, str], place: tuple[str, int] | None) -> None:
    found = Proxy.of(given)
    assert (None if found is None else (found.host, found.port)) == place


def test_a_proxy_is_shown_without_its_password() -> None:
    found = Proxy.of({"HTTPS_PROXY": "http://user:pass%40word@proxy.test:3128"})
    assert found is not None
    assert found.credentials == "Basic dXNlcjpwYXNzQHdvcmQ="
    assert not any(one in repr(found) for one in ("pass", found.credentials))


@pytest.mark.parametrize(
    ("entries", "name", "port", "direct"),
    [
        ("a.test,example.com", "example.com", 443, True),
        ("a.test example.com", "api.example.com", 443, True),
        (".Example.com", "api.example.com", 443, True),
        ("*.example.com", "api.example.com", 443, True),
        ("example.com", "badexample.com", 443, False),
        ("example.com:8443", "example.com", 8443, True),
        ("example.com:8443", "example.com", 443, False),
        ("93.184.216.0/24", "example.com", 443, True),
        ("93.184.216.34", "example.com", 443, True),
        ("93.184.217.0/24,::/0,,.", "example.com", 443, False),
        ("*", "example.com", 443, True),
    ],
)
def test_hosts_in_no_proxy_are_direct(entries: str, name: str, port: int, direct: bool) -> None:
    found = Proxy.of({"HTTPS_PROXY": "http://proxy.test", "no_proxy": entries})
    assert found is not None
    assert found.is_direct([name], port, FAR) is direct


@pytest.mark.parametrize("address", ["10.1.2.3", "127.0.0.1", "fd00::1", "::1"])
def test_addresses_that_are_not_public_are_direct(address: str) -> None:
    found = Proxy.of({"HTTPS_PROXY": "http://proxy.test"})
    assert found is not None
    assert found.is_direct([], 443, ipaddress.ip_address(address))
    assert not found.is_direct([], 443, FAR)
