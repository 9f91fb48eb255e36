"""Reads Azure Key Vault with Microsoft's clients."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from windlass.secrets.provider import (
    LONGEST_ANSWER,
    AccessDenied,
    BadCredential,
    CredentialRefused,
    SecretError,
    SecretNotFound,
)
from windlass.secrets.providers import network
from windlass.secrets.providers.azure.methods import (
    AUDIENCE,
    AUTHORITIES,
    TITLE,
    ClientSecret,
    WorkloadIdentity,
)
from windlass.secrets.providers.configuration import missing
from windlass.secrets.providers.network import in_time, is_overloaded, session, unavailable
from windlass.secrets.providers.renewal import Renewed

try:
    from azure.core.exceptions import (
        AzureError,
        ClientAuthenticationError,
        HttpResponseError,
        ResourceNotFoundError,
    )
    from azure.core.pipeline.transport import RequestsTransport
    from azure.identity import ClientAssertionCredential, ClientSecretCredential
    from azure.keyvault.secrets import SecretClient
except ModuleNotFoundError:
    raise missing(TITLE, "azure") from None

if TYPE_CHECKING:
    from collections.abc import Callable

    from windlass.secrets.provider import Subject
    from windlass.secrets.providers.endpoints import Endpoints

    Configuration = ClientSecret | WorkloadIdentity

LIFE = 24 * 3600.0
"""Seconds after which the client is made anew. It renews its tokens before."""
MOST_LISTED = 2000
UNAUTHENTICATED, FORBIDDEN = 401, 403
OTHER_TENANT = "not configured to acquire tokens for tenant"
REASONS = {
    "SecretDisabled": "The secret is disabled.",
    "SecretExpired": "The secret has expired.",
    "SecretNotYetValid": "The secret is not valid yet.",
    "ForbiddenByFirewall": "The firewall of the Key Vault does not let this server in.",
}
UNTRUSTED = (
    "The application has no federated credential for this server.",
    "Add one with issuer, subject and audience as `windlass admin identity` prints them; all are compared exactly.",
)
HANDSHAKES: dict[str, tuple[str, str]] = {
    "70021": UNTRUSTED,
    "700211": UNTRUSTED,
    "700212": ("The federated credential has another audience.", f"Set its audience to {AUDIENCE}."),
    "700213": UNTRUSTED,
    "700024": ("Azure considers the token of the server expired.", "Set the clock of the server."),
    "700016": ("The tenant has no application with this client ID.", "Check client_id and tenant_id."),
    "90002": ("There is no such tenant.", "Check tenant_id."),
    "90061": (
        "Azure can't fetch the keys of this server from its issuer.",
        "The issuer must answer on the internet, over https; `windlass admin identity` prints its address.",
    ),
    "7000215": ("The client secret is wrong.", "Give the value of a client secret, not its ID."),
    "7000222": ("The client secret has expired.", "Add a new client secret to the application."),
}
"""What Azure's error codes AADSTS... mean, and what to change."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Connection:
    credential: Any
    client: Any

    def close(self) -> None:
        self.client.close()
        self.credential.close()


