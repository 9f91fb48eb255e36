"""Reads AWS Secrets Manager with boto3."""

from __future__ import annotations

import math
import os
import re
import threading
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from windlass.secrets.provider import (
    AccessDenied,
    BadCredential,
    CredentialRefused,
    Meaning,
    ProviderUnavailable,
    SecretError,
    SecretNotFound,
    UnusableSecret,
    first_meaning,
)
from windlass.secrets.providers import network
from windlass.secrets.providers.aws.methods import AUDIENCE, TITLE, AccessKeys, AssumedRole, WorkloadIdentity
from windlass.secrets.providers.configuration import missing
from windlass.secrets.providers.network import in_time, is_overloaded, unavailable
from windlass.secrets.providers.renewal import Renewed

try:
    import boto3
    import botocore.session
    from botocore import UNSIGNED
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
    from botocore.exceptions import ConnectionError as BotoConnectionError
    from botocore.parsers import ResponseParserError
except ModuleNotFoundError:
    raise missing(TITLE, "aws") from None

if TYPE_CHECKING:
    from collections.abc import Callable

    from windlass.secrets.provider import Subject
    from windlass.secrets.providers.endpoints import Endpoints

    Configuration = AccessKeys | AssumedRole | WorkloadIdentity

SESSION_SECONDS = 3600.0
SESSION_NAME = "windlass"
PAGE = 100
MEANINGS = (
    Meaning(
        r"^\w+ \w*(Throttl|TooManyRequests|RequestLimitExceeded|SlowDown)",
        ProviderUnavailable,
        "AWS limits the number of requests now.",
        "Try again later.",
    ),
    Meaning(
        r"^\w+ ResourceNotFoundException",
        SecretNotFound,
        "AWS Secrets Manager has no such secret in this region.",
        "Check the name and the region.",
    ),
    Meaning(
        r"^\w+ InvalidRequestException",
        SecretNotFound,
        "The secret can't be read: it is marked for deletion.",
        "Restore it in AWS.",
    ),
    Meaning(r"^\w+ DecryptionFailure", AccessDenied, "AWS can't decrypt the secret.", "Check its KMS key."),
    Meaning(
        r"^AssumeRoleWithWebIdentity AccessDenied",
        CredentialRefused,
        "The role does not trust this server, or does not exist.",
        f"The trust policy of the role must name the identity provider, the audience {AUDIENCE} and the subject "
        "that `windlass admin identity` prints.",
    ),
    Meaning(
        r"^AssumeRoleWithWebIdentity ExpiredToken",
        CredentialRefused,
        "AWS considers the token of the server expired.",
        "Set the clock of the server.",
    ),
    Meaning(
        r"^AssumeRoleWithWebIdentity .*No OpenIDConnect provider",
        CredentialRefused,
        "The AWS account has no identity provider for the issuer of this server.",
        "Add one in IAM, with the issuer and the audience that `windlass admin identity` prints.",
    ),
    Meaning(
        r"^AssumeRoleWithWebIdentity .*audience",
        CredentialRefused,
        "The identity provider in AWS does not accept the audience of this server.",
        f"Add the audience {AUDIENCE} to the identity provider in IAM.",
    ),
    Meaning(
        r"^AssumeRoleWithWebIdentity (IDPCommunicationError|.*retrieve verification key)",
        CredentialRefused,
        "AWS can't fetch the keys of this server from its issuer.",
        "The issuer must answer on the internet, over https, within 5 s; `windlass admin identity` prints its address.",
    ),
    Meaning(
        r"^AssumeRoleWithWebIdentity ",
        CredentialRefused,
        "AWS refuses the token of the server.",
        "The identity provider in IAM must have the issuer that `windlass admin identity` prints, and fetch its keys "
        "there.",
    ),
    Meaning(
        r"^AssumeRole AccessDenied",
        CredentialRefused,
        "AWS does not let the user assume the role.",
        "The user needs sts:AssumeRole for this role, and the trust policy of the role must name the user and, if "
        "there is one, the external ID of the credential.",
    ),
    Meaning(
        r"^\w+ (InvalidSignature|SignatureDoesNotMatch|IncompleteSignature)",
        CredentialRefused,
        "AWS refuses the credential: the secret access key is wrong, or the clock of the server is.",
        "Check the secret access key.",
    ),
    Meaning(
        r"^\w+ (ExpiredToken|InvalidClientTokenId|UnrecognizedClient|MissingAuthenticationToken)",
        CredentialRefused,
        "AWS refuses the credential: the access key does not exist, is inactive or has expired.",
        "Check the access keys.",
    ),
    Meaning(
        r"^\w+ \w*AccessDenied",
        AccessDenied,
        "AWS does not let the credential do this.",
        "Its policy must allow secretsmanager:GetSecretValue for the secret, kms:Decrypt for a KMS key of your own, "
        "and secretsmanager:ListSecrets to complete names.",
    ),
)
"""What the operation, the error code and the text of an answer mean."""

Result = TypeVar("Result")
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Keys:
    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


class Clients:
    """The clients for one set of keys, which keep their connections. Without keys, requests have no signature."""

    def __init__(self, region: str, endpoints: Endpoints, keys: Keys | None) -> None:
        self._region = region
        self._endpoints = {"secretsmanager": endpoints.aws_secretsmanager, "sts": endpoints.aws_sts}
        self._keys = keys
        self._made: dict[str, Any] = {}

    def of(self, service: str) -> Any:
        with _lock:  # clients are safe from any thread, a session is not
            if service not in self._made:
                self._made[service] = _client(service, self._region, self._endpoints[service], self._keys)
            return self._made[service]

    def close(self) -> None:
        with _lock:
            for client in self._made.values():
                client.close()


