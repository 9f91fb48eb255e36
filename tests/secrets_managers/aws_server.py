"""AWS: moto, which checks signatures and policies, and a layer that verifies tokens of an OIDC issuer, as AWS does.

moto does not look at the token of AssumeRoleWithWebIdentity.
"""

from __future__ import annotations

import base64
import json
import re
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

from moto import settings
from moto.core.authorization import ActionAuthenticatorMixin
from moto.iam.models import iam_backends
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.secretsmanager.models import secretsmanager_backends
from moto.secretsmanager.responses import SecretsManagerResponse
from moto.sts.models import sts_backends
from werkzeug.wrappers import Request, Response

from secrets_managers.serving import Faults, served
from secrets_managers.token_issuer import Invalid, RelyingParty, unverified
from windlass.secrets.providers.endpoints import Endpoints

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from secrets_managers.serving import App

ACCOUNT = "123456789012"
REGION = "eu-central-1"
AUDIENCE = "sts.amazonaws.com"
READING = ["secretsmanager:GetSecretValue", "secretsmanager:ListSecrets"]
EXTERNAL_ID = "external-1"
DENIED = "Not authorized to perform sts:AssumeRoleWithWebIdentity"


def _document(**statement: Any) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", **statement}]})


def _resource_of(self: Any) -> str:
    """Moto compares policies with the resource `*` only; this is the ARN of the secret that a call is about."""
    name = (json.loads(self.body) if self.body else {}).get("SecretId")
    if not name:
        return "*"
    found = secretsmanager_backends[ACCOUNT][self.region].secrets.get(name)
    return str(found.arn) if found else f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:{name}"


def _error(status: int, code: str, message: str) -> Response:
    error = f"<Error><Type>Sender</Type><Code>{code}</Code><Message>{escape(message)}</Message></Error>"
    body = f'<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">{error}</ErrorResponse>'
    return Response(body, status, content_type="text/xml")


def _throttled() -> Response:
    return Response('{"__type": "ThrottlingException", "message": "Rate exceeded"}', 400)


