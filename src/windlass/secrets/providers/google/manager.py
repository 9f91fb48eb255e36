"""Reads Google Cloud Secret Manager: tokens come from google-auth, and its REST API is called directly."""

# See docs/decisions/secrets.md#google-auth-only-refreshes-tokens

from __future__ import annotations

import base64
import binascii
import json
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from windlass.secrets.provider import (
    AccessDenied,
    BadCredential,
    CredentialRefused,
    Meaning,
    SecretError,
    SecretNotFound,
    UnusableSecret,
    first_meaning,
)
from windlass.secrets.providers import network
from windlass.secrets.providers.configuration import missing
from windlass.secrets.providers.google.methods import TITLE, ServiceAccount, WorkloadIdentity, key_of
from windlass.secrets.providers.network import (
    body,
    in_time,
    is_overloaded,
    session,
    unavailable,
)
from windlass.secrets.providers.renewal import Renewed

try:
    import requests
    from google.auth import exceptions, identity_pool, transport
    from google.oauth2 import service_account
except ModuleNotFoundError:
    raise missing(TITLE, "google") from None

if TYPE_CHECKING:
    from collections.abc import Mapping

    from windlass.secrets.provider import Subject
    from windlass.secrets.providers.endpoints import Endpoints

    Configuration = ServiceAccount | WorkloadIdentity

API = "https://secretmanager.googleapis.com"
STS = "https://sts.googleapis.com"
TOKEN_URI = "https://oauth2.googleapis.com/token"  # noqa: S105 - an address
SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]
JWT = "urn:ietf:params:oauth:token-type:jwt"
PAGE = 500
MOST_PAGES = 10
OK = 200
ANSWERS = (
    Meaning(
        "^401 ",
        CredentialRefused,
        "Google Cloud refuses the credential.",
        "The key or its service account was removed or disabled; add a new key.",
    ),
    Meaning(
        "^403 .*SERVICE_DISABLED",
        AccessDenied,
        "The Secret Manager API is not enabled in the project.",
        "Run: gcloud services enable secretmanager.googleapis.com",
    ),
    Meaning(
        "^403 ",
        AccessDenied,
        "Google Cloud does not let the credential do this, or the secret does not exist.",
        "It needs the role Secret Manager Secret Accessor for the secret, and Secret Manager Viewer to complete names.",
    ),
    Meaning(
        "^404 ", SecretNotFound, "Google Cloud has no such secret in the project.", "Check the name and the project."
    ),
    Meaning(
        "^400 .*FAILED_PRECONDITION", SecretNotFound, "The secret has no enabled version.", "Enable one, or add one."
    ),
)
"""What the status and the error of an answer mean."""
HANDSHAKES = (
    Meaning(
        "invalid_target",
        CredentialRefused,
        "Google Cloud has no such workload identity provider, or it is disabled.",
        "Check `provider` of the credential: it has the number of the project, not its ID.",
    ),
    Meaning(
        "unauthorized_client|attribute condition",
        CredentialRefused,
        "The attribute condition of the workload identity provider does not accept this server.",
        "It must accept the subject that `windlass admin identity` prints.",
    ),
    Meaning(
        "audience",
        CredentialRefused,
        "The workload identity provider does not accept the audience of this server.",
        "Choose its default audience as the allowed audience.",
    ),
    Meaning(
        "expired|stale|in the future",
        CredentialRefused,
        "Google Cloud considers the token of the server expired.",
        "Set the clock of the server.",
    ),
    Meaning(
        "connecting|fetch|retrieve",
        CredentialRefused,
        "Google Cloud can't fetch the keys of this server from its issuer.",
        "The issuer must answer on the internet, over https; `windlass admin identity` prints its address.",
    ),
)
"""What the texts of the token service mean."""


