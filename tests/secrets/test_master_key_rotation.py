"""`windlass admin keys`: every stored value is encrypted again under a new master key, and none is lost."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import SecretStr

from store.kickoff_rows import Rows
from windlass.access.tokens import Tokens
from windlass.administration import master_keys
from windlass.administration.opening import key_ring_of
from windlass.config import Settings
from windlass.deployments.configurations import seal_configuration
from windlass.deployments.identity import Identity
from windlass.deployments.variables import open_value, seal_value
from windlass.kickoffs.ids import new_id
from windlass.lifecycle.journal import PURPOSE
from windlass.secrets import key_file, key_ring
from windlass.secrets.key_file import MasterKeyError, keys_of_file, load_key_ring
from windlass.secrets.key_ring import KeyRing, MasterKey, Sealed, UnknownKey, to_base64
from windlass.secrets.secret import Secret
from windlass.store.audit import AuditFilter, AuditStore
from windlass.store.database import Database
from windlass.store.sealed_values import MOST_BYTES, MOST_ROWS, PLACES, KeysInUse, SealedValueStore
from windlass.store.signing_keys import SigningKeyStore
from windlass.store.tokens import TokenStore
from windlass.webhooks import signatures
from windlass.webhooks.endpoints import Endpoints

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
    from pathlib import Path
    from uuid import UUID

NEW = MasterKey(b"n" * 32)
ISSUER = "https://crews.example.com"


@pytest.fixture(autouse=True)
def _settled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(master_keys, "SETTLES_IN", 0.01)


@pytest.fixture
async def database(emptied_url: str) -> AsyncIterator[Database]:
    async with Database(emptied_url) as database:
        yield database


@dataclass(slots=True)
class Filled:
    """A database with one value in each place. `checks` read the value of each place with the keys of a ring."""

    settings: Settings
    database: Database
    rows: Rows
    kickoff: UUID
    ring: KeyRing
    checks: Mapping[Sealed, Callable[[KeyRing], Awaitable[Any]]]

    @property
    def file(self) -> Path:
        return self.settings.home / "master.key"

    async def rotate(self, to: str | None = None) -> master_keys.Rotated:
        return await master_keys.rotate(self.settings, to, lambda *_: None)

    async def rotate_to_new(self) -> master_keys.Rotated:
        return await self.rotate(await master_keys.prepare(self.settings))

    async def add_journal(self, number: int, record: str, ring: KeyRing | None = None) -> None:
        context = Sealed.JOURNAL_RECORD.of(f"{self.kickoff}/{number}")
        sealed = (ring or self.ring).for_purpose(PURPOSE).seal(record, context)
        await self.database.execute(
            "INSERT INTO journal (kickoff_id, attempt, number, key, output_elsewhere, record)"
            " VALUES (%(id)s, 1, %(number)s, %(key)s, false, %(record)s)",
            {"id": self.kickoff, "number": number, "key": f"step {number}", "record": sealed},
        )

    async def states(self) -> dict[str, master_keys.KeyState]:
        return {state.id: state for state in await master_keys.status(self.settings)}


@pytest.fixture
async def filled(database: Database, tmp_path: Path) -> Filled:
    settings = Settings(home=tmp_path / "home", database_url=SecretStr(database.url))
    ring, rows = key_ring_of(settings), await Rows.make(database)
    (kickoff,) = await rows.accept()
    tokens = await Tokens.open(TokenStore(database), ring)
    shown = await tokens.show(rows.deployment)
    identity = await Identity.open(SigningKeyStore(database), ring, ISSUER)
    await identity.prepare()
    credential, deployment = new_id(), rows.deployment.id
    endpoint = Endpoints(ring, b"key").of(rows.deployment.id, "https://hooks.example.com/x")
    await database.execute(
        "INSERT INTO webhook_endpoints (id, deployment_id, host, address) VALUES (%(id)s, %(of)s, 'h', %(value)s)",
        {"id": endpoint.id, "of": endpoint.deployment, "value": endpoint.address},
    )
    secret = signatures.first()
    await database.execute(
        "UPDATE deployments SET webhook_secrets = %(value)s WHERE id = %(id)s",
        {"id": rows.deployment.id, "value": signatures.sealed(ring, rows.deployment.id, secret)},
    )
    await database.execute(
        "INSERT INTO variables (deployment_id, name, value, secret) VALUES (%(id)s, 'A/B', %(value)s, true)",
        {"id": deployment, "value": seal_value(ring, deployment, "A/B", "hunter2")},
    )
    await database.execute(
        "INSERT INTO credentials (id, name, provider, method, configuration)"
        " VALUES (%(id)s, 'c', 'aws', 'm', %(value)s)",
        {"id": credential, "value": seal_configuration(ring, credential, {"a": 1})},
    )

    async def value(table: str, column: str) -> str:
        (row,) = await database.rows(f"SELECT {column} AS value FROM {table} WHERE {column} IS NOT NULL")
        return str(row["value"])

    async def pepper(ring: KeyRing) -> None:
        assert (await Tokens.open(TokenStore(database), ring)).digest("x") == tokens.digest("x")

    async def copies(ring: KeyRing) -> None:
        assert await (await Tokens.open(TokenStore(database), ring)).show(rows.deployment) == shown

    async def webhook_address(ring: KeyRing) -> None:
        found = Endpoints(ring, b"key").open(endpoint.id, await value("webhook_endpoints", "address"))
        assert found.url == "https://hooks.example.com/x"

    async def webhook_secrets(ring: KeyRing) -> None:
        assert signatures.opened(ring, rows.deployment.id, await value("deployments", "webhook_secrets")) == secret

    async def journal(ring: KeyRing) -> None:
        context = Sealed.JOURNAL_RECORD.of(f"{kickoff}/1")
        assert ring.for_purpose(PURPOSE).open(await value("journal", "record"), context) == "output"

    async def variable(ring: KeyRing) -> None:
        assert open_value(ring, deployment, "A/B", await value("variables", "value")) == "hunter2"

    async def configuration(ring: KeyRing) -> None:
        sealed = await value("credentials", "configuration")
        assert ring.open(sealed, Sealed.CREDENTIAL.of(credential)) == '{"a": 1}'

    async def signing_key(ring: KeyRing) -> None:
        found = await Identity.open(SigningKeyStore(database), ring, ISSUER)
        assert found.jwks() == identity.jwks()
        assert found.jwks()["keys"]

    checks = {
        Sealed.TOKEN_PEPPER: pepper,
        Sealed.SHOWN_TOKEN: copies,
        Sealed.WEBHOOK_ADDRESS: webhook_address,
        Sealed.WEBHOOK_SECRETS: webhook_secrets,
        Sealed.JOURNAL_RECORD: journal,
        Sealed.VARIABLE: variable,
        Sealed.CREDENTIAL: configuration,
        Sealed.SIGNING_KEY: signing_key,
    }
    found = Filled(settings, database, rows, kickoff, ring, checks)
    await found.add_journal(1, "output")
    return found


def only(path: Path, key_id: str) -> KeyRing:
    """A ring of one key of the file."""
    return KeyRing([key for key in keys_of_file(path) if key.id == key_id])


async def test_every_place_of_encrypted_values_is_rotated_and_the_old_key_can_go(filled: Filled) -> None:
    assert set(filled.checks) == set(Sealed) - {Sealed.BACKUP_PROBE}, "a place without a test"
    assert set(PLACES) == {str(place) for place in filled.checks}, "a place without a rotation"
    old = filled.ring.current_id
    found = await filled.rotate_to_new()
    assert (found.complete, found.unreadable, found.unneeded) == (True, {}, [old])
    assert found.current != old
    assert {place: count for place, count in found.changed.items() if place != Sealed.SHOWN_TOKEN} == {
        place: 1 for place in PLACES if place != Sealed.SHOWN_TOKEN
    }
    states = await filled.states()
    assert (states[old].total, states[old].current) == (0, False)
    assert states[found.current].values.keys() == PLACES.keys()
    await master_keys.drop(filled.settings, [old])
    assert [key.id for key in keys_of_file(filled.file)] == [found.current]
    entries = await AuditStore(filled.database).listed(AuditFilter(action="keys"), limit=10)
    assert [(one.action, one.target) for one in entries] == [
        ("keys.drop", old),
        ("keys.rotate", found.current),
        ("keys.prepare", found.current),
    ]
    for check in filled.checks.values():
        await check(only(filled.file, found.current))


async def test_servers_without_the_new_key_are_protected(filled: Filled) -> None:
    with pytest.raises(master_keys.NotRotated, match="windlass admin keys prepare"):
        await filled.rotate()
    before = filled.ring.current_id
    prepared = await master_keys.prepare(filled.settings)
    assert [key.id for key in keys_of_file(filled.file)] == [before, prepared], "it does not encrypt yet"
    with pytest.raises(MasterKeyError, match="has no key 00000000"):
        await filled.rotate("00000000")
    assert (await filled.rotate(prepared)).current == prepared


async def test_keys_of_the_variable_are_rotated_without_a_change_of_the_variable(filled: Filled) -> None:
    old = keys_of_file(filled.file)[0]

    def with_keys(*keys: MasterKey) -> Settings:
        text = SecretStr(",".join(to_base64(key.raw) for key in keys))
        return Settings(home=filled.settings.home, database_url=filled.settings.database_url, master_key=text)

    filled.settings = with_keys(old)
    with pytest.raises(master_keys.NotRotated, match="Add a new key as the last one on every server"):
        await filled.rotate()
    with pytest.raises(master_keys.NotRotated, match="WINDLASS_MASTER_KEY"):
        await master_keys.prepare(filled.settings)
    filled.settings = with_keys(NEW, old)
    found = await filled.rotate()
    assert (found.current, found.complete) == (NEW.id, True)
    for check in filled.checks.values():
        await check(KeyRing([NEW]))
    with pytest.raises(master_keys.NotRotated, match="WINDLASS_MASTER_KEY"):
        await master_keys.drop(filled.settings, [old.id])


async def test_a_key_that_is_needed_is_not_dropped(filled: Filled) -> None:
    old, prepared = filled.ring.current_id, await master_keys.prepare(filled.settings)
    with pytest.raises(master_keys.NotRotated, match="encrypts new values"):
        await master_keys.drop(filled.settings, [old])
    with pytest.raises(master_keys.NotRotated, match="has no key"):
        await master_keys.drop(filled.settings, [prepared, "00000000"])
    key_file.put_first(filled.file, prepared)
    with pytest.raises(master_keys.NotRotated, match="stored values need the key"):
        await master_keys.drop(filled.settings, [old])
    assert len(keys_of_file(filled.file)) == 2
    assert (await filled.rotate()).unneeded == [old], "it goes on with the rotation that was begun"


async def test_a_value_that_cannot_be_read_is_named_and_the_others_are_rotated(filled: Filled) -> None:
    stranger = KeyRing([NEW])
    await filled.add_journal(2, "of another server", stranger)
    await filled.database.execute("UPDATE variables SET value = left(value, -3) || 'AAA'")
    found = await filled.rotate_to_new()
    assert found.complete is False
    assert sorted(found.unreadable) == sorted(
        [f"journal.record:{filled.kickoff}/2", f"variables.value:{filled.rows.deployment.id}/A/B"]
    )
    assert NEW.id in found.unreadable[f"journal.record:{filled.kickoff}/2"]
    states = await filled.states()
    assert (states[NEW.id].known, states[NEW.id].total) == (False, 1)
    assert states[filled.ring.current_id].values == {"variables.value": 1}
    with pytest.raises(master_keys.NotRotated, match="1 stored values need the key"):
        await master_keys.drop(filled.settings, [filled.ring.current_id])
    await filled.checks[Sealed.SHOWN_TOKEN](only(filled.file, found.current))


async def test_the_keys_of_another_server_change_nothing(filled: Filled, tmp_path: Path) -> None:
    other = Settings(home=tmp_path / "other", database_url=filled.settings.database_url)
    with pytest.raises(UnknownKey):
        await master_keys.prepare(other)
    with pytest.raises(UnknownKey):
        await master_keys.rotate(other, None, lambda *_: None)
    for check in filled.checks.values():
        await check(filled.ring)


async def test_many_and_large_values_are_read_in_batches_of_a_bounded_size(filled: Filled) -> None:
    store, current = SealedValueStore(filled.database), "00000000"
    for number in range(2, MOST_ROWS + 3):
        await filled.add_journal(number, "x")
    assert len(await store.page("journal.record", current)) == MOST_ROWS
    for number in (2, 3, 4):
        await filled.database.execute(f"DELETE FROM journal WHERE number = {number}")
        await filled.add_journal(number, "x" * (MOST_BYTES // 2))
    page = await store.page("journal.record", current)
    assert len(page) == 3, "the third one exceeds the bound"
    seen = []
    progress = await master_keys.prepare(filled.settings)
    found = await master_keys.rotate(filled.settings, progress, lambda *one: seen.append(one))
    assert found.changed["journal.record"] == MOST_ROWS + 2
    assert [done for place, done, _ in seen if place == "journal.record"][-1] == MOST_ROWS + 2
    assert {total for place, _, total in seen if place == "journal.record"} == {MOST_ROWS + 2}


async def test_a_value_that_changes_during_the_rotation_keeps_its_change(filled: Filled) -> None:
    store, new = SealedValueStore(filled.database), KeyRing([NEW])
    (row,) = await store.page("variables.value", "00000000")
    deployment = filled.rows.deployment.id
    later = seal_value(filled.ring, deployment, "A/B", "changed meanwhile")
    await filled.database.execute("UPDATE variables SET value = %(value)s", {"value": later})
    await store.replace("variables.value", [(row, seal_value(new, deployment, "A/B", "hunter2"))])
    (row,) = await store.page("variables.value", "00000000")
    assert row.value == later


async def test_two_commands_at_once_do_not_mix_their_keys(filled: Filled) -> None:
    @asynccontextmanager
    async def another() -> AsyncIterator[None]:
        async with SealedValueStore(filled.database).exclusive():
            yield

    async with another():
        with pytest.raises(KeysInUse, match="Wait until it has ended"):
            await filled.rotate("any")
        with pytest.raises(KeysInUse):
            await master_keys.prepare(filled.settings)
    await master_keys.prepare(filled.settings)


async def test_a_batch_that_meets_a_lock_waits_for_it(filled: Filled) -> None:
    prepared = await master_keys.prepare(filled.settings)
    async with filled.database.transaction() as connection:
        await connection.execute("SELECT FROM variables FOR UPDATE")
        rotation = asyncio.create_task(filled.rotate(prepared))
        await asyncio.wait([rotation], timeout=0.3)
        assert not rotation.done()
    assert (await rotation).complete


def test_a_running_server_finds_a_new_key_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "master.key"
    running = load_key_ring(path, None)
    journal, old = running.for_purpose(PURPOSE), running.current_id
    added = key_file.add_last(path)
    key_file.put_first(path, added)
    sealed = load_key_ring(path, None).for_purpose(PURPOSE).seal("text", "a.b:1")
    assert running.current_id == old
    assert journal.open(sealed, "a.b:1") == "text"
    assert running.current_id == added, "it encrypts with the new key from then on"
    before = running.seal("text", "a.b:1")
    key_file.remove(path, [old])
    running.master_keys.look_again()
    assert running.open(before, "a.b:1") == "text"
    assert running.master_keys.find(old) is not None, "a key that was removed decrypts until the server stops"


def test_unknown_keys_do_not_make_the_server_read_the_file_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_ring, "BETWEEN_LOOKS", 1000.0)
    path = tmp_path / "master.key"
    running = load_key_ring(path, None)
    assert running.master_keys.find("00000000") is None
    added = key_file.add_last(path)
    assert running.master_keys.find(added) is None, "it has just looked"
    running.master_keys.look_again()
    assert running.master_keys.find(added) is not None


@pytest.mark.parametrize("text", ["", "no key", "# only a comment\n", None])
def test_a_key_file_that_breaks_leaves_the_keys_of_a_running_server(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "master.key"
    running = load_key_ring(path, None)
    before = running.seal("text", "a.b:1")
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    running.master_keys.look_again()
    assert running.open(before, "a.b:1") == "text"
    assert running.open(running.seal("more", "a.b:1"), "a.b:1") == "more"


def test_keys_of_the_variable_do_not_change(tmp_path: Path) -> None:
    running = load_key_ring(tmp_path / "master.key", Secret(to_base64(NEW.raw)))
    with pytest.raises(UnknownKey):
        running.open(KeyRing([MasterKey(b"o" * 32)]).seal("text", "a.b:1"), "a.b:1")
    assert list(tmp_path.iterdir()) == []


def test_the_key_file_keeps_its_comments_and_its_rights(tmp_path: Path) -> None:
    path = tmp_path / "master.key"
    old = load_key_ring(path, None).current_id
    path.chmod(0o400)
    path.write_text(path.read_text() + "\n# the key of May\n")
    head = path.read_text().splitlines()[:2]
    added = key_file.add_last(path)
    key_file.put_first(path, added)
    lines = path.read_text().splitlines()
    assert lines[:2] == head
    assert "# the key of May" in lines
    assert [key.id for key in keys_of_file(path)] == [added, old]
    assert path.stat().st_mode & 0o777 == 0o400
    assert [one.name for one in tmp_path.iterdir()] == ["master.key"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file of another user")
def test_the_file_of_another_user_is_not_replaced_by_one_of_root(tmp_path: Path) -> None:
    path = tmp_path / "master.key"
    load_key_ring(path, None)
    os.chown(path, 4321, 4321)
    with pytest.raises(MasterKeyError, match="belongs to another user"):
        key_file.add_last(path)
    assert path.stat().st_uid == 4321
