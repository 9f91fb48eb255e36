from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from windlass.kickoffs.ids import new_id
from windlass.store.tokens import NewToken, TokenRow, TokenStore

if TYPE_CHECKING:
    from store.kickoff_rows import Rows

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
FAR_AWAY = datetime(2120, 1, 1, tzinfo=UTC)


class TokenRows:
    def __init__(self, rows: Rows) -> None:
        self.store = TokenStore(rows.database)
        self.deployment = rows.deployment.id

    def new(self, last_four: str = "abcd", *, shown: bool = False, **fields: Any) -> NewToken:
        row = replace(TokenRow(new_id(), "organization", self.deployment, None, None, None), **fields)
        return NewToken(row, row.id.bytes, last_four, "sealed" if shown else None)

    async def add(self, last_four: str = "abcd", *, shown: bool = False, **fields: Any) -> NewToken:
        token = self.new(last_four, shown=shown, **fields)
        assert await self.store.add(token)
        return token


@pytest.fixture
def tokens(rows: Rows) -> TokenRows:
    return TokenRows(rows)


async def found(tokens: TokenRows, digest: bytes) -> TokenRow | None:
    return (await tokens.store.by_digests([digest])).get(digest)


async def test_a_token_is_found_by_its_digest(tokens: TokenRows) -> None:
    token = await tokens.add(profile="live", expires_at=FAR_AWAY)
    assert await found(tokens, token.digest) == token.row
    assert await found(tokens, b"another") is None
    other = await tokens.add("efgh")
    both = await tokens.store.by_digests([other.digest, b"another", token.digest, token.digest])
    assert both == {token.digest: token.row, other.digest: other.row}


async def test_a_token_that_is_revoked_is_not_found_and_one_that_has_expired_is_found_as_such(
    tokens: TokenRows,
) -> None:
    revoked, expired = await tokens.add(), await tokens.add(expires_at=LONG_AGO)
    assert await tokens.store.revoke(revoked.row.id) == revoked.row
    assert await found(tokens, revoked.digest) is None
    ended = await found(tokens, expired.digest)
    assert ended is not None
    assert ended.expired


async def test_a_token_is_revoked_once(tokens: TokenRows) -> None:
    token = await tokens.add()
    assert await tokens.store.revoke(token.row.id) is not None
    assert await tokens.store.revoke(token.row.id) is None
    assert await tokens.store.revoke(new_id()) is None


async def test_a_crew_shows_one_token_of_each_kind(tokens: TokenRows) -> None:
    first = await tokens.add(shown=True)
    assert not await tokens.store.add(tokens.new(shown=True))
    assert [row["id"] for row in await tokens.store.shown(tokens.deployment)] == [first.row.id]
    await tokens.store.revoke(first.row.id)
    second = await tokens.add(shown=True)
    assert [row["id"] for row in await tokens.store.shown(tokens.deployment)] == [second.row.id]


async def test_two_tokens_with_one_digest_are_an_error(tokens: TokenRows) -> None:
    token = await tokens.add()
    with pytest.raises(psycopg.errors.UniqueViolation):
        await tokens.store.add(replace(tokens.new(), digest=token.digest))


async def test_a_token_that_is_replaced_ends_as_its_successor_begins(tokens: TokenRows) -> None:
    old = await tokens.add(shown=True, profile="live")
    new = tokens.new(shown=True)
    seen: list[tuple[TokenRow, bool]] = []

    def successor(row: TokenRow, shown: bool) -> NewToken:
        seen.append((row, shown))
        return new

    assert await tokens.store.replace(old.row.id, successor) == new.row
    assert seen == [(old.row, True)]
    assert await found(tokens, old.digest) is None
    assert await found(tokens, new.digest) == new.row


async def test_a_token_whose_successor_cannot_be_made_stays(tokens: TokenRows) -> None:
    old = await tokens.add()

    def none(row: TokenRow, shown: bool) -> NewToken:
        raise LookupError

    with pytest.raises(LookupError):
        await tokens.store.replace(old.row.id, none)
    assert await found(tokens, old.digest) == old.row


async def test_what_is_no_token_any_more_is_not_replaced(tokens: TokenRows) -> None:
    old = await tokens.add()
    await tokens.store.revoke(old.row.id)
    assert await tokens.store.replace(old.row.id, lambda row, shown: tokens.new()) is None


async def test_a_token_is_named_by_its_last_characters_or_its_id(tokens: TokenRows) -> None:
    one, other = await tokens.add("abcd"), await tokens.add("wxyz")
    assert await tokens.store.named("abcd") == [one.row.id]
    assert await tokens.store.named(str(other.row.id)) == [other.row.id]
    assert await tokens.store.named("none") == []
    await tokens.add("abcd")
    await tokens.add("abcd")
    assert len(await tokens.store.named("abcd")) == 2


async def test_tokens_are_listed_in_the_order_of_their_making(tokens: TokenRows) -> None:
    user = await tokens.store.add_user("ada")
    first = await tokens.add("aaaa", shown=True)
    second = await tokens.add("bbbb", deployment_id=None, kind="user", user_id=user)
    over = await tokens.add("cccc", expires_at=LONG_AGO)
    listed = await tokens.store.all()
    assert [(row["id"], row["deployment"], row["user"], row["shown"]) for row in listed] == [
        (first.row.id, "work", None, True),
        (second.row.id, None, "ada", False),
    ]
    assert [row["id"] for row in await tokens.store.all(revoked_too=True)][-1] == over.row.id
    assert len(await tokens.store.all(limit=1)) == 1


async def test_the_last_use_is_noted_and_never_goes_back(tokens: TokenRows) -> None:
    token = await tokens.add()
    now = datetime.now(UTC)
    await tokens.store.note_use([token.row.id, new_id()], now)
    await tokens.store.note_use([token.row.id], now - timedelta(hours=1))
    (row,) = await tokens.store.all()
    assert row["last_used_at"] == now


async def test_a_name_is_one_users(tokens: TokenRows) -> None:
    ada = await tokens.store.add_user("ada")
    assert ada is not None
    assert await tokens.store.add_user("ada") is None
    found = await tokens.store.user("ada")
    assert found
    assert (found.id, found.name, found.disabled_at) == (ada, "ada", None)
    assert await tokens.store.user("nobody") is None


async def test_a_setting_keeps_its_first_value(tokens: TokenRows) -> None:
    assert await tokens.store.set_once("pepper", "first") == "first"
    assert await tokens.store.set_once("pepper", "second") == "first"


def test_a_token_has_expired_when_its_time_is_over(tokens: TokenRows) -> None:
    row = tokens.new().row
    assert not row.expired
    assert not replace(row, expires_at=FAR_AWAY).expired
    assert replace(row, expires_at=LONG_AGO).expired