@dataclass
class WebIdentity:
    """Answers AssumeRoleWithWebIdentity, and turns moto's XML errors of a JSON service into JSON."""

    app: App
    parties: dict[str, RelyingParty] = field(default_factory=dict)

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        request = Request(environ)
        body = request.get_data(cache=True)
        form = {name: values[0] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}
        if form.get("Action") == "AssumeRoleWithWebIdentity":
            return self._assume(form)(environ, start)
        answer = Response.from_app(self._of_moto, environ | {"wsgi.input": _Body(body)}, buffered=True)
        return answer(environ, start)

    def _of_moto(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        answer = Response.from_app(self.app, environ, buffered=True)
        found = re.search(rb"<Code>(\w+)</Code>.*?<Message>(.*?)</Message>", answer.get_data(), re.DOTALL)
        if environ.get("HTTP_X_AMZ_TARGET") and answer.status_code in {400, 403} and found:
            words = {"AccessDenied": "AccessDeniedException", "InvalidClientTokenId": "UnrecognizedClientException"}
            code = words.get(found[1].decode(), found[1].decode())
            document = json.dumps({"__type": code, "message": found[2].decode()})
            answer = Response(document, 400, content_type="application/x-amz-json-1.1")
        return answer(environ, start)

    def _assume(self, form: dict[str, str]) -> Response:
        token = form["WebIdentityToken"]
        issuer = str(unverified(token).get("iss", ""))
        host = issuer.partition("://")[2]
        iam = iam_backends[ACCOUNT]["aws"]
        providers = [
            one for arn, one in iam.open_id_providers.items() if host and arn.endswith(f"oidc-provider/{host}")
        ]
        if not providers:
            text = f"No OpenIDConnect provider found in your account for {issuer}"
            return _error(400, "InvalidIdentityToken", text)
        try:
            claims = self._verified(token, issuer, providers[0].client_id_list)
        except Invalid as error:
            text = str(error)
            code = "ExpiredTokenException" if "Expired" in text else "InvalidIdentityToken"
            return _error(400, code, "Incorrect token audience" if "Audience" in text else text)
        role = next((one for one in iam.get_roles() if one.arn == form["RoleArn"]), None)
        if role is None or not _trusts(json.loads(role.assume_role_policy_document), providers[0].arn, host, claims):
            return _error(403, "AccessDenied", DENIED)
        return _assumed(form, claims)

    def _verified(self, token: str, issuer: str, audiences: list[str]) -> dict[str, Any]:
        party = self.parties.setdefault(issuer, RelyingParty(issuer))
        error = Invalid("no audience")
        for audience in audiences:
            try:
                return party.verify(token, audience)
            except Invalid as found:
                error = found
        raise error


class _Body:
    """The body that was read, for the application behind."""

    def __init__(self, content: bytes) -> None:
        self._rest = content

    def read(self, size: int = -1) -> bytes:
        taken, self._rest = (self._rest, b"") if size < 0 else (self._rest[:size], self._rest[size:])
        return taken


def _trusts(document: dict[str, Any], provider: str, host: str, claims: dict[str, Any]) -> bool:
    """Evaluates the trust policy of a role, with conditions StringEquals only."""
    for statement in document["Statement"]:
        conditions = statement.get("Condition", {}).get("StringEquals", {})
        if (
            statement["Effect"] == "Allow"
            and statement["Action"] == "sts:AssumeRoleWithWebIdentity"
            and statement.get("Principal", {}).get("Federated") == provider
            and all(claims.get(name.removeprefix(f"{host}:")) == value for name, value in conditions.items())
        ):
            return True
    return False


def _assumed(form: dict[str, str], claims: dict[str, Any]) -> Response:
    made = sts_backends[ACCOUNT]["aws"].assume_role_with_web_identity(
        region_name=REGION,
        role_session_name=form["RoleSessionName"],
        role_arn=form["RoleArn"],
        policy=None,
        duration=int(form["DurationSeconds"]),
        external_id=None,
    )
    name = "AssumeRoleWithWebIdentity"
    return Response(
        f'<{name}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><{name}Result>'
        f"<SubjectFromWebIdentityToken>{escape(claims['sub'])}</SubjectFromWebIdentityToken>"
        f"<AssumedRoleUser><Arn>{made.arn}</Arn><AssumedRoleId>{made.user_id}</AssumedRoleId></AssumedRoleUser>"
        f"<Credentials><AccessKeyId>{made.access_key_id}</AccessKeyId>"
        f"<SecretAccessKey>{escape(made.secret_access_key)}</SecretAccessKey>"
        f"<SessionToken>{escape(made.session_token)}</SessionToken>"
        f"<Expiration>{made.expiration:%Y-%m-%dT%H:%M:%SZ}</Expiration></Credentials>"
        f"</{name}Result><ResponseMetadata><RequestId>0</RequestId></ResponseMetadata></{name}Response>",
        content_type="text/xml",
    )


class AwsServer:
    name = "aws"

    def __init__(self, address: str, faults: Faults) -> None:
        self.endpoints = Endpoints(aws_secretsmanager=address, aws_sts=address)
        self.faults = faults
        self._iam = iam_backends[ACCOUNT]["aws"]
        self._secrets = secretsmanager_backends[ACCOUNT][REGION]
        self._user = self._iam.create_user(REGION, "reader")
        self._assuming = self._iam.create_user(REGION, "assuming")
        self._keys = {one.name: self._iam.create_access_key(one.name) for one in (self._user, self._assuming)}
        trusted = {"Principal": {"AWS": self._assuming.arn}, "Action": "sts:AssumeRole"}
        condition = {"StringEquals": {"sts:ExternalId": EXTERNAL_ID}}
        self._assumed = self._role("assumed", _document(**trusted, Condition=condition))
        assume = _document(Action="sts:AssumeRole", Resource=self._assumed)
        self._iam.put_user_policy("assuming", "assume", assume)
        self._federated: dict[tuple[str, str], str] = {}
        self._trusting = ""
        self._permit(READING)

    def trust(self, issuer: str, subject: str) -> None:
        if (issuer, subject) not in self._federated:
            self._federated[issuer, subject] = self._trusting_role(issuer, subject)
            self._permit(READING)
        self._trusting = self._federated[issuer, subject]

    def _trusting_role(self, issuer: str, subject: str) -> str:
        host = issuer.partition("://")[2]
        provider = self._iam.create_open_id_connect_provider(issuer, ["0" * 40], [AUDIENCE], [])
        condition = {"StringEquals": {f"{host}:aud": AUDIENCE, f"{host}:sub": subject}}
        trusted = {"Principal": {"Federated": provider.arn}, "Action": "sts:AssumeRoleWithWebIdentity"}
        return self._role(f"federated-{len(self._federated)}", _document(**trusted, Condition=condition))

    def configuration(self, method: str) -> dict[str, Any]:
        if method == "workload_identity":
            return {"region": REGION, "role_arn": self._trusting}
        key = self._keys["reader" if method == "access_keys" else "assuming"]
        keys = {"region": REGION, "access_key_id": key.access_key_id, "secret_access_key": key.secret_access_key}
        return keys if method == "access_keys" else {**keys, "role_arn": self._assumed, "external_id": EXTERNAL_ID}

    def put(self, name: str, value: str) -> None:
        if name in self._secrets.secrets:
            self._secrets.update_secret(name, secret_string=value, client_request_token=str(uuid.uuid4()))
        else:
            self._secrets.create_secret(name, value, None, None, None, None, None, [], False)

    def put_binary(self, name: str, value: bytes) -> None:
        self._secrets.create_secret(name, None, base64.b64encode(value).decode(), None, None, None, None, [], False)

    def mark_for_deletion(self, name: str) -> None:
        self._secrets.delete_secret(name, 7, False)

    @contextmanager
    def forbidden(self) -> Iterator[None]:
        self._permit(["secretsmanager:DescribeSecret"])
        try:
            yield
        finally:
            self._permit(READING)

    def end_tokens(self) -> None:
        sts_backends[ACCOUNT]["aws"].assumed_roles.clear()

    def unreachable(self, port: int) -> Endpoints:
        return Endpoints(aws_secretsmanager=f"http://127.0.0.1:{port}", aws_sts=f"http://127.0.0.1:{port}")

    def _role(self, name: str, trust: str) -> str:
        return str(self._iam.create_role(name, trust, "/", None, "", [], None).arn)

    def _permit(self, actions: list[str]) -> None:
        policy = _document(Action=actions, Resource=f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:*")
        listing = _document(Action=[one for one in actions if one.endswith("ListSecrets")] or actions, Resource="*")
        for name, document in (("read", policy), ("list", listing)):
            self._iam.put_user_policy("reader", name, document)
            for arn in (self._assumed, *self._federated.values()):
                self._iam.put_role_policy(arn.rpartition("/")[2], name, document)


@contextmanager
def aws_server() -> Iterator[AwsServer]:
    responses: Any = SecretsManagerResponse
    responses._determine_resource = _resource_of  # moto asks for it where there is one
    settings.INITIAL_NO_AUTH_ACTION_COUNT, before = 0, settings.INITIAL_NO_AUTH_ACTION_COUNT
    ActionAuthenticatorMixin.request_count = 0
    faults = Faults(WebIdentity(DomainDispatcherApplication(create_backend_app)), _throttled)
    try:
        with served(faults) as address:
            yield AwsServer(address, faults)
    finally:
        del responses._determine_resource
        settings.INITIAL_NO_AUTH_ACTION_COUNT = before
        for backends in (iam_backends, sts_backends, secretsmanager_backends):
            backends.reset()
