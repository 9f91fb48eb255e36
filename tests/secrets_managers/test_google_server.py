"""Google's own client judges the tests' server of Google's API."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest

from secrets_managers.google_server import PROJECT, PROVIDER

if TYPE_CHECKING:
    from collections.abc import Callable

    from secrets_managers.token_issuer import TokenIssuer

pytestmark = pytest.mark.xdist_group("secrets_managers")


def test_googles_own_client_reads_and_lists(issuer: TokenIssuer, server_of: Callable[[str], Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from google.api_core import exceptions  # noqa: PLC0415 - takes a second
        from google.auth import identity_pool  # noqa: PLC0415
        from google.cloud import secretmanager_v1  # noqa: PLC0415

    class Supplier(identity_pool.SubjectTokenSupplier):
        def get_subject_token(self, context: Any, request: Any) -> str:
            return issuer.token(context.audience)

    class Credentials(identity_pool.Credentials):
        def _is_regional_access_boundary_lookup_required(self) -> bool:
            return False  # it would ask another host

    server = server_of("google")
    for number in range(3):
        server.put(f"judged-{number}", '{"password": "v1"}')
    address = server.endpoints.google_secretmanager
    credentials = Credentials(  # type: ignore[no-untyped-call]
        audience=f"//iam.googleapis.com/{PROVIDER}",
        subject_token_type="urn:ietf:params:oauth:token-type:jwt",
        token_url=f"{address}/v1/token",
        subject_token_supplier=Supplier(),
        scopes=["https://www.googleapis.com/auth/cloud-platform"],
    )
    client = secretmanager_v1.SecretManagerServiceClient(
        transport="rest", credentials=credentials, client_options={"api_endpoint": address}
    )
    parent = f"projects/{PROJECT}"
    read = client.access_secret_version(name=f"{parent}/secrets/judged-1/versions/latest", timeout=30, retry=None)
    assert read.payload.data == b'{"password": "v1"}'
    listed = client.list_secrets(request={"parent": parent, "filter": "name:judged-", "page_size": 2}, timeout=30)
    assert [one.name.rpartition("/")[2] for one in listed] == ["judged-0", "judged-1", "judged-2"]
    with pytest.raises(exceptions.NotFound):
        client.access_secret_version(name=f"{parent}/secrets/absent/versions/latest", timeout=30, retry=None)
    with server.forbidden(), pytest.raises(exceptions.Forbidden):
        client.access_secret_version(name=f"{parent}/secrets/judged-1/versions/latest", timeout=30, retry=None)
    server.end_tokens()
    assert client.access_secret_version(name=f"{parent}/secrets/judged-1/versions/latest", timeout=30, retry=None)
