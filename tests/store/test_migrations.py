from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from windlass.store.migrate import MigrationError, is_migrated, known_migrations, migrate

if TYPE_CHECKING:
    from windlass.store.database import Database


async def test_a_migrated_database_needs_nothing_more(database: Database) -> None:
    assert await is_migrated(database)
    assert await migrate(database) == []


async def test_a_database_of_a_newer_release_is_refused(database: Database) -> None:
    await database.execute("INSERT INTO migrations (number) VALUES (9999)")
    with pytest.raises(MigrationError, match="newer Windlass"):
        await migrate(database)


def test_migrations_are_numbered_without_a_gap() -> None:
    assert list(known_migrations()) == list(range(1, len(known_migrations()) + 1))
