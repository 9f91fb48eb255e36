"""The rotation of the master key: encrypts all stored values again, while servers run.

A rotation that was interrupted leaves values of both keys, which servers can read. The next one goes on with it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from windlass.access.tokens import Tokens
from windlass.administration.opening import database_for_commands, key_ring_of
from windlass.errors import DatabaseUnavailable, WindlassError
from windlass.lifecycle.journal import PURPOSE
from windlass.secrets import key_file
from windlass.secrets.key_ring import VARIABLE, Damaged, Sealed, UnknownKey
from windlass.store.audit import COMMAND_LINE, AuditStore, Change
from windlass.store.sealed_values import PLACES, SealedValueStore
from windlass.store.tokens import TokenStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from pathlib import Path

    from windlass.config import Settings
    from windlass.secrets.key_ring import KeyRing
    from windlass.store.audit import Actor
    from windlass.store.database import Database
    from windlass.store.sealed_values import SealedRow

    Progress = Callable[[str, int, int], None]

SETTLES_IN = 2.0
"""Seconds in which running servers have read the new key, and have written what they encrypted with the old one."""
MOST_PASSES = 5
"""Passes over all values. More than two are needed only if a server still encrypts with an old key."""
TRIES, BETWEEN_TRIES = 20, 0.5
"""A batch is repeated when it meets a deadlock, or a database that restarts."""
ADD_ONE = (
    "Add a new key as the last one on every server, and restart the servers. Then make it the first one on every "
    "server, and restart them again. Then run: windlass admin keys rotate"
)


class NotRotated(WindlassError):  # noqa: N818 - describes the keys
    """Reports that the rotation can't begin, and what to do first."""


@dataclass(frozen=True, slots=True)
class KeyState:
    """`values` maps a place to the number of values that the key encrypted. `known`: this machine has the key."""

    id: str
    known: bool
    current: bool
    values: Mapping[str, int]

    @property
    def total(self) -> int:
        return sum(self.values.values())


@dataclass(slots=True)
class Rotated:
    """`changed` are the values that were encrypted again, `unreadable` the rows that could not be decrypted.

    `unneeded` are the other keys that encrypt no stored value.
    """

    current: str
    changed: Counter[str] = field(default_factory=Counter)
    unreadable: dict[str, str] = field(default_factory=dict)
    unneeded: list[str] = field(default_factory=list)
    complete: bool = True


def file_of(settings: Settings) -> Path | None:
    """Returns the key file, None with WINDLASS_MASTER_KEY."""
    return None if settings.master_key else settings.home / "master.key"


async def status(settings: Settings) -> list[KeyState]:
    """Returns the master keys, the current one first, and unknown ones that stored values need."""
    async with database_for_commands(settings) as database:
        return await _states(SealedValueStore(database), key_ring_of(settings))


async def prepare(settings: Settings, by: Actor = COMMAND_LINE) -> str:
    """Adds a new key to the file that decrypts and does not encrypt. Returns its id. Raises WindlassError."""
    file = file_of(settings)
    if file is None:
        raise NotRotated(f"The keys are in {VARIABLE}, which this command can't change.", ADD_ONE)
    async with database_for_commands(settings) as database:
        store = SealedValueStore(database)
        async with store.exclusive():
            await _right_keys(settings, database)
            key_id = key_file.add_last(file)
            await store.notify()
            await AuditStore(database).add(Change(by, "keys.prepare", key_id))
            return key_id


async def rotate(settings: Settings, to: str | None, progress: Progress, by: Actor = COMMAND_LINE) -> Rotated:
    """Encrypts all values with one key: `to`, the first key if the last rotation was interrupted, else a new one.

    Calls `progress` with a place, the number of its values that are done, and their total. Raises WindlassError.
    """
    async with database_for_commands(settings) as database:
        store = SealedValueStore(database)
        async with store.exclusive():
            ring = await _right_keys(settings, database)
            _put_first(settings, await _states(store, ring), to)
            await store.notify()
            found = await _encrypt_all(store, key_ring_of(settings), progress)
            details = {"values": found.changed.total(), "unreadable": len(found.unreadable)}
            await AuditStore(database).add(Change(by, "keys.rotate", found.current, details))
            return found


async def drop(settings: Settings, key_ids: Sequence[str], by: Actor = COMMAND_LINE) -> None:
    """Removes keys from the file. Raises NotRotated for a key that encrypts, and MasterKeyError for an unknown one."""
    file = file_of(settings)
    if file is None:
        raise NotRotated(f"The keys are in {VARIABLE}, which this command can't change.", "Remove the key there.")
    async with database_for_commands(settings) as database:
        store = SealedValueStore(database)
        async with store.exclusive():
            states = {state.id: state for state in await _states(store, key_ring_of(settings)) if state.known}
            for key_id in key_ids:
                _check_unneeded(file, key_id, states.get(key_id))
            key_file.remove(file, key_ids)
            for key_id in key_ids:
                await AuditStore(database).add(Change(by, "keys.drop", key_id))


