"""Credentials and the sources of variables as rows: what keeps what, and who may not remove what."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from store.kickoff_rows import Rows, manifest
from windlass.kickoffs.ids import new_id
from windlass.store.audit import COMMAND_LINE, AuditFilter, AuditStore, Change
from windlass.store.builds import BuildStore, NewVersion
from windlass.store.credentials import (
    MOST_CREDENTIALS,
    CredentialExists,
    CredentialInUse,
    CredentialRow,
    CredentialStore,
    NewCredential,
    TooManyCredentials,
)
from windlass.store.sealed_variables import SealedVariable
from windlass.store.variables import ReadValues, TooManyVariables, VariableRow, VariableStore

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CHANGE = Change(COMMAND_LINE, "credential.change", "x")
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class World:
    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.credentials = CredentialStore(rows.database)
        self.variables = VariableStore(rows.database)

    async def add(self, name: str = "main", method: str = "static", *, is_default: bool = False) -> NewCredential:
        new = NewCredential(new_id(), name, "aws", method, "sealed", is_default, at_deploy=method == "static")
        await self.credentials.add(new, CHANGE)
        return new

    async def alter(self, of: str, /, **members: Any) -> None:
        def altered(row: CredentialRow) -> NewCredential:
            stored = {one: getattr(row, one) for one in NewCredential.__slots__ if one != "at_deploy"}
            return NewCredential(**{**stored, "at_deploy": row.method == "static", **members})

        assert await self.credentials.change(of, altered, CHANGE)

    async def bind(self, name: str, credential: NewCredential | None = None, value: str | None = None) -> None:
        """Binds a variable to a credential, without one to the default credential."""

        def decide(_: Mapping[str, SealedVariable], usable: Sequence[CredentialRow]) -> list[SealedVariable]:
            if credential:
                assert [one.id for one in usable] == [credential.id]
            provider, id_ = (None, credential.id) if credential else ("aws", None)
            return [SealedVariable(name, value, True, provider, id_, f"app/{name}#key")]

        named = {"credentials": [credential.name]} if credential else {"providers": ["aws"]}
        await self.variables.set(self.rows.deployment.id, [name], decide, CHANGE, **named)

    async def variable(self, name: str = "KEY") -> VariableRow:
        (found,) = [one for one in await self.variables.of_deployment(self.rows.deployment.id) if one.name == name]
        return found

    async def read(self, value: str) -> ReadValues:
        """As a build would have read all variables."""
        sealed = await self.variables.sealed(self.rows.deployment.id)
        return ReadValues(AT, tuple(replace(one, value=value) for one in sealed))


@pytest.fixture
def world(rows: Rows) -> World:
    return World(rows)


async def test_a_claim_and_a_build_have_the_sources_of_variables(world: World) -> None:
    named = await world.add()
    await world.bind("KEY", named)
    await world.bind("OTHER", value="v1.value")
    expected = {
        SealedVariable("KEY", None, True, None, named.id, "app/KEY#key"),
        SealedVariable("OTHER", "v1.value", True, "aws", None, "app/OTHER#key"),
    }
    assert set((await world.rows.started()).variables) == expected
    assert set(await world.variables.sealed(world.rows.deployment.id)) == expected
    store = BuildStore(world.rows.database)
    turn = await store.begin(await store.start(world.rows.deployment.id, {"type": "folder"}, None, None))
    assert turn is not None
    assert set(turn.variables) == expected


async def test_the_credentials_of_variables_are_found_in_one_statement(world: World) -> None:
    default, named, _ = await world.add("usual", is_default=True), await world.add("mine"), await world.add("unused")
    await world.bind("KEY", named)
    await world.bind("OTHER")
    found = await world.credentials.of_variables(await world.variables.sealed(world.rows.deployment.id))
    assert {one.id for one in found} == {default.id, named.id}
    assert await world.credentials.of_variables([]) == []
    assert await world.credentials.uses() == {default.id: 1, named.id: 1}
    gone = SealedVariable("A", None, True, None, new_id(), "x")
    assert await world.credentials.of_variables([gone, SealedVariable("B", None, True, "vault", None, "x")]) == []


async def test_a_variable_shows_its_source_and_the_method_that_counts_now(world: World) -> None:
    await world.add("usual", is_default=True)
    await world.bind("KEY")
    row = await world.variable()
    assert (row.provider, row.credential, row.method, row.secret_name) == ("aws", None, "static", "app/KEY#key")
    other = await world.add("other", "workload_identity", is_default=True)
    assert (await world.variable()).method == "workload_identity"
    await world.bind("KEY", other)
    row = await world.variable()
    assert (row.provider, row.credential, row.method) == ("aws", "other", "workload_identity")


async def test_a_provider_has_one_default_credential_also_when_two_are_made_it_at_once(world: World) -> None:
    for name in "abcd":
        await world.add(name)
    await asyncio.gather(*(world.alter(name, is_default=True) for name in "abcd"))
    assert len([one for one in await world.credentials.all() if one.is_default]) == 1


async def test_a_name_is_used_once(world: World) -> None:
    await world.add("a")
    await world.add("b")
    with pytest.raises(CredentialExists, match="'a'"):
        await world.add("a")
    with pytest.raises(CredentialExists):
        await world.alter("b", name="a")
    await world.alter("b", name="c")
    assert [one.name for one in await world.credentials.all()] == ["a", "c"]
    assert await world.credentials.get("b") is None


async def test_of_two_that_add_the_same_name_at_once_one_is_refused(world: World) -> None:
    found = await asyncio.gather(world.add("a"), world.add("a"), return_exceptions=True)
    assert sorted(type(one).__name__ for one in found) == ["CredentialExists", "NewCredential"]


async def test_a_credential_that_variables_use_is_not_removed(world: World) -> None:
    named, default = await world.add("mine"), await world.add("usual", is_default=True)
    await world.bind("KEY", named)
    with pytest.raises(CredentialInUse, match="work/KEY") as caught:
        await world.credentials.remove("mine", CHANGE)
    assert caught.value.variables == ["work/KEY"]
    await world.bind("KEY")
    assert await world.credentials.remove("mine", CHANGE)
    for refused in (world.credentials.remove("usual", CHANGE), world.alter("usual", is_default=False)):
        with pytest.raises(CredentialInUse, match=r"the default credential of aws|credential usual"):
            await refused
    await world.add("new", is_default=True)
    assert await world.credentials.remove("usual", CHANGE)
    assert await world.credentials.get(default.name) is None
    assert not await world.credentials.remove("usual", CHANGE)


async def test_a_variable_that_is_bound_while_its_credential_is_removed_keeps_it_or_is_refused(world: World) -> None:
    for turn in range(5):
        credential = await world.add(f"c{turn}")

        async def bind(new: NewCredential = credential) -> str:
            try:
                await world.bind("KEY", new)
            except AssertionError:  # of `decide`: there is no such credential any more
                return "refused"
            return "bound"

        bound, removed = await asyncio.gather(
            bind(), world.credentials.remove(credential.name, CHANGE), return_exceptions=True
        )
        assert (bound, type(removed)) in {("bound", CredentialInUse), ("refused", bool)}


async def test_a_build_stores_what_it_read_with_its_version(world: World) -> None:
    await world.bind("KEY", await world.add())
    store = BuildStore(world.rows.database)
    turn = await store.begin(await store.start(world.rows.deployment.id, {"type": "folder"}, None, None))
    assert turn is not None
    read = ReadValues(AT, tuple(replace(one, value="v1.read") for one in turn.variables))
    assert await store.publish(turn, NewVersion("e", {"kind": "function"}, manifest()), lambda *_: {}, read) == 2
    row = await world.variable()
    assert (row.value, row.read_at) == ("v1.read", AT)


async def test_a_value_that_was_read_from_another_source_is_not_stored(world: World) -> None:
    first, second = await world.add("first"), await world.add("second")
    await world.bind("KEY", first)
    await world.bind("SAME", first)
    read = await world.read("v1.read")
    await world.bind("KEY", second)
    await world.variables.store_read(world.rows.deployment.id, read)
    changed, same = await world.variable(), await world.variable("SAME")
    assert (changed.value, changed.read_at) == (None, None)
    assert (same.value, same.read_at) == ("v1.read", AT)
    await world.variables.unset(world.rows.deployment.id, "SAME", CHANGE)
    await world.variables.store_read(world.rows.deployment.id, read)  # it is not set again
    assert [one.name for one in await world.variables.of_deployment(world.rows.deployment.id)] == ["KEY"]


async def test_values_that_were_read_are_bounded_as_those_that_are_set(world: World) -> None:
    await world.bind("KEY", await world.add())
    with pytest.raises(TooManyVariables):
        await world.variables.store_read(world.rows.deployment.id, await world.read("x" * (1 << 20) + "x"))
    assert (await world.variable()).value is None


async def test_the_time_of_a_read_stays_as_long_as_the_value(world: World) -> None:
    named = await world.add()
    await world.bind("KEY", named)
    await world.variables.store_read(world.rows.deployment.id, await world.read("v1.read"))
    await world.bind("KEY", value="v1.read")
    assert (await world.variable()).read_at == AT
    await world.bind("KEY", named)
    assert (await world.variable()).read_at is None


async def test_values_are_removed_when_they_are_read_at_each_kickoff_from_now_on(world: World) -> None:
    named = await world.add("mine")
    await world.add("usual", is_default=True)
    await world.bind("KEY", named)
    await world.bind("OTHER")
    await world.variables.store_read(world.rows.deployment.id, await world.read("v1.read"))
    await world.alter("mine", method="workload_identity", at_deploy=False)
    key, other = await world.variable(), await world.variable("OTHER")
    assert (key.value, key.read_at, other.value) == (None, None, "v1.read")
    await world.add("new", "workload_identity", is_default=True)
    assert (await world.variable("OTHER")).value is None


async def test_publishing_setting_and_changing_a_credential_at_once_do_not_block_each_other(world: World) -> None:
    """PostgreSQL ends one of two transactions that wait for each other: a locked row is taken in one order by all."""
    credential, store = await world.add("mine", is_default=True), BuildStore(world.rows.database)
    await world.bind("B", credential)

    async def publish(value: str) -> None:
        turn = await store.begin(await store.start(world.rows.deployment.id, {"type": "folder"}, None, None))
        assert turn is not None
        read = ReadValues(AT, tuple(replace(one, value=value) for one in turn.variables))
        assert await store.publish(turn, NewVersion(value, {"kind": "function"}, manifest()), lambda *_: {}, read)

    for turn in range(6):
        method = ("static", "workload_identity")[turn % 2]
        await asyncio.gather(
            publish(f"v1.{turn}"),
            world.bind("B", credential, "v1.kept"),
            world.bind(f"A{turn}"),
            world.alter("mine", method=method, at_deploy=method == "static"),
            world.variables.store_read(world.rows.deployment.id, await world.read("v1.read")),
        )
    assert len(await world.variables.of_deployment(world.rows.deployment.id)) == 7


async def test_a_server_has_a_bounded_number_of_credentials(world: World) -> None:
    await world.rows.database.execute(
        "INSERT INTO credentials (id, name, provider, method, configuration) "
        "SELECT gen_random_uuid(), 'c' || number, 'aws', 'static', '' FROM generate_series(1, %(most)s) AS number",
        {"most": MOST_CREDENTIALS},
    )
    with pytest.raises(TooManyCredentials):
        await world.add()
    assert len(await world.credentials.all()) == MOST_CREDENTIALS


async def test_each_change_is_in_the_audit_log(world: World) -> None:
    await world.add("a")
    await world.alter("a", name="b")
    await world.credentials.remove("b", CHANGE)
    assert len(await AuditStore(world.rows.database).listed(AuditFilter(action="credential"), limit=10)) == 3
