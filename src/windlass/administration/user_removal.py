"""Deletes users with their kickoffs, for the commands and the side jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.lifecycle.accept import Stops
from windlass.lifecycle.deletion import Deletions, UserDeletion
from windlass.store.deployments import DeploymentStore
from windlass.store.ending import Endings
from windlass.store.retention import RetentionStore

if TYPE_CHECKING:
    from windlass.access.tokens import Tokens
    from windlass.config import Settings
    from windlass.store.database import Database


PATIENCE = 15.0
"""Seconds, in addition to the grace time of a stop, that the deletion of a user waits until the user's kickoffs have
ended.
"""


def user_deletion(settings: Settings, database: Database, tokens: Tokens) -> UserDeletion:
    return UserDeletion(
        Deletions(RetentionStore(database)),
        tokens,
        Stops(Endings(database)),
        DeploymentStore(database),
        patience=settings.stop_grace + PATIENCE,
    )