def _check_unneeded(file: Path, key_id: str, state: KeyState | None) -> None:
    if state is None:
        raise NotRotated(f"The key file {file} has no key {key_id}.", "`windlass admin keys status` lists its keys.")
    if state.current:
        raise NotRotated(f"The key {key_id} encrypts new values.", "Rotate first: windlass admin keys rotate")
    if state.total:
        raise NotRotated(f"{state.total} stored values need the key {key_id}.", "Run first: windlass admin keys rotate")


async def _right_keys(settings: Settings, database: Database) -> KeyRing:
    """Returns the ring. Raises UnknownKey for the keys of another server, before anything is changed."""
    ring = key_ring_of(settings)
    await Tokens.open(TokenStore(database), ring)
    return ring


def _put_first(settings: Settings, states: list[KeyState], to: str | None) -> None:
    """Decides which key encrypts, and makes it the first one. Raises NotRotated and MasterKeyError."""
    file = file_of(settings)
    interrupted = any(state.total for state in states if state.known and not state.current)
    if file is None:
        if to or not interrupted:
            raise NotRotated(f"All values are encrypted with the first key of {VARIABLE} already.", ADD_ONE)
    elif to:
        key_file.put_first(file, to)
    elif not interrupted and settings.database_url:
        raise NotRotated(
            "Other servers may use this database. They would fail on values of a key that they don't have.",
            "Make a key with: windlass admin keys prepare. It prints what to do next.",
        )
    elif not interrupted:
        key_file.put_first(file, key_file.add_last(file))


async def _states(store: SealedValueStore, ring: KeyRing) -> list[KeyState]:
    counts = {place: await store.counts(place) for place in PLACES}
    known = ring.master_keys.ids
    others = sorted({key_id for found in counts.values() for key_id in found} - set(known))
    return [
        KeyState(
            key_id,
            key_id in known,
            key_id == ring.current_id,
            {place: found[key_id] for place, found in counts.items() if key_id in found},
        )
        for key_id in [*known, *others]
    ]


async def _encrypt_all(store: SealedValueStore, ring: KeyRing, progress: Progress) -> Rotated:
    found = Rotated(ring.current_id)
    for number in range(MOST_PASSES):
        before = found.changed.total()
        for place in PLACES:
            await _encrypt(store, place, ring, found, progress)
        if number and found.changed.total() == before:
            break
        await asyncio.sleep(SETTLES_IN)
    states = await _states(store, ring)
    found.complete = not any(state.total for state in states if not state.current)
    found.unneeded = [state.id for state in states if state.known and not state.current and not state.total]
    return found


async def _encrypt(store: SealedValueStore, place: str, ring: KeyRing, found: Rotated, progress: Progress) -> None:
    total = sum(count for key_id, count in (await store.counts(place)).items() if key_id != ring.current_id)
    done = 0
    async for rows in _pages(store, place, ring.current_id):
        changed = [(row, new) for row in rows if (new := _encrypted_again(ring, place, row, found))]
        await _repeated(store, place, changed)
        found.changed[place] += len(changed)
        done += len(rows)
        progress(place, done, max(done, total))


async def _pages(store: SealedValueStore, place: str, current: str) -> AsyncIterator[list[SealedRow]]:
    after: tuple[str, ...] = ()
    while rows := await store.page(place, current, after):
        yield rows
        after = rows[-1].ids


def _encrypted_again(ring: KeyRing, place: str, row: SealedRow, found: Rotated) -> str | None:
    context = _context(Sealed(place), row)
    of_place = ring.for_purpose(PURPOSE) if place == Sealed.JOURNAL_RECORD else ring
    try:
        return of_place.reseal(row.value, context)
    except (Damaged, UnknownKey) as error:
        found.unreadable[context] = str(error)
        return None


def _context(place: Sealed, row: SealedRow) -> str:
    return place.value if place is Sealed.TOKEN_PEPPER else place.of("/".join(row.ids))


async def _repeated(store: SealedValueStore, place: str, rows: list[tuple[SealedRow, str]]) -> None:
    for _ in range(TRIES):
        with suppress(DatabaseUnavailable):
            return await store.replace(place, rows)
        await asyncio.sleep(BETWEEN_TRIES)
    return await store.replace(place, rows)
