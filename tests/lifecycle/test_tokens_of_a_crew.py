from __future__ import annotations

import asyncio
import base64
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from lifecycle.waiting import until
from windlass.access.tokens import NoSuchToken, NoSuchUser, Tokens, TokenUse
from windlass.secrets.key_ring import KeyRing, MasterKey, UnknownKey
from windlass.secrets.secret import TokenKind, kind_of, last_four
from windlass.store.database import Database
from windlass.store.tokens import TokenStore

if TYPE_CHECKING:
    from lifecycle.token_bench import TokenBench
    from store.proxy import Proxy
    from windlass.secrets.secret import Secret
    from windlass.store.tokens import TokenRow


async def row_of(bench: TokenBench, token: Secret) -> TokenRow | None:
    digest = bench.tokens.digest(token.reveal())
    return (await bench.store.by_digests([digest])).get(digest)


async def test_a_crew_shows_a_token_of_each_kind_and_always_the_same(bench: TokenBench) -> None:
    shown = await bench.tokens.show(bench.deployment)
    assert kind_of(shown.organization.reveal()) is TokenKind.ORGANIZATION
    assert kind_of(shown.user.reveal()) is TokenKind.USER
    assert shown.user_name == "owner"
    again = await bench.tokens.show(bench.deployment)
    assert (again.organization.reveal(), again.user.reveal()) == (shown.organization.reveal(), shown.user.reveal())


async def test_servers_that_show_at_the_same_instant_show_the_same(bench: TokenBench) -> None:
    servers = [await Tokens.open(bench.store, bench.key_ring) for _ in range(8)]
    shown = await asyncio.gather(*(server.show(bench.deployment) for server in servers))
    assert len({(one.organization.reveal(), one.user.reveal()) for one in shown}) == 1
    assert len(await bench.tokens.all()) == 2


async def test_what_the_shown_tokens_may_do(bench: TokenBench) -> None:
    shown = await bench.tokens.show(bench.deployment)
    organization, user = await row_of(bench, shown.organization), await row_of(bench, shown.user)
    assert organization is not None
    assert (organization.kind, organization.deployment_id, organization.user_id) == (
        "organization",
        bench.deployment.id,
        None,
    )
    assert user is not None
    assert (user.kind, user.deployment_id, user.user_id) == (
        "user",
        bench.deployment.id,
        await bench.tokens.enabled_user("owner"),
    )


async def test_a_shown_token_that_was_revoked_gets_a_successor(bench: TokenBench) -> None:
    first = await bench.tokens.show(bench.deployment)
    await bench.tokens.revoke(last_four(first.user.reveal()))
    second = await bench.tokens.show(bench.deployment)
    assert second.organization.reveal() == first.organization.reveal()
    assert second.user.reveal() != first.user.reveal()
    assert await row_of(bench, first.user) is None


