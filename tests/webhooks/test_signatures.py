"""Signatures, as the package `standardwebhooks` verifies them."""

from __future__ import annotations

import time

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from windlass.kickoffs.ids import new_id
from windlass.secrets.key_ring import Damaged, KeyRing, MasterKey
from windlass.webhooks import signatures
from windlass.webhooks.signatures import BOTH_FOR, SigningSecret

pytestmark = pytest.mark.unit

BODY = '{"kickoff_id": "é"}'.encode()
RING = KeyRing([MasterKey(b"k" * 32)])


def test_a_signature_is_that_of_the_standard() -> None:
    (secret,) = signatures.first()
    headers = signatures.signed(new_id(), BODY, [secret], time.time())
    assert Webhook(secret.value).verify(BODY, headers) == {"kickoff_id": "é"}


@pytest.mark.parametrize("change", ["webhook-id", "webhook-timestamp", "webhook-signature", "body"])
def test_nothing_can_be_changed(change: str) -> None:
    (secret,) = signatures.first()
    headers = signatures.signed(new_id(), BODY, [secret], time.time())
    if change != "body":
        headers[change] = f"{headers[change][:-2]}00"
    with pytest.raises(WebhookVerificationError):
        Webhook(secret.value).verify(BODY + b" " if change == "body" else BODY, headers)


def test_both_secrets_sign_after_a_rotation() -> None:
    before = signatures.first()
    after = signatures.rotated(before, time.time())
    headers = signatures.signed(new_id(), BODY, after, time.time())
    assert len(headers["webhook-signature"].split(" ")) == 2
    for secret in (*before, after[0]):
        assert Webhook(secret.value).verify(BODY, headers)


def test_a_former_secret_ends() -> None:
    before = signatures.first()
    after = signatures.rotated(before, now := time.time())
    assert signatures.valid(after, now + BOTH_FOR + 1) == after[:1]
    third = signatures.rotated(after, now)
    assert [one.value for one in third[1:]] == [after[0].value]


def test_secrets_are_sealed_for_their_deployment() -> None:
    one, other, secret = new_id(), new_id(), signatures.first()
    text = signatures.sealed(RING, one, secret)
    assert secret[0].value not in text
    assert signatures.opened(RING, one, text) == secret
    with pytest.raises(Damaged):
        signatures.opened(RING, other, text)


def test_a_secret_is_random() -> None:
    assert len({signatures.new_secret() for _ in range(100)}) == 100
    assert SigningSecret("whsec_x") == SigningSecret("whsec_x", None)