class AwsManager:
    def __init__(self, configuration: Configuration, subject: Subject, endpoints: Endpoints) -> None:
        self._configuration = configuration
        self._subject = subject
        self._endpoints = endpoints
        self._clients: Renewed[Clients] = Renewed(self._make_clients)

    def read(self, name: str) -> str:
        found = self._with_client("secretsmanager", lambda client: client.get_secret_value(SecretId=name))
        if "SecretString" in found:
            return str(found["SecretString"])
        try:
            return bytes(found["SecretBinary"]).decode()
        except KeyError:
            raise unavailable(TITLE, "sends an answer that is no secret") from None
        except UnicodeDecodeError:
            raise UnusableSecret("The secret is binary data and no UTF-8 text.", "Store it as base64.") from None

    def names(self, prefix: str, limit: int) -> list[str]:
        def listed(client: Any) -> list[str]:
            wanted: dict[str, Any] = {"Filters": [{"Key": "name", "Values": [prefix]}]} if prefix else {}
            found: list[str] = []
            for _ in in_time(range(0, limit, PAGE)):
                page = client.list_secrets(MaxResults=min(limit, PAGE), **wanted)
                found += [str(one["Name"]) for one in page["SecretList"] if one["Name"].startswith(prefix)]
                if not page.get("NextToken"):
                    break
                wanted["NextToken"] = page["NextToken"]
            return found[:limit]

        return self._with_client("secretsmanager", listed)

    def check(self) -> str:
        return str(self._with_client("sts", lambda client: client.get_caller_identity())["Arn"])

    def close(self) -> None:
        if clients := self._clients.current:
            clients.close()

    def _with_client(self, service: str, call: Callable[[Any], Result]) -> Result:
        return self._clients.use(lambda clients: _in_words(lambda: call(clients.of(service))))

    def _make_clients(self) -> tuple[Clients, float]:
        given = self._configuration
        if isinstance(given, WorkloadIdentity):
            token = self._subject(AUDIENCE)
            return self._assumed(
                None, "assume_role_with_web_identity", {"RoleArn": given.role_arn, "WebIdentityToken": token}
            )
        own = Keys(given.access_key_id, given.secret_access_key.get_secret_value())
        if not isinstance(given, AssumedRole):
            return Clients(given.region, self._endpoints, own), math.inf
        external = {"ExternalId": given.external_id} if given.external_id else {}
        return self._assumed(own, "assume_role", {"RoleArn": given.role_arn, **external})

    def _assumed(self, own: Keys | None, operation: str, wanted: dict[str, str]) -> tuple[Clients, float]:
        region = self._configuration.region
        sts = Clients(region, self._endpoints, own)
        try:
            assume = getattr(sts.of("sts"), operation)
            wanted |= {"RoleSessionName": SESSION_NAME}
            made = _in_words(lambda: assume(DurationSeconds=int(SESSION_SECONDS), **wanted)["Credentials"])
        finally:
            sts.close()
        keys = Keys(made["AccessKeyId"], made["SecretAccessKey"], made["SessionToken"])
        return Clients(region, self._endpoints, keys), SESSION_SECONDS


@cache
def _boto() -> Any:
    """Returns a session that reads no configuration of the server's user: it could name other keys and endpoints.

    A client from a shared session takes 1 ms, from a new one 90.
    """
    variables = {
        "profile": (None, None, None, None),
        "config_file": (None, None, os.devnull, None),
        "credentials_file": (None, None, os.devnull, None),
    }
    return boto3.session.Session(botocore_session=botocore.session.Session(session_vars=variables))


def _client(service: str, region: str, endpoint: str | None, keys: Keys | None) -> Any:
    config = Config(
        connect_timeout=network.CONNECT_TIMEOUT,
        read_timeout=network.READ_TIMEOUT,
        retries={"mode": "standard", "total_max_attempts": 1},
        ignore_configured_endpoint_urls=True,
        user_agent_extra="windlass",
        **({} if keys else {"signature_version": UNSIGNED}),
    )
    signed = {f"aws_{name}": value for name, value in asdict(keys).items()} if keys else {}
    return _boto().client(service, region_name=region, endpoint_url=endpoint, config=config, **signed)


def _in_words(call: Callable[[], Result]) -> Result:
    """Raises SecretError for the errors of boto3. Their texts are not quoted: some name values."""
    try:
        return call()
    except ClientError as error:
        raise _of_answer(error) from None
    except (HTTPClientError, BotoConnectionError) as error:
        raise unavailable(TITLE, f"can't be reached ({type(error).__name__})") from None
    except BotoCoreError as error:
        raise BadCredential(
            f"AWS can't be asked with this credential and name ({type(error).__name__}).", "Check the region."
        ) from None
    except (ResponseParserError, LookupError, ValueError):
        raise unavailable(TITLE, "sends an answer that is not that of AWS") from None


def _of_answer(error: ClientError) -> SecretError:
    answer = error.response.get("Error", {})
    code = re.sub(r"[^A-Za-z0-9.]", "", str(answer.get("Code", "")))[:80]
    if is_overloaded(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)):
        return unavailable(TITLE, f"is overloaded ({code})")
    found = first_meaning(MEANINGS, f"{error.operation_name} {code}: {answer.get('Message', '')}")
    return found or SecretError(
        f"AWS refuses the request ({code}).", "Check the name of the secret and the credential."
    )