class AzureManager:
    def __init__(self, configuration: Configuration, subject: Subject, endpoints: Endpoints) -> None:
        self._configuration = configuration
        self._subject = subject
        self._endpoints = endpoints
        self._connection: Renewed[Connection] = Renewed(lambda: (self._connect(), LIFE))
        self._connection.get()  # here, so that an invalid value is an error of `connect`

    def read(self, name: str) -> str:
        value = self._with_client(lambda client: client.get_secret(name.replace("_", "-")).value)
        return "" if value is None else str(value)

    def names(self, prefix: str, limit: int) -> list[str]:
        wanted = prefix.replace("_", "-").lower()

        def listed(client: Any) -> list[str]:
            some = in_time(islice(client.list_properties_of_secrets(), MOST_LISTED))
            return list(
                islice((one.name for one in some if one.enabled and one.name.lower().startswith(wanted)), limit)
            )

        return self._with_client(listed)

    def check(self) -> str:
        connection = self._connect()  # a new one has no token yet
        try:
            _in_words(lambda: connection.credential.get_token(f"https://{self._configuration.domain}/.default"))
        finally:
            connection.close()
        return f"application {self._configuration.client_id} of tenant {self._configuration.tenant_id}"

    def close(self) -> None:
        if connection := self._connection.current:
            connection.close()

    def _with_client(self, call: Callable[[Any], Result]) -> Result:
        """The client keeps a token that was revoked before its end. So a refused call is repeated with a new client."""
        return self._connection.use(lambda connection: _in_words(lambda: call(connection.client)))

    def _connect(self) -> Connection:
        given, endpoints = self._configuration, self._endpoints
        options: dict[str, Any] = {
            "authority": endpoints.azure_authority or AUTHORITIES[given.domain],
            "disable_instance_discovery": True,  # the authority is one of a fixed list
        }
        credential: Any
        if isinstance(given, ClientSecret):
            secret = given.client_secret.get_secret_value()
            credential = ClientSecretCredential(given.tenant_id, given.client_id, secret, **options, **self._network())
        else:
            credential = ClientAssertionCredential(
                given.tenant_id, given.client_id, lambda: self._subject(AUDIENCE), **options, **self._network()
            )
        client = SecretClient(
            endpoints.azure_vault or given.vault_url,
            credential,
            verify_challenge_resource=not endpoints.azure_vault,  # a host that is no Key Vault's gets no token of one
            **self._network(),
        )
        return Connection(credential, client)

    def _network(self) -> dict[str, Any]:
        transport = RequestsTransport(
            session=session(),
            connection_timeout=network.CONNECT_TIMEOUT,
            read_timeout=network.READ_TIMEOUT,
            connection_verify=self._endpoints.azure_ca or True,
        )
        return {"transport": transport, "retry_total": 0, "permit_redirects": False}


def _in_words(call: Callable[[], Result]) -> Result:
    """Raises SecretError for the errors of Microsoft's clients. Their texts are not quoted."""
    try:
        return call()
    except ClientAuthenticationError as error:
        raise _of_handshake(error.status_code or 0, str(error)) from None
    except ResourceNotFoundError:
        raise SecretNotFound("The Key Vault has no such secret.", "Check the name and the Key Vault.") from None
    except HttpResponseError as error:
        raise _of_answer(error) from None
    except (AzureError, OSError) as error:  # OSError: a certificate file that is not there
        raise unavailable(TITLE, f"can't be reached ({type(error).__name__})") from None
    except ValueError:
        raise SecretError(
            "The answer is not that of a Key Vault, or it asks for a token of another host.",
            "Check vault_url; no other host gets one.",
        ) from None


def _of_handshake(status: int, text: str) -> SecretError:
    """`status` is 0 where the clients do not pass on the answer: then it has no error code of Azure either."""
    codes = re.findall(r"AADSTS(\d+)", text[:LONGEST_ANSWER])
    if codes and not is_overloaded(status):
        known = (f"Azure refuses the credential (AADSTS{codes[0]}).", "Microsoft's documentation lists these codes.")
        return CredentialRefused(*HANDSHAKES.get(codes[0], known))
    if OTHER_TENANT in text:
        return CredentialRefused(
            "The Key Vault belongs to another tenant than the application.", "Give the tenant of the Key Vault."
        )
    if status == UNAUTHENTICATED:
        return CredentialRefused("The Key Vault refuses the token of the credential.", "Check tenant_id and vault_url.")
    return unavailable("The token service of Azure", "can't be reached, is overloaded or sends no answer of Azure")


def _of_answer(error: HttpResponseError) -> SecretError:
    status = error.status_code or 0
    if is_overloaded(status):
        return unavailable(TITLE, f"answers with the status {status}")
    if status == FORBIDDEN:
        inner: Any = getattr(error.error, "innererror", None) or {}
        reason = str(inner.get("code", "")) if isinstance(inner, dict) else ""
        return AccessDenied(
            REASONS.get(reason, "Azure does not let the application do this."),
            "It needs the role Key Vault Secrets User in the Key Vault, or the permissions Get and List of a policy.",
        )
    if status == 400:  # noqa: PLR2004 - a name that Azure refuses
        return BadCredential("Azure refuses the name of the secret.", "A name has letters, digits and hyphens.")
    return SecretError(f"Azure refuses the request (status {status}).", "Check the name of the secret.")