async def test_neither_table_nor_log_holds_a_token(bench: TokenBench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    shown = await bench.tokens.show(bench.deployment)
    rows = await bench.database.rows("SELECT tokens.*::text AS row FROM tokens")
    kept = f"{rows}{caplog.text}{[vars(record) for record in caplog.records]}{shown!r}"
    for token in (shown.organization, shown.user):
        assert token.reveal() not in kept
        assert token.reveal()[4:20] not in kept


async def test_a_token_is_made_with_what_it_may_do(bench: TokenBench) -> None:
    ada = await bench.tokens.add_user("ada")
    at = datetime(2120, 1, 1, tzinfo=UTC)
    token = await bench.tokens.create(bench.deployment.id, user=ada, profile="live", expires_at=at)
    row = await row_of(bench, token)
    assert row is not None
    assert (row.kind, row.deployment_id, row.user_id, row.profile, row.expires_at) == (
        "user",
        bench.deployment.id,
        ada,
        "live",
        at,
    )
    everywhere = await row_of(bench, await bench.tokens.create(None))
    assert everywhere is not None
    assert (everywhere.kind, everywhere.deployment_id) == ("organization", None)


async def test_a_rotated_token_may_do_what_the_old_one_could(bench: TokenBench) -> None:
    old = await bench.tokens.create(None, profile="live", expires_at=datetime(2120, 1, 1, tzinfo=UTC))
    before = await row_of(bench, old)
    new = await bench.tokens.rotate(last_four(old.reveal()))
    after = await row_of(bench, new)
    assert before is not None
    assert after is not None
    assert before.id != after.id
    assert (before.kind, before.deployment_id, before.profile, before.expires_at) == (
        after.kind,
        after.deployment_id,
        after.profile,
        after.expires_at,
    )
    assert await row_of(bench, old) is None


async def test_a_shown_token_that_is_rotated_is_shown_as_it_is_now(bench: TokenBench) -> None:
    shown = await bench.tokens.show(bench.deployment)
    new = await bench.tokens.rotate(last_four(shown.organization.reveal()))
    again = await bench.tokens.show(bench.deployment)
    assert again.organization.reveal() == new.reveal()
    assert again.user.reveal() == shown.user.reveal()


async def test_a_token_that_was_not_shown_is_not_shown_when_it_is_rotated(bench: TokenBench) -> None:
    token = await bench.tokens.create(bench.deployment.id)
    await bench.tokens.rotate(last_four(token.reveal()))
    assert await bench.store.shown(bench.deployment.id) == []


async def test_a_token_is_named_by_its_id_too(bench: TokenBench) -> None:
    token = await bench.tokens.create(None)
    row = await row_of(bench, token)
    assert row is not None
    assert await bench.tokens.revoke(str(row.id)) == row


NO_TOKEN = ["", "abc", "abcde", "zzzz", "%%%%", "wlo_x", "019ab0c4-7d1e-7cc3-98c4-dc0c0c07398f", "\ud800abc"]


@pytest.mark.parametrize("name", NO_TOKEN)
async def test_a_name_of_no_token_is_told(bench: TokenBench, name: str) -> None:
    await bench.tokens.show(bench.deployment)
    for change in (bench.tokens.revoke, bench.tokens.rotate):
        with pytest.raises(NoSuchToken, match="There is no such token"):
            await change(name)
    assert len(await bench.tokens.all()) == 2


async def test_a_token_is_revoked_once(bench: TokenBench) -> None:
    token = await bench.tokens.create(None)
    await bench.tokens.revoke(last_four(token.reveal()))
    with pytest.raises(NoSuchToken):
        await bench.tokens.revoke(last_four(token.reveal()))
    assert [row["revoked_at"] is not None for row in await bench.tokens.all(revoked_too=True)] == [True]


async def test_last_characters_that_two_tokens_share_are_not_enough(bench: TokenBench) -> None:
    await bench.tokens.create(None)
    await bench.tokens.create(None)
    await bench.database.execute("UPDATE tokens SET last_four = 'same'")
    with pytest.raises(NoSuchToken, match="More than one token ends in same"):
        await bench.tokens.revoke("same")
    assert len(await bench.tokens.all()) == 2


async def test_a_user_is_added_once(bench: TokenBench) -> None:
    ada = await bench.tokens.add_user("ada")
    assert await bench.tokens.enabled_user("ada") == ada
    with pytest.raises(Exception, match="There is a user 'ada' already"):
        await bench.tokens.add_user("ada")
    with pytest.raises(NoSuchUser, match="windlass admin users add bob"):
        await bench.tokens.user("bob")


async def test_tokens_stay_valid_at_the_next_start_and_with_a_new_master_key_in_front(bench: TokenBench) -> None:
    shown = await bench.tokens.show(bench.deployment)
    newer = KeyRing([MasterKey(b"n" * 32), MasterKey(bench.master_key)])
    for key_ring in (bench.key_ring, newer):
        tokens = await Tokens.open(bench.store, key_ring)
        assert tokens.digest(shown.user.reveal()) == bench.tokens.digest(shown.user.reveal())
        assert (await tokens.show(bench.deployment)).user.reveal() == shown.user.reveal()


async def test_the_pepper_is_random_and_kept_encrypted(bench: TokenBench) -> None:
    (row,) = await bench.database.rows("SELECT value FROM settings")
    assert base64.b64encode(bench.tokens._pepper).decode() not in row["value"]
    assert len(bench.tokens._pepper) == 32


async def test_another_master_key_than_the_databases_is_told(bench: TokenBench) -> None:
    with pytest.raises(UnknownKey, match=r"needs the master key \w{8}, which this server doesn't have. Add that key"):
        await Tokens.open(bench.store, KeyRing([MasterKey(b"x" * 32)]))


async def test_uses_are_written_once_in_a_while(bench: TokenBench) -> None:
    token = await bench.tokens.create(None)
    row = await row_of(bench, token)
    assert row is not None
    use = TokenUse(bench.store)
    await use.write()
    use.note(row.id)
    use.note(row.id)
    await use.write()
    (listed,) = await bench.tokens.all()
    assert listed["last_used_at"] is not None
    assert use._used == set()


async def test_uses_are_not_forgotten_while_the_database_is_away(
    bench: TokenBench, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.store.database.POOL_WAIT_SECONDS", 0.1)
    row = await row_of(bench, await bench.tokens.create(None))
    assert row is not None
    async with Database(proxy.url) as database:
        use = TokenUse(TokenStore(database))
        use.note(row.id)
        await proxy.close()
        with pytest.raises(Exception, match="does not answer"):
            await use.write()
        await proxy.open()
        await until(database.answers)
        await use.write()
    (listed,) = await bench.tokens.all()
    assert listed["last_used_at"] is not None