class GoogleManager:
    def __init__(self, given: Configuration, subject: Subject, endpoints: Endpoints) -> None:
        self._api = endpoints.google_secretmanager or API
        self._http = session()
        self._credentials: Any
        if isinstance(given, ServiceAccount):
            key = key_of(given.service_account_json.get_secret_value())
            self._project = given.project or key["project_id"]
            self._credentials = _of_service_account(key)
            self._identity = key["client_email"]
        else:
            self._project = given.project
            self._credentials = _federated(given.provider, subject, endpoints.google_sts or STS)
            self._identity = f"the server's own identity at {given.provider}"
        self._federates = isinstance(given, WorkloadIdentity)
        self._token: Renewed[str] = Renewed(self._make_token)

    def read(self, name: str) -> str:
        path = name if name.startswith("projects/") else f"projects/{self._project}/secrets/{quote(name, safe='')}"
        found = self._get(f"{path}/versions/latest:access")
        try:
            return base64.b64decode(found["payload"]["data"], validate=True).decode()
        except UnicodeDecodeError:
            raise UnusableSecret("The secret is binary data and no UTF-8 text.", "Store it as base64.") from None
        except (KeyError, TypeError, binascii.Error, ValueError):
            raise unavailable(TITLE, "sends an answer that is no secret") from None

    def names(self, prefix: str, limit: int) -> list[str]:
        wanted: dict[str, str] = {"pageSize": str(PAGE)} | ({"filter": f"name:{prefix}"} if prefix else {})
        found: list[str] = []
        for _ in in_time(
            range(MOST_PAGES)
        ):  # the filter finds the prefix anywhere in a name, so that a page may have none
            page = self._get(f"projects/{self._project}/secrets", wanted)
            names = [str(one.get("name", "")).rpartition("/")[2] for one in page.get("secrets", [])]
            found += [one for one in names if one.startswith(prefix)]
            if len(found) >= limit or not page.get("nextPageToken"):
                break
            wanted["pageToken"] = str(page["nextPageToken"])
        return found[:limit]

    def check(self) -> str:
        if self._federates:
            self._token.get()
            return str(self._identity)
        with suppress(AccessDenied):  # a token of a key is made without a request, so it is used; the key is known then
            self._get(f"projects/{self._project}/secrets", {"pageSize": "1"})
        return str(self._identity)

    def close(self) -> None:
        self._http.close()

    def _make_token(self) -> tuple[str, float]:
        try:
            self._credentials.refresh(_Transport(self._http))
        except exceptions.OAuthError as error:
            raise _of_handshake(str(error.args[0]) if error.args else "") from None
        except exceptions.GoogleAuthError as error:
            raise CredentialRefused(
                f"Google Cloud gives no token for the credential ({type(error).__name__}).", "Check the credential."
            ) from None
        except (ValueError, LookupError, TypeError):  # google-auth does not check the form of an answer
            raise unavailable("The token service of Google Cloud", "sends an answer that is no token") from None
        left = self._credentials.expiry.replace(tzinfo=UTC) - datetime.now(UTC)
        return str(self._credentials.token), left.total_seconds()

    def _get(self, path: str, wanted: Mapping[str, str] | None = None) -> dict[str, Any]:
        return self._token.use(lambda token: self._answer(path, wanted or {}, token))

    def _answer(self, path: str, wanted: Mapping[str, str], token: str) -> dict[str, Any]:
        url = f"{self._api}/v1/{path}"
        status, content = _request(self._http, "GET", url, wanted, {"Authorization": f"Bearer {token}"})
        try:
            document = json.loads(content)
        except (ValueError, RecursionError):
            document = None
        if status == OK and isinstance(document, dict):
            return document
        raise _of_answer(status, document)


class _Transport(transport.Request):
    """Makes the requests of google-auth, with bounds of time and size.

    Credentials are only refreshed here. `before_request` would also look up the regions of the credential in a thread,
    at another host.
    """

    def __init__(self, http: requests.Session) -> None:
        self._http = http

    def __call__(
        self,
        url: str,
        method: str = "GET",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,  # noqa: ARG002 - a part of the protocol
        **_: Any,
    ) -> transport.Response:
        status, content = _request(self._http, method, url, {}, headers or {}, body)
        if is_overloaded(status):
            raise unavailable("The token service of Google Cloud", f"answers with the status {status}")
        return _Answer(status, content)


class _Answer(transport.Response):
    def __init__(self, status: int, content: bytes) -> None:
        self._status, self._content = status, content

    @property
    def status(self) -> int:
        return self._status

    @property
    def headers(self) -> Mapping[str, str]:
        return {}

    @property
    def data(self) -> bytes:
        return self._content


def _request(
    http: requests.Session,
    method: str,
    url: str,
    wanted: Mapping[str, str],
    headers: Mapping[str, str],
    content: bytes | None = None,
) -> tuple[int, bytes]:
    try:
        with http.request(
            method,
            url,
            params=wanted,
            headers=headers,
            data=content,
            timeout=(network.CONNECT_TIMEOUT, network.READ_TIMEOUT),
            allow_redirects=False,
            stream=True,
        ) as response:
            return response.status_code, body(response, TITLE)
    except (requests.RequestException, OSError) as error:  # OSError: a certificate file that is not there
        raise unavailable(TITLE, f"can't be reached ({type(error).__name__})") from None


def _of_service_account(key: dict[str, Any]) -> Any:
    """`token_uri` of the JSON is not used: its author could name any address. A token is signed here instead."""
    try:
        return service_account.Credentials.from_service_account_info(
            {**key, "token_uri": TOKEN_URI}, scopes=SCOPES, always_use_jwt_access=True
        )
    except Exception:  # noqa: BLE001 - google-auth and cryptography raise many, with texts that may quote the key
        raise BadCredential(
            "The private key in the JSON of the service account can't be read.", "Give the whole file as it is."
        ) from None


def _federated(provider: str, subject: Subject, sts: str) -> Any:
    class Supplier(identity_pool.SubjectTokenSupplier):
        def get_subject_token(self, context: Any, request: Any) -> str:  # noqa: ARG002 - a part of the protocol
            return subject(context.audience)

    return identity_pool.Credentials(
        audience=f"//iam.googleapis.com/{provider}",
        subject_token_type=JWT,
        token_url=f"{sts}/v1/token",
        subject_token_supplier=Supplier(),
        scopes=SCOPES,
    )


def _of_answer(status: int, document: Any) -> SecretError:
    if is_overloaded(status):
        return unavailable(TITLE, f"answers with the status {status}")
    error = document.get("error") if isinstance(document, dict) else None
    found = first_meaning(ANSWERS, f"{status} {json.dumps(error)}")
    return found or SecretError(f"Google Cloud refuses the request (status {status}).", "Check the name of the secret.")


def _of_handshake(message: str) -> SecretError:
    """Returns why Google's token service refuses the token of the server."""
    return first_meaning(HANDSHAKES, message) or CredentialRefused(
        "Google Cloud refuses the token of the server.",
        "The issuer of the workload identity provider must be the one that `windlass admin identity` prints.",
    )
