"""The client trusts the authority of SSL_CERT_FILE, also for a server on this machine."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import pytest

from windlass.client.transport import _options

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.unit

AUTHORITY = """-----BEGIN CERTIFICATE-----
MIIBjjCCATWgAwIBAgIUK4S/ti4N1fljfjic6l/4eDmM+kYwCgYIKoZIzj0EAwIw
HDEaMBgGA1UEAwwRYXV0aG9yaXR5LmV4YW1wbGUwIBcNMjYxMTI2MTk0ODI5WhgP
MjEyNjExMDIxOTQ4MjlaMBwxGjAYBgNVBAMMEWF1dGhvcml0eS5leGFtcGxlMFkw
EwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEW//nQ3ZjyRddJXyIpDsK1At6lWpzC3YH
rNnN+XhjTej2ToeUjlak0Ib54qBzOQ1Znjd3Pj7pK1eNdlQ9tGY0eaNTMFEwHQYD
VR0OBBYEFFXEYy/F95aUomSCAUmf/RRCdsJgMB8GA1UdIwQYMBaAFFXEYy/F95aU
omSCAUmf/RRCdsJgMA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDRwAwRAIg
A0TLmaHMctXRVinKbKBZuaS/TAb3+DaxzkSblKFc+ocCIGuv/W8aYPFDg1C3tCd4
EIkcsqV8ZQsROx5GIuUNQP1b
-----END CERTIFICATE-----
"""


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "crews.example.com"])
def test_a_certificate_authority_of_the_environment_counts(
    host: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "authority.pem"
    file.write_text(AUTHORITY)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    context = _options(f"https://{host}:8443", "token")["verify"]
    assert isinstance(context, ssl.SSLContext)
    (trusted,) = context.get_ca_certs()
    assert trusted["subject"] == ((("commonName", "authority.example"),),)


def test_without_tls_no_certificate_is_loaded() -> None:
    assert _options("http://crews.example.com", "token")["verify"].get_ca_certs() == []
