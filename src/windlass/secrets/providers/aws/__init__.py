"""AWS Secrets Manager."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from windlass.secrets.provider import BadCredential, IdentityValues, Provider
from windlass.secrets.providers.aws.methods import AUDIENCE, METHODS, TITLE

if TYPE_CHECKING:
    from windlass.secrets.provider import Manager, Subject

NAME = re.compile(
    r"[\w/+=.@-]{1,512}|arn:aws[\w-]*:secretsmanager:[a-z0-9-]+:\d{12}:secret:[\w/+=.@-]{1,512}", re.ASCII
)


class Aws(Provider):
    name = "aws"
    title = TITLE
    extra = "aws"
    methods = METHODS

    def connect(self, configuration: Any, subject: Subject) -> Manager:
        from windlass.secrets.providers.aws.manager import AwsManager  # noqa: PLC0415 - imports the client

        return AwsManager(configuration, subject, self._endpoints)

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
