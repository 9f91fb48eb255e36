"""Tokens of a crew that nobody runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from store.kickoff_rows import Rows
from windlass.access.tokens import Tokens
from windlass.secrets.key_ring import KeyRing, MasterKey
from windlass.store.tokens import TokenStore

if TYPE_CHECKING:
    from windlass.store.database import Database
    from windlass.store.deployments import Deployment

MASTER_KEY = b"k" * 32


@dataclass
class TokenBench:
    database: Database
    deployment: Deployment
    store: TokenStore
    master_key: bytes
    key_ring: KeyRing
    tokens: Tokens

    @classmethod
    async def make(cls, database: Database) -> TokenBench:
        rows, store = await Rows.make(database), TokenStore(database)
        key_ring = KeyRing([MasterKey(MASTER_KEY)])
        return cls(database, rows.deployment, store, MASTER_KEY, key_ring, await Tokens.open(store, key_ring))
