"""The methods of AWS Secrets Manager, by which a credential connects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, Field

from windlass.secrets.provider import WORKLOAD_IDENTITY
from windlass.secrets.providers.configuration import Configuration, SecretText, form

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel

TITLE = "AWS Secrets Manager"
AUDIENCE = "sts.amazonaws.com"
TEMPORARY = "ASIA"
ROLE = "ARN of the role that may read the secrets."


def _lasting(key_id: str) -> str:
    if key_id.startswith(TEMPORARY):
        raise ValueError("is that of temporary keys, which expire. Use keys of an IAM user, or workload identity")
    return key_id


Region = Annotated[str, form(r"[a-z]{2,4}(-[a-z]+){1,3}-\d{1,2}", "a region of AWS, such as eu-central-1")]
RoleArn = Annotated[
    str,
    form(
        r"arn:aws[a-z-]*:iam::\d{12}:role/[\w+=,.@/-]{1,512}",
        "the ARN of a role, such as arn:aws:iam::123456789012:role/windlass",
    ),
]
KeyId = Annotated[
    str, form(r"[A-Z0-9]{16,128}", "an access key ID, such as AKIAIOSFODNN7EXAMPLE"), AfterValidator(_lasting)
]
ExternalId = Annotated[str, form(r"[\w+=,.@:/-]{2,1224}", "2 to 1,224 letters, digits and characters of _+=,.@:/-")]


class _InRegion(Configuration):
    region: Region = Field(description="Region of the secrets, such as us-east-1.", examples=["us-east-1"])


class AccessKeys(_InRegion):
    """Access keys of an IAM user."""

    access_key_id: KeyId = Field(description="Access key ID of an IAM user.", examples=["AKIAIOSFODNN7EXAMPLE"])
    secret_access_key: SecretText = Field(description="Secret access key of this user.")


class AssumedRole(AccessKeys):
    """Access keys of an IAM user, who assumes a role."""

    role_arn: RoleArn = Field(description=ROLE, examples=["arn:aws:iam::123456789012:role/windlass"])
    external_id: ExternalId | None = Field(None, description="External ID that the trust policy of the role demands.")


class WorkloadIdentity(_InRegion):
    """The server's own identity, which a role trusts."""

    role_arn: RoleArn = Field(description=ROLE, examples=["arn:aws:iam::123456789012:role/windlass"])


METHODS: Mapping[str, type[BaseModel]] = {
    "access_keys": AccessKeys,
    "assume_role": AssumedRole,
    WORKLOAD_IDENTITY: WorkloadIdentity,
}
