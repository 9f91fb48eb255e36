"""AWS Secrets Manager."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import AfterValidator, Field

from windlass.secrets.provider import WORKLOAD_IDENTITY, BadCredential, IdentityValues
from windlass.secrets.providers.configuration import Configuration, SecretText, form

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel

    from windlass.secrets.provider import Manager, Subject
    from windlass.secrets.providers.endpoints import Endpoints

AUDIENCE = "sts.amazonaws.com"
NAME = re.compile(
    r"[\w/+=.@-]{1,512}|arn:aws[\w-]*:secretsmanager:[a-z0-9-]+:\d{12}:secret:[\w/+=.@-]{1,512}", re.ASCII
)
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


class Aws:
    name: ClassVar[str] = "aws"
    title: ClassVar[str] = "AWS Secrets Manager"
    extra: ClassVar[str | None] = "aws"
    methods: ClassVar[Mapping[str, type[BaseModel]]] = {
        "access_keys": AccessKeys,
        "assume_role": AssumedRole,
        WORKLOAD_IDENTITY: WorkloadIdentity,
    }

    def __init__(self, endpoints: Endpoints) -> None:
        self._endpoints = endpoints

    def connect(self, method: str, configuration: BaseModel, subject: Subject) -> Manager:
        from windlass.secrets.providers.aws.manager import connected  # noqa: PLC0415 - imports the client

        return connected(method, configuration, subject, self._endpoints)

    def check_name(self, name: str) -> None:
        if not NAME.fullmatch(name):
            raise BadCredential(
                f"{name[:200]!r} is no name of a secret of AWS.",
                "A name has letters, digits and /_+=.@-, at most 512 of them. The ARN of a secret is valid too.",
            )

    def identity_values(self, issuer: str, subject: str) -> IdentityValues:
        host = issuer.partition("://")[2]
        provider = f"arn:aws:iam::ACCOUNT_ID:oidc-provider/{host}"
        trust = _policy(
            "sts:AssumeRoleWithWebIdentity",
            Principal={"Federated": provider},
            Condition={"StringEquals": {f"{host}:aud": AUDIENCE, f"{host}:sub": subject}},
        )
        reading = _policy("secretsmanager:GetSecretValue", Resource="arn:aws:secretsmanager:REGION:ACCOUNT_ID:secret:*")
        return IdentityValues(
            AUDIENCE,
            {"Provider URL": issuer, "Audience": AUDIENCE, "Subject": subject, "Trust policy of the role": trust},
            f"aws iam create-open-id-connect-provider --url {issuer} --client-id-list {AUDIENCE}\n"
            f"aws iam create-role --role-name windlass --assume-role-policy-document '{trust}'\n"
            f"aws iam put-role-policy --role-name windlass --policy-name secrets --policy-document '{reading}'",
        )


def _policy(action: str, **parts: object) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": action, **parts}]})
