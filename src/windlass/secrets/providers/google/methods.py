"""The methods of Google Cloud Secret Manager, by which a credential connects."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from windlass.secrets.provider import WORKLOAD_IDENTITY
from windlass.secrets.providers.configuration import Configuration, SecretText, form

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel

TITLE = "Google Cloud Secret Manager"
PROJECT = r"(?:[a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]|\d{1,20}"
PROVIDER = r"projects/\d{1,20}/locations/global/workloadIdentityPools/[a-z0-9-]{4,32}/providers/[a-z0-9-]{4,32}"
MEMBERS = ("client_email", "private_key", "private_key_id", "project_id")


def key_of(document: str) -> dict[str, Any]:
    """Returns the members of the JSON of a service account key. Raises ValueError, whose message quotes none of them.

    No other type of credentials is read: some of them name programs and addresses.
    """
    try:
        key = json.loads(document)
    except (ValueError, RecursionError):
        raise ValueError("must be the JSON file of a service account key") from None
    if not isinstance(key, dict) or key.get("type") != "service_account":
        raise ValueError('must be the JSON file of a service account key, with "type": "service_account"')
    if absent := [one for one in MEMBERS if not (isinstance(key.get(one), str) and key[one])]:
        raise ValueError(f"has no {absent[0]}: give the whole JSON file of the key")
    return key


def _service_account(value: SecretStr) -> SecretStr:
    key_of(value.get_secret_value())
    return value


def _without_host(value: object) -> object:
    return re.sub(r"^(https:)?//iam\.googleapis\.com/", "", value.strip()) if isinstance(value, str) else value


Project = Annotated[str, form(PROJECT, "the ID of a project, such as my-project")]
ProviderName = Annotated[
    str,
    BeforeValidator(_without_host),
    form(
        PROVIDER,
        "the resource name of a workload identity provider, such as "
        "projects/123456789/locations/global/workloadIdentityPools/windlass/providers/windlass",
    ),
]


class ServiceAccount(Configuration):
    """A key of a service account."""

    service_account_json: Annotated[SecretText, AfterValidator(_service_account)] = Field(
        description="JSON file of a service account key."
    )
    project: Project | None = Field(
        None, description="ID of the project with the secrets, when it is not the project of the key."
    )


class WorkloadIdentity(Configuration):
    """The server's own identity, by workload identity federation."""

    project: Project = Field(description="ID of the project with the secrets.", examples=["my-project"])
    provider: ProviderName = Field(
        description="Resource name of the workload identity provider.",
        examples=["projects/123456789/locations/global/workloadIdentityPools/windlass/providers/windlass"],
    )


METHODS: Mapping[str, type[BaseModel]] = {
    "service_account": ServiceAccount,
    WORKLOAD_IDENTITY: WorkloadIdentity,
}
