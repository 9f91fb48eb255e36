"""The OIDC issuer: its keys, documents and tokens, judged by another library than its own."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet, RSAKey

from windlass.secrets.oidc import BadSigningKey, Issuer, SigningKey, doubt_about, keys_of_variable, signing_key

pytestmark = pytest.mark.unit


URL, ORGANIZATION = "https://crews.example.com", "5b0c4b6e-3c52-4a58-9d0c-2f5a9f1d1f10"
PRIVATE_MEMBERS = {"d", "p", "q", "dp", "dq", "qi"}


@cache
def key(number: int = 1) -> SigningKey:
    return SigningKey.made(signs_from=float(number))


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.7

    def __call__(self) -> float:
        return self.now


def issuer(*keys: SigningKey, clock: Clock | None = None) -> Issuer:
    return Issuer(URL, ORGANIZATION, keys or (key(),), clock=clock or Clock())


def claims_of(token: str, found: Issuer, **expected: Any) -> dict[str, Any]:
    """The claims, once joserfc has checked the signature against the published keys."""
    opened = jwt.decode(token, KeySet.import_key_set(found.jwks()), algorithms=["RS256"])  # type: ignore[arg-type]
    registry = jwt.JWTClaimsRegistry(
        now=lambda: 1_800_000_000,
        **{name: {"essential": True, "value": value} for name, value in expected.items()},  # type: ignore[arg-type]
    )
    registry.validate(opened.claims)
    return opened.claims


def test_a_token_has_the_claims_that_the_providers_check() -> None:
    found = issuer()
    claims = claims_of(found.token("sts.amazonaws.com", key()), found, iss=URL, aud="sts.amazonaws.com")
    assert claims.pop("jti")
    assert claims == {
        "iss": URL,
        "sub": f"organization:{ORGANIZATION}",
        "aud": "sts.amazonaws.com",
        "iat": 1_800_000_000,
        "nbf": 1_799_999_970,
        "exp": 1_800_003_600,
        "organization_id": ORGANIZATION,
    }


def test_another_library_computes_the_same_public_key_and_id() -> None:
    other = RSAKey.import_key(key().pem)
    assert key().id == other.thumbprint()
    public = other.as_dict(private=False)
    assert key().public == {**public, "kid": key().id, "use": "sig", "alg": "RS256"}


def test_a_key_is_the_same_after_it_was_written_and_read() -> None:
    again = SigningKey.from_pem(key().pem, "here", signs_from=1.0)
    assert (again.id, again.public, again.signs_from) == (key().id, key().public, 1.0)


def test_no_private_member_is_published_or_printed() -> None:
    found = issuer(key(), key(2))
    for one in found.jwks()["keys"]:
        assert not PRIVATE_MEMBERS & set(one)
    assert repr(key()) == f"SigningKey(id='{key().id}', signs_from=1.0)"


def test_the_discovery_document_names_the_issuer_byte_for_byte() -> None:
    document = issuer().discovery()
    assert (document["issuer"], document["jwks_uri"]) == (URL, f"{URL}/oauth2/jwks")
    assert document["id_token_signing_alg_values_supported"] == ["RS256"]
    assert {"response_types_supported", "subject_types_supported"} <= set(document)


def test_a_token_is_cached_for_its_audience_until_five_minutes_before_its_end() -> None:
    clock = Clock()
    found = issuer(clock=clock)
    first = found.token("a", key())
    clock.now += 3299
    assert found.token("a", key()) == first
    assert found.token("b", key()) != first
    clock.now += 2
    second = found.token("a", key())
    assert second != first
    assert found.token("a", key()) == second
    assert found.token("a", key(2)) != second


def test_audiences_without_end_do_not_fill_the_memory() -> None:
    found = issuer()
    found._cache = {(str(number), "id"): ("token", 0.0) for number in range(1000)}
    found.token("one more", key())
    assert len(found._cache) == 1


def test_the_newest_key_that_may_sign_signs_and_all_are_published() -> None:
    first, second, third = key(1), key(2), key(3)
    keys = (first, second, third)
    assert signing_key((), 5.0) is None
    assert [signing_key(keys, now) for now in (1.0, 2.5, 3.0)] == [first, second, third]
    assert signing_key(keys, 0.5) is first, "a clock that is behind does not leave the server without a key"
    found = issuer(*keys)
    assert [one["kid"] for one in found.jwks()["keys"]] == [first.id, second.id, third.id]
    for one in keys:
        claims_of(found.token("a", one), found, iss=URL)


def test_a_token_of_a_withdrawn_key_is_refused() -> None:
    token = issuer(key(1)).token("a", key(1))
    with pytest.raises((JoseError, ValueError)):
        claims_of(token, issuer(key(2)))


def test_the_variable_holds_several_keys_and_the_first_one_signs() -> None:
    for text in (f"{key(1).pem}\n{key(2).pem}", (key(1).pem + key(2).pem).replace("\n", "\\n")):
        keys = keys_of_variable(text)
        assert [one.id for one in keys] == [key(1).id, key(2).id]
        assert signing_key(keys, 0.0) is keys[0]


def test_a_key_in_the_older_form_is_read_too() -> None:
    pem = key().private.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()).decode()
    assert keys_of_variable(pem)[0].id == key().id


def _pem(private: Any, password: bytes | None = None) -> str:
    how = BestAvailableEncryption(password) if password else NoEncryption()
    return str(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how).decode())


BAD = {
    "": "no PEM private key",
    "hunter2": "no PEM private key",
    "-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----": "this is no PEM private key",
    "public": "no PEM private key",
    "encrypted": "the key is encrypted",
    "curve": "this is no RSA key",
    "short": "has 1024 bits",
    "second": "OIDC_PRIVATE_KEY, key 2: this is no PEM private key",
    "many": "holds 11 keys",
}


@pytest.mark.parametrize("text", BAD)
def test_keys_that_cannot_sign_are_refused_without_a_word_of_them(text: str) -> None:
    public = key().private.public_key()
    made = {
        "public": lambda: public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode(),
        "encrypted": lambda: _pem(key().private, b"hunter2"),
        "curve": lambda: _pem(ec.generate_private_key(ec.SECP256R1())),
        "short": lambda: _pem(rsa.generate_private_key(65537, 1024)),
        "second": lambda: f"{key().pem}-----BEGIN RSA PRIVATE KEY-----\nhunter2\n-----END RSA PRIVATE KEY-----",
        "many": lambda: key().pem * 11,
    }.get(text, lambda: text)()
    with pytest.raises(BadSigningKey, match=BAD[text]) as caught:
        keys_of_variable(made)
    assert "hunter2" not in str(caught.value)
    assert not any(line in str(caught.value) for line in made.splitlines() if len(line) == 64)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://crews.example.com", None),
        ("https://crews.example.com:8443/windlass", None),
        ("http://crews.example.com", "no https address"),
        ("https://localhost:8000", "address of this machine"),
        ("http://127.0.0.1:8000", "address of this machine"),
        ("http://[::1]:8000", "address of this machine"),
    ],
)
def test_an_issuer_that_cloud_providers_would_refuse_is_doubted(url: str, expected: str | None) -> None:
    doubt = doubt_about(url)
    assert doubt is None if expected is None else expected in (doubt or "")
